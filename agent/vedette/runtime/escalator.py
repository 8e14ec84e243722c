"""The asking process as the supervisor sees it: started again when it dies, fed with the live worker's cases.

Nothing here waits for it, and no frame does. While it is away the worker has no ring to put frames into, and
every escalation that is open ends as declined(stopped).
"""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.api.door_messages import DOOR
from vedette.engine.case_writer import slot_bytes_for
from vedette.errors import BadInputError, UnavailableError
from vedette.escalate.messages import (
    Concluded,
    EscalatorEvent,
    EscalatorFigures,
    EscalatorReady,
    Feed,
    FromEscalator,
    NewSetting,
    StopEscalating,
    begin,
)
from vedette.frame.channel import Channel, PeerGoneError, channel_pair
from vedette.frame.layout import RingGeometry
from vedette.frame.ring import create_ring
from vedette.runtime.child import Child, describe_exit
from vedette.runtime.escalation_status import joined
from vedette.runtime.log import Level, LogLine
from vedette.runtime.restart import pause_text
from vedette.source.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vedette.clock import Clock
    from vedette.gate.setting import GateSetting
    from vedette.runtime.camera import Camera
    from vedette.runtime.generation import Generation
    from vedette.runtime.plan import EscalationPlan
    from vedette.runtime.restart import Restarts
    from vedette.runtime.results import ResultsThread
    from vedette.runtime.ring_budget import RingBudget
    from vedette.runtime.worker_process import WorkerProcess

ASKING_MODULE = "vedette.escalate.child"
READY_WITHIN_S = 60.0
REPLACED_WITHIN_S = 3.0
# One that served this long has proved that the last death was no habit.
PROVED_GOOD_S = 30.0
# The asking process copies a case out in about a millisecond; more slots only hide that it does not.
SLOTS, LEAST_SLOTS = 4, 2
NO_ROOM_AGAIN_S = 30.0
# An exit that no restart mends: its configuration is wrong.
EXIT_CONFIG = 78


class AskingState(str, Enum):
    """Where the asking process is in its life."""

    RESTING = "resting"  # waiting for the next start
    STARTING = "starting"
    READY = "ready"


class Fed(NamedTuple):
    """Whose cases go where."""

    worker: WorkerProcess
    geometry: RingGeometry


