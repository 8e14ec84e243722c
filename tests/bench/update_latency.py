"""Frames answered while an update goes on: `python -m tests.bench.update_latency`.

A real daemon on live cameras, beside it each step of an update in turn, again and again for as long as a
phase lasts: fetch over HTTP and verify, apply of a delta, preflight, load of the candidate, shadow, trial.
Every phase stands between two in which nothing but the frames goes on, so its ratio is to its own neighbours.
Judged is, for each step, the median over the rounds of the ratio of 95th percentiles from capture to answer.

`--no-rights` measures without any right to raise a priority, as in a service that was not given one.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np
from tests.bench.path import MODELS
from tests.bench.procfs import cpu_s, family, machine_time
from tests.bench.quiet import QUIET_SHARE, quietest, wait_for_quiet
from tests.bench.swap import FPS, LIVE, Serving, copy_of
from tests.bench.update_steps import SETTLE_S, Span, Step, Steps, fine_tuned, published
from tests.bench.verdict import Verdict, options, table

from vedette.errors import InternalError
from vedette.update.store import Store
from vedette.wire.messages import LatencyMs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BUNDLES = ("person", "imagenet")
BEFORE = "before"
MAX_P95_RATIO = 1.2
# CAP_SYS_ADMIN and CAP_SYS_NICE, and how they are taken from what an exec gives (prctl(2)).
RISING = (21, 23)
PR_CAPBSET_DROP = 24
QUIET_WITHIN_S = 5.0


class Measured(NamedTuple):
    """One phase: milliseconds from capture to answer of its frames, and the share of strangers' CPU."""

    totals_ms: NDArray[np.float64]
    foreign: float


@final
class Strangers:
    """Share of all CPUs that other programs took during the block, in which children may come and go."""

    def __enter__(self) -> Strangers:
        self._machine, self._own_s = machine_time(), family_s()
        self.share = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        own_s = family_s() - self._own_s
        machine = machine_time()
        busy_s = machine.busy_s - self._machine.busy_s
        self.share = max(0.0, busy_s - own_s) / max(1e-9, machine.total_s - self._machine.total_s)


def family_s() -> float:
    """CPU seconds of this process, its children, and those that it has buried."""
    buried = resource.getrusage(resource.RUSAGE_CHILDREN)
    return cpu_s(family(os.getpid())) + buried.ru_utime + buried.ru_stime


def measure(
    serving: Serving, steps: dict[str, Step], rounds: int, phase_s: float
) -> list[dict[str, list[Measured]]]:
    """Rounds of all steps, each between two phases of frames alone: before, step, after."""
    taken = []
    for number in range(rounds):
        sys.stderr.write(f"round {number + 1} of {rounds}\n")
        names = list(steps)
        found: dict[str, list[Measured]] = {}
        before = alone(serving, phase_s)
        for name in names if number % 2 == 0 else names[::-1]:
            with Strangers() as strangers:
                spans = steps[name](phase_s)
            during = Measured(totals_ms(serving, spans), strangers.share)
            after = alone(serving, phase_s)
            found[name] = [before, during, after]
            before = after
        serving.records.results.clear()
        taken.append(found)
    return taken


def alone(serving: Serving, phase_s: float) -> Measured:
    """Nothing but frames."""
    time.sleep(SETTLE_S)
    wait_for_quiet(QUIET_WITHIN_S)
    start_ns = time.monotonic_ns()
    with Strangers() as strangers:
        time.sleep(phase_s)
    return Measured(totals_ms(serving, [Span(start_ns, time.monotonic_ns())]), strangers.share)


