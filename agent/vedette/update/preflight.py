"""Carries out Preflight: the candidate is loaded and tried in a child process, where it may do what it likes.

Only gross faults are found here; how fast and how right it is on live frames, shadow and trial decide. So the
budget of time is wide: the child runs at the lowest priority beside the model that serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.engine.accelerator import CPU
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.effects_making import death_cause
from vedette.update.jobs import Limits, Wait
from vedette.update.preflight_child import Loaded, Step, Trial, Unfit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.engine.messages import WorkerSpec
    from vedette.update.jobs import Ended, Job, RunChild
    from vedette.update.ports import WindowStats
    from vedette.wire.release import ReleaseManifest
    from vedette.wire.rollout import Guards

PREFLIGHT_MODULE = "vedette.update.preflight_child"
RUNS = 15
SLOW_FACTOR = 4.0  # beside the rollout's own limit
SLOW_FLOOR_MS = 20.0
MIN_BASELINE_FRAMES = 30
CPU_S = 3600
MB = 1_000_000
MIN_MEMORY_BYTES = 512 * MB
ADDRESS_SLACK_BYTES = 2 << 30
HEADROOM_BYTES = 64 << 20
MEMORY_WAIT_S = 60.0
MEMORY_WAITS = 30


class Preflight:
    """Tries bundles; `available_bytes` is what can be had without swapping, 0 when nobody knows.

    `production` says on which accelerator the model that serves runs, None when nobody knows.
    """

    def __init__(
        self,
        worker: WorkerSpec,
        *,
        run_child: RunChild,
        timeout_s: float,
        available_bytes: Callable[[], int],
        production: Callable[[], str | None],
    ) -> None:
        self._worker = worker
        self._run_child = run_child
        self._timeout_s = timeout_s
        self._available_bytes = available_bytes
        self._production = production

    def run(self, bundle: Path, manifest: ReleaseManifest, *, guards: Guards, baseline: WindowStats) -> Job:
        """Try a bundle of the store; every way in which it can end is a verdict."""
        for _ in range(MEMORY_WAITS):
            if self._fits(manifest):
                break
            yield Wait(MEMORY_WAIT_S)
        else:
            return ev.WorkFailed(Cause.OOM, f"{manifest.needs.memory_mb} MB were not free for half an hour")
        memory_bytes = max(2 * manifest.needs.memory_mb * MB, MIN_MEMORY_BYTES)
        on_cpu = set(self._worker.accelerators) <= {CPU}
        limits = Limits(
            self._timeout_s, CPU_S, memory_bytes, memory_bytes + ADDRESS_SLACK_BYTES if on_cpu else 0
        )
        spec = msgspec.json.encode(Trial(msgspec.structs.replace(self._worker, bundle=str(bundle)), RUNS))
        ended = yield from self._run_child(PREFLIGHT_MODULE, spec, limits, lambda _line: None)
        return judge(
            ended, manifest, guards=guards, baseline=baseline, production=self._production(), limits=limits
        )

    def _fits(self, manifest: ReleaseManifest) -> bool:
        available = self._available_bytes()
        return available == 0 or available >= manifest.needs.memory_mb * MB + HEADROOM_BYTES


def judge(
    ended: Ended,
    manifest: ReleaseManifest,
    *,
    guards: Guards,
    baseline: WindowStats,
    production: str | None,
    limits: Limits,
) -> ev.PreflightPassed | ev.PreflightFailed:
    """The verdict on what a child told, or on how it died. Pure."""
    told = [_message(line) for line in ended.lines]
    last = next((message for message in reversed(told) if isinstance(message, (Loaded, Unfit))), None)
    if last is None or ended.broke:
        steps = [message.line for message in told if isinstance(message, Step)]
        return ev.PreflightFailed(death_cause(ended), _epitaph(ended, steps, limits))
    if isinstance(last, Unfit):
        return ev.PreflightFailed(last.cause, last.detail)
    if (last.name, last.version, last.sha256) != (manifest.name, manifest.version, manifest.bundle_sha256):
        return ev.PreflightFailed(
            Cause.BAD_METADATA,
            f"the bundle says that it is {last.name} {last.version}, the release says {manifest.name} "
            f"{manifest.version}",
        )
    return _in_budget(last, guards, baseline, production)


def _in_budget(
    loaded: Loaded,
    guards: Guards,
    baseline: WindowStats,
    production: str | None,
) -> ev.PreflightPassed | ev.PreflightFailed:
    if production is not None and loaded.accelerator != production:
        return ev.PreflightFailed(
            Cause.PREFLIGHT_BUDGET,
            f"it runs on {loaded.accelerator}; the model that serves runs on {production}",
        )
    if baseline.frames >= MIN_BASELINE_FRAMES and baseline.p95_ms is not None:
        limit_ms = max(SLOW_FACTOR * guards.latency_ratio * baseline.p95_ms, SLOW_FLOOR_MS)
        if loaded.run_ms > limit_ms:
            return ev.PreflightFailed(
                Cause.PREFLIGHT_BUDGET,
                f"an answer takes {loaded.run_ms:.1f} ms; {limit_ms:.1f} ms is the most beside a p95 of "
                f"{baseline.p95_ms:.1f} ms",
            )
    return ev.PreflightPassed()


def _message(line: bytes) -> Step | Loaded | Unfit | None:
    try:
        return msgspec.json.decode(line, type=Step | Loaded | Unfit)
    except msgspec.DecodeError:  # cut by its death
        return None


def _epitaph(ended: Ended, steps: list[str], limits: Limits) -> str:
    """How it died, doing what."""
    if ended.broke == "time":
        how = f"no end after {limits.wall_s:.0f} s"
    elif ended.broke == "memory":
        how = f"more than {limits.memory_bytes // MB} MB of memory"
    elif ended.status < 0:
        how = f"killed by signal {-ended.status}"
    else:
        how = f"exit status {ended.status}"
    doing = f", while {steps[-1]}" if steps else ""
    said = f": {ended.last_words}" if ended.last_words else ""
    return f"{how}{doing}{said}"
