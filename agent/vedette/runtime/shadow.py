"""The shadow: a candidate in a second worker that reads every camera's frames and answers nobody."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from vedette.engine.messages import Attach
from vedette.engine.priority import Pace
from vedette.frame.ring import available_bytes
from vedette.runtime.departures import retire_unseen
from vedette.runtime.log import Level, LogLine
from vedette.runtime.process_memory import anonymous_bytes
from vedette.runtime.worker_process import WorkerProcess, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from vedette.clock import Clock
    from vedette.runtime.camera import Camera
    from vedette.runtime.health import ShadowHealth
    from vedette.runtime.plan import RunPlan
    from vedette.runtime.restart import Restarts
    from vedette.runtime.results import ResultsThread

SHADOW_SEAT = 1
SHADOW_TRIES = 3
# How long after a frame's arrival the shadow keeps off the CPU: a little longer than the live worker works.
HOLD_FACTOR, HOLD_LEAST_MS, HOLD_MOST_MS = 1.5, 1.0, 25.0


class Shadow:
    """One candidate's worker after another, few of them. All calls come from the supervisor's thread."""

    def __init__(
        self,
        plan: RunPlan,
        *,
        clock: Clock,
        restarts: Restarts,
        results: ResultsThread,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._restarts = restarts
        self._results = results
        self._say = say
        self.worker: WorkerProcess | None = None
        self.bundle: Path | None = None
        self._health: ShadowHealth | None = None
        self._start_at_ns = 0
        self._tries = 0
        self._hold_ns = 0

    def start(self, bundle: Path, health: ShadowHealth, *, live_ms: float) -> WorkerProcess | None:
        """Load this bundle beside the one that serves, which needs `live_ms` for a frame.

        Returns:
            The worker of the shadow before, to be let go.
        """
        before, _ = self.release()
        self.bundle, self._health, self._tries = bundle, health, 0
        self._start_at_ns = self._clock.monotonic_ns()
        self._hold_ns = round(min(HOLD_FACTOR * live_ms + HOLD_LEAST_MS, HOLD_MOST_MS) * 1e6)
        self._restarts.proved_good()  # deaths of another candidate say nothing of this one
        self._results.shadow = health
        self._results.watchers = (*self._results.watchers, health)
        return before

    def release(self) -> tuple[WorkerProcess | None, Path | None]:
        """End the comparison; the worker, if there is one, is the caller's from now on."""
        worker, bundle = self.worker, self.bundle
        if worker is not None:
            worker.seats.clear()  # they were no live seats: no frame in them is owed an answer
        self.worker, self.bundle = None, None
        self._results.shadow = None
        self._results.watchers = tuple(w for w in self._results.watchers if w is not self._health)
        return worker, bundle

    def tick(self, cameras: Iterable[Camera]) -> None:
        """Start, watch, and give it the cameras that it does not read yet."""
        health, worker = self._health, self.worker
        if self.bundle is None or health is None or health.given_up:
            return
        if worker is None:
            if self._clock.monotonic_ns() >= self._start_at_ns:
                self._start(self.bundle, health)
            return
        worker.check()
        if worker.state is WorkerState.READY and worker.ready is not None:
            if health.sha256 is None:
                health.sha256 = worker.ready.model.sha256
                health.begin(memory_bytes=partial(anonymous_bytes, worker.child.pid))
            self._attach(worker, cameras)

    def _start(self, bundle: Path, health: ShadowHealth) -> None:
        if 0 < available_bytes() < self._plan.headroom_bytes:
            self._lost(
                health, f"load_fail: less than {self._plan.headroom_bytes:,} bytes of memory are available"
            )
            return
        spec = replace(self._plan.worker, bundle=str(bundle), pace=Pace.BACKGROUND)
        try:
            self.worker = WorkerProcess(
                spec,
                self._clock,
                load_timeout_s=self._plan.load_timeout_s,
                hang_timeout_s=self._plan.hang_timeout_s,
                say=lambda line: self._say(f"shadow: {line}"),
            )
        except OSError as error:
            self._lost(health, f"load_fail: it could not be started: {error.strerror}")
            return
        self._results.add_worker(self.worker.results)

    def _attach(self, worker: WorkerProcess, cameras: Iterable[Camera]) -> None:
        for camera in cameras:
            ring = camera.ring
            if ring is None or worker.seats.get(camera.name) is ring:
                continue
            attach = Attach(
                camera.name,
                SHADOW_SEAT,
                camera.plan.priority,
                shadow=True,
                every=self._plan.shadow_every,
                hold_ns=self._hold_ns,
            )
            worker.attach(attach, ring)

    def buried(self, status: int) -> None:
        """Its process has ended: a fact about the candidate, and nothing else."""
        worker, health = self.worker, self._health
        if worker is None or health is None:
            return
        worker.listen()
        cause, detail = worker.obituary(status)
        fatal = worker.fatal
        self.worker = None
        retire_unseen(self._results, worker, status)
        if fatal is None and worker.ready is not None:
            self._lost(health, f"{cause.value}: {detail}")
            return
        self._lost(health, f"load_fail: {detail if fatal is None else fatal.cause}", final=fatal is not None)

    def _lost(self, health: ShadowHealth, text: str, *, final: bool = False) -> None:
        health.died(text)
        self._tries += 1
        if final or self._tries >= SHADOW_TRIES:
            health.give_up()
            self._say(LogLine(Level.WARNING, f"shadow: given up ({text})"))
            return
        delay_s = self._restarts.died()
        self._start_at_ns = self._clock.monotonic_ns() + round(delay_s * 1e9)
        self._say(LogLine(Level.WARNING, f"shadow: ended ({text}); next start in {delay_s:.1f} s"))
