"""The supervisor: one loop over children, signals and time. It never touches a pixel and never waits for one.

Threads: this one (the process's main thread), the results thread, and companions. Every descriptor it sleeps
on stands in one place, `_watched`; everything that depends on time happens in `_tick`.
"""

from __future__ import annotations

import os
import random
import select
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Protocol

from vedette.errors import InternalError
from vedette.runtime.camera import Camera
from vedette.runtime.door import Door
from vedette.runtime.door_sink import DoorSink
from vedette.runtime.escalation_lines import EscalationLines
from vedette.runtime.escalator import Escalator
from vedette.runtime.generation import Generation, Phase
from vedette.runtime.live import LiveModel
from vedette.runtime.log import Level, LogLine
from vedette.runtime.restart import Restarts
from vedette.runtime.results import ResultsThread
from vedette.runtime.ring_budget import RingBudget
from vedette.runtime.shadow import Shadow
from vedette.runtime.swap import Swap
from vedette.telemetry.ledger import Ledger
from vedette.telemetry.meter import Meter
from vedette.telemetry.window import WindowRecorder
from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.errors import VedetteError
    from vedette.runtime.child import Child
    from vedette.runtime.plan import CameraPlan, RunPlan
    from vedette.runtime.reload import Differences
    from vedette.runtime.sinks import Sink
    from vedette.runtime.worker_process import WorkerProcess

TICK_S = 0.05
ENDING_TICK_S = 0.003
# Together they stay below the three seconds in which the daemon promises to end.
SOURCE_STOP_WAIT_S = 0.7
WORKER_STOP_WAIT_S = 1.5
ASKING_STOP_WAIT_S = 2.2
KILL_WAIT_S = 1.0
FINISH_WAIT_S = 10.0