def totals_ms(serving: Serving, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Of the frames that were captured within the spans."""
    time.sleep(0.05)  # the last answers are still on their way
    return np.array(
        [
            result.latency_ms.total
            for result in list(serving.records.results)
            if isinstance(result.latency_ms, LatencyMs)
            and any(start <= result.captured_ns < end for start, end in spans)
        ]
    )


def judge(bundle: str, taken: list[dict[str, list[Measured]]], verdict: Verdict) -> None:
    """The table and the bars."""
    rows = []
    for name in taken[0]:
        rounds = [found[name] for found in taken if len(found[name][1].totals_ms) >= FPS // 2]
        if not rounds:
            raise InternalError(f"bench: no round of {name} saw frames enough; give it a longer --phase-s")
        judged = quietest(
            [
                (
                    max(before.foreign, during.foreign, after.foreign),
                    {
                        BEFORE: _ns(np.concatenate([before.totals_ms, after.totals_ms])),
                        name: _ns(during.totals_ms),
                    },
                )
                for before, during, after in rounds
            ]
        )
        ratios = [np.percentile(ns[name], 95) / np.percentile(ns[BEFORE], 95) for _, ns in judged]
        figures = [np.concatenate([ns[which] for _, ns in judged]) / 1e6 for which in (BEFORE, name)]
        ratio = float(np.median(ratios))
        rows.append(
            [
                name,
                f"{len(figures[1]):,}",
                *(f"{np.percentile(ms, q):.2f}" for ms in figures for q in (50, 95)),
                f"{ratio:.2f}",
                f"{np.percentile(ratios, 25):.2f}-{np.percentile(ratios, 75):.2f}",
                f"{len(judged)} of {len(taken)}",
                f"{judged[-1][0]:.0%}",
            ]
        )
        noisy = judged[-1][0] > QUIET_SHARE
        verdict.at_most(f"{bundle}: p95 during {name} over before", ratio, MAX_P95_RATIO, noisy=noisy)
    table(
        (
            f"{bundle}, capture to answer",
            "frames",
            "before p50 ms",
            "p95",
            "during p50 ms",
            "p95",
            "ratio of p95",
            "quartiles",
            "rounds",
            "strangers",
        ),
        rows,
    )


def _ns(values_ms: NDArray[np.float64]) -> NDArray[np.int64]:
    return (values_ms * 1e6).astype(np.int64)


def main() -> int:
    """Measure and judge."""
    parser = options("frames answered while an update goes on", rounds=12)
    parser.add_argument("--bundles", default=",".join(BUNDLES), help="of models/ (default %(default)s)")
    parser.add_argument("--phase-s", type=float, default=1.5, help="seconds a phase (default %(default)s)")
    parser.add_argument("--steps", default="", help="only those whose names begin so, by commas")
    parser.add_argument("--no-rights", action="store_true", help="first give up what lets a priority rise")
    arguments = parser.parse_args()
    if arguments.no_rights:
        give_up_rights()
    rights = ", no priority may rise" if arguments.no_rights else ""
    verdict = Verdict(f"Frames while an update goes on: 2 cameras, {LIVE}{rights}")
    for name in arguments.bundles.split(","):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary).resolve()
            serves, candidate = (copy_of(MODELS / name, folder / version) for version in ("1", "3"))
            tuned = fine_tuned(serves, folder / "2")
            (folder / "state").mkdir()
            store = Store(folder / "state", factory=serves)
            store.open()
            with (
                published(folder, serves, tuned) as release,
                Serving(serves, {"left": True, "right": True}) as serving,
            ):
                steps = Steps(serving, store, release, (serves, candidate)).named(arguments.steps)
                taken = measure(serving, steps, arguments.rounds, arguments.phase_s)
        judge(name, taken, verdict)
    return verdict.exit_status(strict=arguments.strict)


def give_up_rights() -> None:
    """Begin anew without the capabilities that let a priority rise; nothing for one that has none."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    if effective & sum(1 << capability for capability in RISING):
        for capability in RISING:
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_NICE, (0, 0))
        again = [sys.executable, "-m", "tests.bench.update_latency", *sys.argv[1:]]
        os.execv(sys.executable, again)  # noqa: S606 - there is no shell to be had


if __name__ == "__main__":
    sys.exit(main())
