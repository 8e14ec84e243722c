"""The accelerator ladder: names, walking it rung by rung, the report of what is in effect. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from vedette.engine.port import OnFallback
from vedette.errors import EngineUnavailableError
from vedette.wire.messages import AcceleratorReport, Skipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vedette.clock import Clock
    from vedette.engine.port import Progress

T = TypeVar("T")

CPU = "cpu"
GPU = "gpu"

# Canonical names; a plug-in runtime may bring others, so an unknown name is passed on, not refused.
ACCELERATORS: tuple[str, ...] = (
    "tensorrt",
    "tensorrt-rtx",
    "cuda",
    "rocm",
    "migraphx",
    "openvino",
    "qnn",
    "coreml",
    "nnapi",
    "cann",
    "rknpu",
    "vitisai",
    "acl",
    "armnn",
    "dml",
    "edgetpu",
    "hexagon",
    "webgpu",
    GPU,
    "xnnpack",
    CPU,
)
_ALIASES = {"trt": "tensorrt", "coral": "edgetpu", "vulkan": "webgpu", "directml": "dml", "none": CPU}
# What an owner may mean by plain `gpu`, best first.
GPU_FAMILY: tuple[str, ...] = ("tensorrt", "cuda", "migraphx", "rocm", "coreml", "dml", "webgpu", GPU)

CHECK_RUNS = 5
CHECK_BUDGET_MS = 2000.0


class RungRefusedError(Exception):
    """One accelerator cannot be used; the text is the reason, for people. Never leaves the adapter."""


@dataclass(frozen=True)
class Placement(Generic[T]):
    """What one rung gave: the opened thing, what it runs on, and how that is known.

    `nodes` counts graph nodes per accelerator, empty where the runtime does not tell.
    """

    opened: T
    effective: str
    nodes: Mapping[str, int]
    evidence: str


@dataclass(frozen=True)
class Climb(Generic[T]):
    """The rung that held, and why each one above it did not."""

    placement: Placement[T]
    skipped: tuple[Skipped, ...]


def canonical(name: str) -> str:
    """The one spelling of a name: lower case, `-` for blanks and underscores, aliases resolved."""
    lowered = name.strip().lower().replace("_", "-").replace(" ", "-")
    return _ALIASES.get(lowered, lowered)


def ladder(names: Sequence[str]) -> tuple[str, ...]:
    """The rungs in order, canonical and each once; an empty wish means the CPU."""
    rungs = tuple(dict.fromkeys(canonical(name) for name in names if name.strip()))
    return rungs or (CPU,)


def satisfies(effective: str, asked: str) -> bool:
    """Whether `effective` is what `asked` means; plain `gpu` is met by any GPU."""
    return effective == asked or (asked == GPU and effective in GPU_FAMILY)


def climb(
    rungs: Sequence[str],
    attempt: Callable[[str], Placement[T]],
    *,
    on_fallback: OnFallback,
    progress: Progress,
) -> Climb[T]:
    """Try rung after rung until one holds.

    Args:
        rungs: Canonical names in order of preference.
        attempt: Opens the model on one rung, from scratch; raises RungRefusedError with the reason.
        on_fallback: With `fail`, the first refusal ends the climb: no time is spent on rungs nobody accepts.
        progress: Gets one line per rung that was refused.

    Returns:
        The placement, and a reason for each rung that was skipped.

    Raises:
        EngineUnavailableError: No rung held, or the first did not and `on_fallback` is `fail`.
    """
    skipped: list[Skipped] = []
    for rung in rungs:
        outcome = _try(rung, attempt)
        if isinstance(outcome, Placement):
            return Climb(outcome, tuple(skipped))
        skipped.append(outcome)
        progress(f"{rung} is not usable: {outcome.reason}")
        if on_fallback is OnFallback.FAIL:
            break
    raise EngineUnavailableError(_refusals(skipped), cure=_cure(rungs, on_fallback))


def _try(rung: str, attempt: Callable[[str], Placement[T]]) -> Placement[T] | Skipped:
    try:
        return attempt(rung)
    except RungRefusedError as refusal:
        return Skipped(rung, str(refusal))


def _refusals(skipped: Sequence[Skipped]) -> str:
    reasons = "; ".join(f"{item.accelerator}: {item.reason}" for item in skipped)
    return f"no accelerator that was asked for can be used ({reasons})"


def _cure(rungs: Sequence[str], on_fallback: OnFallback) -> str:
    if on_fallback is OnFallback.FAIL:
        return (
            "repair the accelerator, or set engine.on_fallback (--on-fallback) to warn to run on the next "
            "one meanwhile"
        )
    if CPU not in rungs:
        return (
            "repair the accelerator, or add cpu as the last entry of engine.accelerators "
            "(as the last --accelerator)"
        )
    return "see the reasons; `vedette-agent probe BUNDLE` tries again"


def compose_report(
    done: Climb[T],
    *,
    runtime: str,
    asked: Sequence[str],
    on_fallback: OnFallback,
    threads: int,
    check_ms: float,
    load_ms: float,
) -> AcceleratorReport:
    """State what is in effect against what was asked; with `allow`, falling back is not `degraded`.

    Raises:
        EngineUnavailableError: `on_fallback` is `fail` and the effective accelerator is not the first asked.
    """
    placement = done.placement
    met = satisfies(placement.effective, asked[0])
    if not met and on_fallback is OnFallback.FAIL:
        raise EngineUnavailableError(
            f"{asked[0]} was required, but the model runs on {placement.effective} ({placement.evidence})",
            cure=_cure(asked, on_fallback),
        )
    return AcceleratorReport(
        runtime=runtime,
        asked=tuple(asked),
        effective=placement.effective,
        nodes=dict(placement.nodes),
        skipped=done.skipped,
        evidence=placement.evidence,
        threads=threads,
        check_ms=round(check_ms, 3),
        load_ms=round(load_ms, 3),
        degraded=not met and on_fallback is OnFallback.WARN,
    )


def announce(report: AcceleratorReport, progress: Progress) -> None:
    """Say in one line what the model runs on; a fallback nobody allowed is said first and loudly."""
    share = "".join(f", {count} nodes on {name}" for name, count in report.nodes.items())
    line = f"{report.runtime} on {report.effective}{share}, {report.check_ms:.1f} ms a run"
    if report.degraded:
        reasons = "; ".join(f"{item.accelerator}: {item.reason}" for item in report.skipped)
        line = f"DEGRADED: {report.asked[0]} was asked for, runs on {report.effective} ({reasons}). {line}"
    progress(line)


def with_rejected(
    report: AcceleratorReport,
    asked: Sequence[str],
    rejected: Sequence[Skipped],
    on_fallback: OnFallback,
) -> AcceleratorReport:
    """The report of a later opening, completed by the rungs that the self-test threw out before it."""
    fell_back = not satisfies(report.effective, asked[0])
    return msgspec.structs.replace(
        report,
        asked=tuple(asked),
        skipped=(*rejected, *report.skipped),
        degraded=fell_back and on_fallback is not OnFallback.ALLOW,
    )


def median_ms(run: Callable[[], object], clock: Clock, *, runs: int = CHECK_RUNS) -> float:
    """Median of a few timed runs in milliseconds; slow models get fewer, within about two seconds."""
    times_ms: list[float] = []
    for _ in range(runs):
        started_ns = clock.monotonic_ns()
        run()
        times_ms.append((clock.monotonic_ns() - started_ns) / 1e6)
        if sum(times_ms) > CHECK_BUDGET_MS:
            break
    return statistics.median(times_ms)
