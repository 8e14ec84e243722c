"""The serving model generation: one worker process after another, under a restart budget."""

from __future__ import annotations

import errno
import os
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from vedette.engine.messages import Attach, WorkerSpec
from vedette.engine.priority import Pace
from vedette.errors import UnavailableError, rebuild_error
from vedette.runtime.log import Level, LogLine
from vedette.runtime.restart import pause_text
from vedette.runtime.results import Retired, Seat
from vedette.runtime.worker_process import WorkerProcess, WorkerState
from vedette.wire.causes import DropCause
from vedette.wire.messages import ModelRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vedette.clock import Clock
    from vedette.engine.messages import Ready
    from vedette.errors import VedetteError
    from vedette.frame.ring import Ring
    from vedette.runtime.camera import Camera
    from vedette.runtime.plan import RunPlan
    from vedette.runtime.restart import Restarts
    from vedette.runtime.results import ResultsThread

LIVE_SEAT = 0
# What a system says that has no descriptor left, and what it has no process for.
_NO_DESCRIPTOR = os.strerror(errno.EMFILE), os.strerror(errno.ENFILE)
_NO_PROCESS = os.strerror(errno.EAGAIN)
# A worker that served this long without dying has proved that the last death was no habit.
PROVED_GOOD_S = 30.0
# When to look again for a model that loads, and for one that only an update can replace.
LOADING_LOOK_S, FAILED_LOOK_S = 1.0, 30.0


class Phase(str, Enum):
    """What the generation is doing."""

    RUNNING = "running"  # a process exists: loading or ready
    ACCOUNTING = "accounting"  # it died; its last results are being read
    RESTING = "resting"  # waiting for the next start
    FAILED = "failed"  # the model cannot be served


class Heir(NamedTuple):
    """Who serves after a death: a worker that is ready, or None and the bundle is loaded anew."""

    spec: WorkerSpec
    worker: WorkerProcess | None


class Succession(Protocol):
    """Whoever knows of other workers than the one that serves."""

    def died(self, text: str, /) -> None:
        """The serving worker ended unasked."""
        ...

    def heir(self) -> Heir | None:
        """Who takes over now that the dead worker is accounted for; None starts the same model again."""
        ...