class Stopping:
    """The reason to end, set from a signal handler or a lost consumer; waking the loop is part of it."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason = ""
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ask(self, reason: str) -> None:
        """Ask for the end; the first reason stays."""
        if not self.event.is_set():
            self.reason = reason
            self.event.set()
        self.poke()

    def close(self) -> None:
        """Give the descriptor back; nobody may ask any more."""
        os.close(self.wake)

    def poke(self) -> None:
        """Wake the loop."""
        os.eventfd_write(self.wake, 1)

    def on_signals(self) -> None:
        """End on SIGINT and SIGTERM; a second one gives up waiting."""

        def handle(number: int, _frame: object) -> None:
            if self.event.is_set():
                raise KeyboardInterrupt
            self.ask(signal.Signals(number).name)

        signal.signal(signal.SIGINT, handle)
        signal.signal(signal.SIGTERM, handle)


class Companion(Protocol):
    """A thread beside the data plane; its death ends the process."""

    name: str
    crash: BaseException | None

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self) -> object:
        """End, within a second; it is told before the children, so that their end means nothing to it."""
        ...


class Daemon:
    """Runs a plan until its inputs end or it is told to stop; the HTTP door is an input that never ends."""

    def __init__(
        self,
        plan: RunPlan,
        *,
        sink: Sink,
        clock: Clock,
        stopping: Stopping,
        say: Callable[[str], None],
        on_tick: Callable[[Daemon], None] | None = None,
    ) -> None:
        names = [camera.name for camera in plan.cameras]
        rng = random.Random()  # noqa: S311 - jitter, not secrets
        self._clock = clock
        self._stopping = stopping
        self._on_tick = on_tick
        self._say = say
        self.ledger = Ledger(names)
        self.meter = Meter(names)
        self.started_ns = clock.monotonic_ns()
        has_door = any(camera.door is not None for camera in plan.cameras)
        # Who asks for figures asks there; nobody else pays for them.
        self.window = WindowRecorder(self.started_ns) if has_door or plan.link is not None else None
        asked = plan.escalation
        self.escalations = None if asked is None else EscalationLines(asked, clock)
        self.results = ResultsThread(
            sink=sink,
            ledger=self.ledger,
            meter=self.meter,
            clock=clock,
            notify=stopping.poke,
            door=DoorSink(clock) if has_door else None,
            window=self.window,
            escalations=self.escalations,
        )
        budget = RingBudget(plan.ring_memory_bytes)

        def make_camera(camera: CameraPlan) -> Camera:
            restarts = Restarts(plan.restart, clock, rng)
            return Camera(camera, clock=clock, restarts=restarts, budget=budget, say=say)

        self._make_camera = make_camera
        self.cameras = [make_camera(camera) for camera in plan.cameras]
        door = next((camera for camera in self.cameras if camera.plan.door is not None), None)
        self.door = None if door is None else Door(door, clock=clock, results=self.results)
        self.generation = Generation(
            plan, clock=clock, restarts=Restarts(plan.restart, clock, rng), results=self.results, say=say
        )
        self.live = LiveModel(clock, stopping.poke, baseline_s=plan.baseline_s)
        shadow = Shadow(
            plan, clock=clock, restarts=Restarts(plan.restart, clock, rng), results=self.results, say=say
        )
        self.swap = Swap(
            plan,
            clock=clock,
            live=self.live,
            generation=self.generation,
            shadow=shadow,
            results=self.results,
            say=say,
        )
        self.escalator = (
            None
            if asked is None
            else Escalator(
                asked,
                clock=clock,
                restarts=Restarts(plan.restart, clock, rng),
                budget=budget,
                results=self.results,
                say=say,
            )
        )
        self._outlives_model = plan.outlives_model
        self.companions: list[Companion] = []

    def take_over(self, changes: Differences) -> None:
        """Carry out what another configuration changes; cameras that it leaves alone notice nothing."""
        known = {camera.name: camera for camera in self.cameras}
        for plan in changes.changed:
            known[plan.name].replan(plan)
        for name in changes.removed:
            known[name].remove()
        for plan in changes.added:
            camera = known.get(plan.name)
            if camera is not None:  # it was removed earlier; its counts go on
                camera.readmit(plan)
                continue
            self.ledger.add(plan.name)
            self.meter.add(plan.name)
            self.cameras.append(self._make_camera(plan))
        if changes.escalation is not None and self.escalator is not None:
            self.results.escalations_by(changes.escalation)
            self.escalator.take_over(changes.escalation)

    def wake(self) -> None:
        """Have the next tick now; any thread may call."""
        self._stopping.poke()

    def run(self) -> VedetteError | None:
        """Serve until the end.

        Returns:
            Why a camera or the model could not be served, or None when all went well.

        Raises:
            InternalError: The results thread, or a companion, died.
        """
        self.results.start()
        try:
            for companion in self.companions:
                companion.start()
            while not self._done():
                self._tick()
                self._sleep()
        finally:
            self._shut_down()
        errors = [self.generation.error, self.results.sink_error, *(c.error for c in self.cameras)]
        return next((error for error in errors if error is not None), None)

    def _done(self) -> bool:
        if self.results.crash is not None:
            raise InternalError(f"the results thread died: {self.results.crash!r}") from self.results.crash
        for companion in self.companions:
            if companion.crash is not None:
                cause = companion.crash
                raise InternalError(f"the {companion.name} thread died: {cause!r}") from cause
        if self.results.sink_error is not None:
            self._stopping.ask(self.results.sink_error.cause)
        if self._stopping.event.is_set():
            return True
        if self.generation.phase is Phase.FAILED and not self._outlives_model:
            return True
        return all(camera.over and self._answered(camera) for camera in self.cameras)

    def _answered(self, camera: Camera) -> bool:
        return camera.ring is None or self.results.accounted(camera.name) >= camera.ring.head

    def _tick(self) -> None:
        for camera in self.cameras:
            camera.tick(worker_ready=self.generation.serving)
        self.generation.tick(self.cameras)
        self.swap.tick(self.cameras)
        if self.escalator is not None:
            self.escalator.tick(self.cameras, self.generation)
        if self.door is not None:
            self.door.tick(self.cameras, self.generation)
        if self._on_tick is not None:
            self._on_tick(self)

    def _watched(self) -> dict[int, Callable[[], None]]:
        """Every descriptor that can wake the loop, and what to do then."""
        watched: dict[int, Callable[[], None]] = {self._stopping.wake: self._woken}
        worker = self.generation.worker
        if worker is not None:
            watched[worker.control.fileno()] = self.generation.listen
            watched[worker.child.stderr_fd] = worker.child.read_stderr
            watched[worker.child.pidfd] = self._bury_worker
        for other in self.swap.others:
            watched[other.control.fileno()] = other.listen
            watched[other.child.stderr_fd] = other.child.read_stderr
            watched[other.child.pidfd] = partial(self._bury_other, other)
        asking = self.escalator
        if asking is not None and asking.child is not None and asking.control is not None:
            watched[asking.control.fileno()] = asking.listen
            watched[asking.child.stderr_fd] = asking.child.read_stderr
            watched[asking.child.pidfd] = partial(self._bury_asking, asking)
        for camera in self.cameras:
            if camera.child is not None and camera.control is not None:
                watched[camera.control.fileno()] = camera.listen
                watched[camera.child.stderr_fd] = camera.child.read_stderr
                watched[camera.child.pidfd] = partial(self._bury_source, camera)
        return watched

    def _sleep(self) -> None:
        watched = self._watched()
        poll = select.poll()
        for fd in watched:
            poll.register(fd, select.POLLIN)
        ending = all(camera.over for camera in self.cameras)
        for fd, _ in poll.poll((ENDING_TICK_S if ending else TICK_S) * 1000):
            watched[fd]()

    def _woken(self) -> None:
        os.eventfd_read(self._stopping.wake)

    def _bury_worker(self) -> None:
        worker = self.generation.worker
        status = worker.child.exited() if worker is not None else None
        if status is not None:
            self.generation.buried(status)

    def _bury_asking(self, asking: Escalator) -> None:
        status = asking.child.exited() if asking.child is not None else None
        if status is not None:
            asking.buried(status)

    def _bury_other(self, worker: WorkerProcess) -> None:
        status = worker.child.exited()
        if status is not None:
            self.swap.buried(worker, status)

    def _bury_source(self, camera: Camera) -> None:
        status = camera.child.exited() if camera.child is not None else None
        if status is None:
            return
        camera.buried(status)
        if camera.error is not None and not all(other.over for other in self.cameras):
            text = f"{camera.error.diagnostics()}\n{camera.name} is given up; the other cameras go on"
            self._say(LogLine(Level.ERROR, text))

    def observe_rings(self) -> dict[str, int]:
        """Bring the rings' counters into the ledger.

        Returns:
            Frames that are published and have no outcome yet, for each camera.
        """
        in_flight: dict[str, int] = {}
        for camera in self.cameras:
            if camera.ring is not None:
                accounted = self.results.accounted(camera.name)
                head = camera.ring.head
                self.ledger.observe_ring(camera.name, head, camera.ring.source_drops())
                in_flight[camera.name] = head - accounted
        return in_flight

    def _shut_down(self) -> None:
        """Sources and worker first, then the results: nothing that was answered is lost."""
        for companion in self.companions:
            companion.stop()
        began_ns = self._clock.monotonic_ns()
        self._skip_unserved()
        for camera in self.cameras:
            camera.stop()
        self.generation.stop()
        self.swap.stop()
        if self.escalator is not None:
            self.escalator.stop()
        self._let_children_end(began_ns)
        for camera in self.cameras:
            if camera.ring is not None:
                self.results.skip_to(camera.name, camera.ring.head, DropCause.SHUTDOWN)
        if not self.results.finish(FINISH_WAIT_S):
            self._say(LogLine(Level.ERROR, "results could not be written in time"))
        self.observe_rings()
        for camera in self.cameras:
            camera.close()

    def _let_children_end(self, began_ns: int) -> None:
        for camera in self.cameras:
            if camera.child is not None:
                self._let_end(camera.child, began_ns, SOURCE_STOP_WAIT_S)
        self._let_workers_end(began_ns)
        if self.escalator is not None:
            left_s = ASKING_STOP_WAIT_S - (self._clock.monotonic_ns() - began_ns) / 1e9
            self.escalator.let_end(max(0.1, left_s))

    def _let_workers_end(self, began_ns: int) -> None:
        """All that serve, will serve or did serve: what they held is accounted for."""
        worker = self.generation.worker
        for ending in (*([] if worker is None else [worker]), *self.swap.others):
            if not self._let_end(ending.child, began_ns, WORKER_STOP_WAIT_S):
                ending.give_up_stopping()
                ending.child.wait(KILL_WAIT_S)
        if worker is not None:
            self.generation.buried(worker.child.exited() or 0)
        self.swap.bury_all()

    def _skip_unserved(self) -> None:
        """What live cameras gave while no worker was up was lost for that reason, not for the end."""
        for camera in self.cameras:
            if not self.generation.serving and camera.live and camera.ring is not None:
                self.results.skip_to(camera.name, camera.ring.head, DropCause.NO_WORKER)

    def active_s(self, camera: Camera, now_ns: int) -> float:
        """How long a camera gave frames; one whose input has ended until its last answer."""
        since_ns = camera.first_lent_ns or self.started_ns
        until_ns = self.results.last_answer_ns.get(camera.name, since_ns) if camera.over else now_ns
        return max(0, until_ns - since_ns) / 1e9

    def _let_end(self, child: Child, began_ns: int, within_s: float) -> bool:
        """Wait for a child that was told to stop; all of them wait at the same time."""
        left_s = within_s - (self._clock.monotonic_ns() - began_ns) / 1e9
        return child.wait(max(0.0, left_s))