class Escalator:
    """Supervises one process after another. All calls come from the supervisor's thread."""

    def __init__(
        self,
        plan: EscalationPlan,
        *,
        clock: Clock,
        restarts: Restarts,
        budget: RingBudget,
        results: ResultsThread,
        say: Callable[[str], None],
    ) -> None:
        self._replaced = False
        self._use(plan)
        self._clock = clock
        self._budget = budget
        self._results = results
        self._say = say
        self.restarts = restarts
        self.state = AskingState.RESTING
        self.child: Child | None = None
        self.control: Channel[FromEscalator] | None = None
        self._figures = EscalatorFigures()
        self._before = EscalatorFigures()
        self.on_event: Callable[[EscalatorEvent], None] | None = None
        self.fault = ""
        self._start_at_ns = clock.monotonic_ns()
        self._since_ns = 0
        self._fed: Fed | None = None
        self._setting: GateSetting | None = None
        self._set: tuple[WorkerProcess, int] | None = None
        self._no_room_until_ns = 0
        self._stop_by_ns = 0

    def _use(self, plan: EscalationPlan) -> None:
        quiet = (*plan.config.quiet, DOOR)  # what somebody asked at the HTTP door is his affair
        config = msgspec.structs.replace(plan.config, quiet=quiet)
        self.quiet = frozenset(quiet)
        self.model = f"{config.model} at {redact_url(config.url)}"
        self._spec, self._begin = begin(config, state_dir=plan.state_dir, device=plan.device, site=plan.site)

    def take_over(self, plan: EscalationPlan) -> None:
        """Ask by another plan: this process puts down what it has, and another one begins."""
        self._use(plan)
        if self.child is None:
            self._start_at_ns = self._clock.monotonic_ns()
            return
        self._replaced = True
        self._stop_by_ns = self._clock.monotonic_ns() + round(REPLACED_WITHIN_S * 1e9)
        self.stop()

    @property
    def totals(self) -> EscalatorFigures:
        """The newest figures, with the counters of every process that there was."""
        return joined(self._before, self._figures)

    def tick(self, cameras: Iterable[Camera], generation: Generation) -> None:
        """Start, watch, and feed it."""
        now_ns = self._clock.monotonic_ns()
        if self.state is AskingState.RESTING:
            if now_ns >= self._start_at_ns:
                self._start(now_ns)
        elif self.state is AskingState.STARTING:
            if self.child is not None and now_ns - self._since_ns > READY_WITHIN_S * 1e9:
                self.fault = f"it was not ready within {READY_WITHIN_S:.0f} s"
                self.child.kill()
        elif self._replaced:
            if self.child is not None and now_ns > self._stop_by_ns:
                self.child.kill()
            return
        elif now_ns - self._since_ns > PROVED_GOOD_S * 1e9:
            self.restarts.proved_good()
        worker = generation.worker if generation.serving and not generation.paused else None
        if worker is not None and self.state is AskingState.READY:
            self._feed(worker, generation.spec.bundle, cameras, now_ns)
            self._pass_setting(worker)

    # Its life ---------------------------------------------------------------------------------------------

    def _start(self, now_ns: int) -> None:
        ours, theirs = channel_pair()
        try:
            self.child = Child(
                ASKING_MODULE,
                [str(theirs.fileno()), str(os.getpid()), msgspec.json.encode(self._spec).decode()],
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            ours.close()
            self._try_again(f"it could not be started: {error.strerror}", status=None)
            return
        finally:
            theirs.close()
        self.control = Channel(ours, FromEscalator)
        self.state, self._since_ns, self.fault = AskingState.STARTING, now_ns, ""
        try:
            self.control.send(self._begin)
        except PeerGoneError:
            return  # its end is seen at its pidfd

    def buried(self, status: int) -> None:
        """The process has ended: what it said is read, what it held ends."""
        self.listen()
        words = "" if self.child is None else self.child.last_words()
        text = self.fault or describe_exit(status)
        self._forget()
        if self._replaced:
            self._replaced, self.state = False, AskingState.RESTING
            self._start_at_ns = self._clock.monotonic_ns()
            return
        self._try_again(f"{text}: {words}" if words else text, status=status)

    def _forget(self) -> None:
        if self._fed is not None:
            _tell_nobody(self._fed.worker)
        self._fed = self._set = None
        self._budget.take_back()
        self._results.escalations_asked(on=False)
        self._before, self._figures = self.totals, EscalatorFigures(promise=self._figures.promise)
        if self.child is not None:
            self.child.close()
        if self.control is not None:
            self.control.close()
        self.child = self.control = None

    def _try_again(self, cause: str, *, status: int | None) -> None:
        delay_s = self.restarts.died()
        if status == EXIT_CONFIG:
            delay_s = max(delay_s, NO_ROOM_AGAIN_S)
        self.fault = cause
        self.state = AskingState.RESTING
        self._start_at_ns = self._clock.monotonic_ns() + round(delay_s * 1e9)
        text = f"escalation: the asking process ended ({cause}); next start in {pause_text(delay_s)}"
        self._say(LogLine(Level.WARNING, text))

    # What it says -----------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Read what it says."""
        if self.control is None:
            return
        try:
            while (received := self.control.receive()) is not None:
                self._heard(received[0])
        except PeerGoneError:
            return  # its end is seen at its pidfd
        except BadInputError as error:
            self._say(LogLine(Level.ERROR, f"escalation: {error.cause}"))

    def _heard(self, message: FromEscalator) -> None:
        if isinstance(message, Concluded):
            self._results.escalations_ended(message.results)
        elif isinstance(message, EscalatorFigures):
            self._figures = message
        elif isinstance(message, NewSetting):
            self._setting = message.setting
        elif isinstance(message, EscalatorEvent):
            if self.on_event is not None:
                self.on_event(message)
            self._say(f"escalation: {message.word}: {message.detail}")
        elif isinstance(message, EscalatorReady):
            self.state, self._since_ns = AskingState.READY, self._clock.monotonic_ns()

    # Cases ------------------------------------------------------------------------------------------------

    def _feed(self, worker: WorkerProcess, bundle: str, cameras: Iterable[Camera], now_ns: int) -> None:
        """Let the cases of this worker go to the process, through a ring with room for every camera."""
        frame_bytes = max(
            (
                camera.ring.geometry.slot_bytes
                for camera in cameras
                if camera.ring is not None and camera.name not in self.quiet
            ),
            default=0,
        )
        fed = self._fed
        recalled = fed is not None and self._budget.lent_bytes < fed.geometry.total_bytes
        same = (
            fed is not None
            and fed.worker is worker
            and fed.geometry.slot_bytes >= slot_bytes_for(frame_bytes)
        )
        if frame_bytes == 0 or (same and not recalled) or now_ns < self._no_room_until_ns:
            return
        if recalled and fed is not None:
            _tell_nobody(fed.worker)
        self._budget.take_back()
        geometry = self._room_for(slot_bytes_for(frame_bytes))
        if geometry is None or not self._connect(worker, bundle, geometry):
            self._fed = None
            self._budget.take_back()
            return
        self._fed = Fed(worker, geometry)
        self._results.escalations_asked(on=True)

    def _room_for(self, slot_bytes: int) -> RingGeometry | None:
        """As many slots as the memory that cameras leave allows."""
        for slots in range(SLOTS, LEAST_SLOTS - 1, -1):
            geometry = RingGeometry(slots, slot_bytes, newest_wins=False)
            if self._budget.lend(geometry.total_bytes):
                return geometry
        self._no_room(f"cameras leave no room in `limits.ring_memory` for frames of {slot_bytes:,} bytes")
        return None

    def _connect(self, worker: WorkerProcess, bundle: str, geometry: RingGeometry) -> bool:
        ready = worker.ready
        if ready is None or self.control is None:
            return False
        try:
            handles = create_ring(geometry, name="cases")
        except UnavailableError as error:
            self._no_room(error.cause)
            return False
        try:
            return self.control.send(
                Feed(ready.model, ready.model_sha256, bundle), handles.fds
            ) and worker.send_cases(handles.fds)
        except PeerGoneError:
            return False
        finally:
            handles.close()

    def _no_room(self, cause: str) -> None:
        self._no_room_until_ns = self._clock.monotonic_ns() + round(NO_ROOM_AGAIN_S * 1e9)
        self._say(LogLine(Level.WARNING, f"escalation: {cause}; unsure frames stay here for now"))

    def _pass_setting(self, worker: WorkerProcess) -> None:
        setting = self._setting
        if setting is None or self._set == (worker, setting.number):
            return
        if worker.send_setting(setting):
            self._set = worker, setting.number

    # The end ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask it to put down what waits."""
        if self.control is None:
            return
        try:
            self.control.send(StopEscalating())
        except PeerGoneError:
            return

    def let_end(self, within_s: float) -> None:
        """Read what it says until it has ended, or the time is over."""
        deadline_ns = self._clock.monotonic_ns() + round(within_s * 1e9)
        while self.control is not None and self.child is not None:
            left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0:
                self.child.kill()
                break
            try:
                received = self.control.receive(left_s)
            except (PeerGoneError, BadInputError):
                break
            if received is not None:
                self._heard(received[0])
        if self.child is not None:
            self.listen()
            self.child.close()
        if self.control is not None:
            self.control.close()
        self.child = self.control = None


def _tell_nobody(worker: WorkerProcess) -> None:
    """Frames of this worker stay here."""
    worker.send_cases(())