class Generation:
    """Keeps one model served. All calls come from the supervisor's thread, but `_accounted_for`.

    While `paused`, cameras are changing hands and somebody else attaches them.
    """

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
        self._results = results
        self._say = say
        self.restarts = restarts
        self.spec = plan.worker
        self.paused = False
        self._starts_lost = 0
        self.succession: Succession | None = None
        self.phase = Phase.RESTING
        self.worker: WorkerProcess | None = None
        self.ready: Ready | None = None
        self.error: VedetteError | None = None
        self._start_at_ns = clock.monotonic_ns()
        self._ready_since_ns = 0
        self._accounted = False
        self._detail = ""
        self._lost_rings: list[Ring] = []

    @property
    def serving(self) -> bool:
        """A worker is ready for frames."""
        return self.worker is not None and self.worker.state is WorkerState.READY

    @property
    def fault(self) -> str:
        """Why a worker ended last; empty when none did."""
        return self._detail

    def tick(self, cameras: Iterable[Camera]) -> None:
        """Start, watch, or account, as the phase says; attach cameras that the worker does not serve yet."""
        now_ns = self._clock.monotonic_ns()
        if self.phase is Phase.RESTING and now_ns >= self._start_at_ns:
            self._start()
        elif self.phase is Phase.RUNNING and self.worker is not None:
            self.worker.check()
            if self.serving:
                if not self.paused:
                    self._attach(cameras)
                if now_ns - self._ready_since_ns > PROVED_GOOD_S * 1e9:
                    self.restarts.proved_good()
        elif self.phase is Phase.ACCOUNTING and self._accounted:
            self._after_accounting(cameras)

    def _start(self) -> None:
        try:
            self.worker = WorkerProcess(
                self.spec,
                self._clock,
                load_timeout_s=self._plan.load_timeout_s,
                hang_timeout_s=self._plan.hang_timeout_s,
                say=self._say,
            )
        except OSError as error:
            self._detail = f"it could not be started: {error.strerror}"
            self._plan_next_start()
            return
        self._results.add_worker(self.worker.results)
        self.phase = Phase.RUNNING

    def listen(self) -> None:
        """Read what the worker says."""
        worker = self.worker
        if worker is None:
            return
        was_ready = worker.state is WorkerState.READY
        worker.listen()
        if worker.state is WorkerState.READY and not was_ready:
            self._ready_since_ns = self._clock.monotonic_ns()
            self.ready = worker.ready
            self._starts_lost = 0

    def _attach(self, cameras: Iterable[Camera]) -> None:
        worker = self.worker
        if worker is None:
            return
        for camera in cameras:
            ring = camera.ring
            if ring is None or (worker.seats.get(camera.name) is ring and not camera.seat_stale):
                continue
            first = camera.name not in worker.seats
            if first and camera.live and ring.head > 0:
                # What came while nobody served is lost to the newest frame; say so under its own name.
                self._results.skip_to(camera.name, ring.head - 1, DropCause.NO_WORKER)
            seat_live(worker, camera, ring)

    def buried(self, status: int) -> None:
        """The worker process has ended: read it out, account for the frames it had, then decide."""
        worker = self.worker
        if worker is None:
            return
        self.listen()
        cause, detail = worker.obituary(status)
        fatal = worker.fatal
        if fatal is not None and self.ready is None:
            self.error = rebuild_error(fatal.exit_code, fatal.cause, fatal.cure)
        elif fatal is not None:
            detail = fatal.cause
        self._accounted = False
        model, task = (self.ready.model, self.ready.task) if self.ready else (ModelRef("", "", ""), "")
        seats = [Seat(name, ring.taken) for name, ring in worker.seats.items()]
        self._lost_rings = list(worker.seats.values())
        if self.succession is not None:
            self.succession.died(f"{'load_fail' if fatal is not None else cause.value}: {detail}")
        self._results.retire_worker(
            Retired(worker.results, seats, cause, detail, model, task, worker.held, self._accounted_for)
        )
        self._detail = detail
        worker.close()
        self.worker = None
        self.phase = Phase.ACCOUNTING

    def _accounted_for(self) -> None:
        """Called by the results thread."""
        self._accounted = True

    def _after_accounting(self, cameras: Iterable[Camera]) -> None:
        for ring in self._lost_rings:
            ring.revoke(LIVE_SEAT)
        self._lost_rings = []
        heir = None if self.succession is None else self.succession.heir()
        if heir is not None:
            self.take_over(heir)
            self.tick(cameras)
            return
        if self.error is not None:
            self.phase = Phase.FAILED
            return
        self._plan_next_start()

    def _plan_next_start(self) -> None:
        delay_s = self.restarts.died()
        self._starts_lost += 1
        if self.ready is None and self._starts_lost > self._plan.restart.budget:
            self.error = UnavailableError(
                f"the engine worker ended {self._starts_lost} times before it was ready: {self._detail}",
                cure=_cure(self._detail),
            )
            self.phase = Phase.FAILED
            return
        text = f"engine worker ended ({self._detail}); next start in {pause_text(delay_s)}"
        self._say(LogLine(Level.WARNING, text))
        self._start_at_ns = self._clock.monotonic_ns() + round(delay_s * 1e9)
        self.phase = Phase.RESTING

    def take_over(self, heir: Heir) -> WorkerProcess | None:
        """Let another worker serve, or another bundle be loaded.

        Returns:
            The worker that served until now, which is the caller's from now on; its cameras are already gone.
        """
        before = self.worker
        self.spec = replace(heir.spec, pace=Pace.NORMAL)
        self.worker, self.error, self._starts_lost = heir.worker, None, 0
        if heir.worker is None:
            self.ready, self.phase = None, Phase.RESTING
            self._start_at_ns = self._clock.monotonic_ns()
        else:
            self.ready, self.phase = heir.worker.ready, Phase.RUNNING
            self._ready_since_ns = self._clock.monotonic_ns()
        return before

    def waits_for(self, now_ns: int) -> tuple[str, float]:
        """Why no worker is ready, and in how many seconds it makes sense to look again."""
        if self.phase is Phase.FAILED and self.error is not None:
            return f"the model cannot be served: {self.error.cause}", FAILED_LOOK_S
        if self.worker is not None:
            return f"loading: {self.worker.progress}", LOADING_LOOK_S
        if not self._detail:
            return "starting", LOADING_LOOK_S
        pause_s = max(0.0, (self._start_at_ns - now_ns) / 1e9)
        return f"the engine worker ended ({self._detail}) and is started again", LOADING_LOOK_S + pause_s

    def stop(self) -> None:
        """Ask the worker to finish."""
        if self.worker is not None:
            self.worker.stop()


def seat_live(worker: WorkerProcess, camera: Camera, ring: Ring) -> bool:
    """Give a worker a camera to answer; False when it cannot be told just now."""
    attach = Attach(
        camera.name,
        LIVE_SEAT,
        camera.plan.priority,
        camera.plan.max_age_ns(live=camera.live),
        reuse=camera.plan.reuse,
    )
    if not worker.attach(attach, ring):
        return False
    camera.seat_stale = False
    camera.drop_retired_rings()
    return True


def _cure(detail: str) -> str:
    """What helps against a worker that never got ready."""
    if any(words in detail for words in _NO_DESCRIPTOR):
        return "allow more open files (`LimitNOFILE=` in a unit, `ulimit -n` in a shell)"
    if _NO_PROCESS in detail:
        return "allow more processes (`TasksMax=` in a unit, `ulimit -u` in a shell)"
    return "run `vedette-agent probe` on the bundle to see where it fails"
