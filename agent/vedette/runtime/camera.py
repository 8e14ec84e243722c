"""One camera as the supervisor sees it: its source child, its ring, and whether they do well."""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import UnavailableError, VedetteError, rebuild_error
from vedette.frame.channel import Channel, PeerGoneError, channel_pair
from vedette.frame.layout import RingGeometry
from vedette.frame.ring import Ring, create_ring
from vedette.runtime.child import Child, describe_exit
from vedette.runtime.log import Level, LogLine
from vedette.runtime.restart import pause_text
from vedette.source.messages import (
    Ended,
    FromSource,
    NeedRing,
    Opened,
    RefuseRing,
    Remark,
    SourceFailed,
    StopSource,
    ToSource,
    UseRing,
)
from vedette.source.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.api.door_messages import ToDoor
    from vedette.clock import Clock
    from vedette.runtime.plan import CameraPlan
    from vedette.runtime.restart import Restarts
    from vedette.runtime.ring_budget import RingBudget
    from vedette.source.port import SourceInfo, SourceSpec

SOURCE_MODULE = "vedette.source.child"
DOOR_MODULE = "vedette.api.door"
# A child's interpreter and OpenCV need time to start before the input's own time-out begins.
START_GRACE_S = 10.0
# After that a source that is paused is killed.
PAUSE_WAIT_S = 2.0


class CameraState(str, Enum):
    """Where a camera is in its life."""

    WAITING = "waiting"  # for the next start of its source
    OPENING = "opening"
    HELD = "held"  # open; a lossless source gets its ring when a worker is ready
    RUNNING = "running"
    PAUSED = "paused"  # somebody asked for it; it takes no frames until it is resumed
    ENDED = "ended"
    FAILED = "failed"


class Camera:
    """A camera's source child and ring. All calls come from the supervisor's thread."""

    def __init__(
        self,
        plan: CameraPlan,
        *,
        clock: Clock,
        restarts: Restarts,
        budget: RingBudget,
        say: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.name = plan.name
        self.state = CameraState.WAITING
        self.info: SourceInfo | None = None
        self.error: VedetteError | None = None
        self.fault = ""
        self.ring: Ring | None = None
        self.child: Child | None = None
        self.control: Channel[FromSource] | None = None
        self.restarts = restarts
        self._paused = False
        self._ending_by_ns = 0  # of a child that was told to end, because the camera was paused or changed
        self._next_plan: CameraPlan | None = None
        self.seat_stale = False  # the worker knows another priority or age budget
        self._removed = False
        self._clock = clock
        self._budget = budget
        self._say = say
        self._start_at_ns = clock.monotonic_ns()
        self._opened_by_ns = 0
        self._lent_at_ns = 0
        self.first_lent_ns = 0
        self.head_at_start = 0
        self._wanted_bytes = 0
        self.retired_rings: list[Ring] = []
        self._farewell: SourceFailed | Ended | None = None
        self._killed_for = ""
        self._child_has_ring = False

    @property
    def live(self) -> bool:
        """Newest-wins, as the opened source said."""
        return self.info is not None and self.info.live

    @property
    def over(self) -> bool:
        """No further frame will come."""
        return self.state in {CameraState.ENDED, CameraState.FAILED}

    @property
    def pausable(self) -> bool:
        """Nothing is lost or repeated when its source is started anew later."""
        source = self.plan.source
        if self.plan.door is not None or source.input == "-":
            return False
        return self.live if self.info is not None else source.live is True or self._may_reconnect()

    def pause(self) -> None:
        """Let the source end, and start no other; frames that it gave are answered."""
        if self._paused or self.over:
            return
        self._paused = True
        if self.child is None:
            self.state = CameraState.PAUSED
        else:
            self._ending_by_ns = self._clock.monotonic_ns() + round(PAUSE_WAIT_S * 1e9)
            self.stop()

    def resume(self) -> None:
        """Start the source again."""
        if not self._paused:
            return
        self._paused, self.fault = False, ""
        if self.state is CameraState.PAUSED:
            self.state, self._start_at_ns = CameraState.WAITING, self._clock.monotonic_ns()

    def replan(self, plan: CameraPlan) -> None:
        """Go on by another plan: this source ends and another begins; sequence numbers and counts go on."""
        self._next_plan = plan
        self._end_source()

    def remove(self) -> None:
        """Let the source end for good; frames that it gave are answered."""
        self._next_plan, self._removed = None, True
        self._end_source()

    def readmit(self, plan: CameraPlan) -> None:
        """It was removed, and is back."""
        self._removed = False
        self.replan(plan)

    def _end_source(self) -> None:
        if self.child is None:
            self._source_ended()
        elif not self._ending_by_ns:
            self._ending_by_ns = self._clock.monotonic_ns() + round(PAUSE_WAIT_S * 1e9)
            self.stop()

    def _source_ended(self) -> None:
        """The source was told to end, and has."""
        self._ending_by_ns = 0
        self._start_at_ns = self._clock.monotonic_ns()
        if self._removed:
            self.state, self.fault = CameraState.ENDED, "removed from the configuration"
            return
        if self._next_plan is not None:
            self.plan, self._next_plan = self._next_plan, None
            self.seat_stale = True
            self.info, self.error, self.fault = None, None, ""
        self.state = CameraState.PAUSED if self._paused else CameraState.WAITING

    def tick(self, *, worker_ready: bool) -> None:
        """Start, hold or kill the source as its state and the time say."""
        now_ns = self._clock.monotonic_ns()
        if self._ending_by_ns:
            if now_ns >= self._ending_by_ns:
                self._kill("did not end when it was paused")
        elif self.state is CameraState.WAITING and now_ns >= self._start_at_ns:
            self._start(now_ns)
        elif self.state is CameraState.OPENING and now_ns > self._opened_by_ns:
            self._kill(f"did not open within {self.plan.source.open_timeout_s:g} s")
        elif self.state is CameraState.HELD and self.error is None and (worker_ready or self.live):
            self._give_ring(now_ns)
        elif self.state is CameraState.RUNNING and self.ring is not None:
            self._watch(self.ring, now_ns)

    def _watch(self, ring: Ring, now_ns: int) -> None:
        """Kill a source without a pulse, and forgive earlier losses once this connection gave a frame.

        A source whose producer thinks, or whose reader is slow, keeps its pulse; so a file's decoder that
        hangs is told from a slow pipe. The pulse in the ring may be that of the child before this one.
        """
        if ring.head > self.head_at_start:
            self.restarts.proved_good()
        mute_s = (now_ns - max(ring.producer_pulse_ns, self._lent_at_ns)) / 1e9
        if mute_s > self.plan.source.stall_s:
            self._kill(f"no frame and no sign of life for {self.plan.source.stall_s:g} s")

    def _start(self, now_ns: int) -> None:
        try:
            self._start_child()
        except OSError as error:
            self._try_again(f"its source process could not be started: {error.strerror}")
            return
        self._farewell, self._killed_for, self._child_has_ring = None, "", False
        self.head_at_start = 0 if self.ring is None else self.ring.head
        self._opened_by_ns = now_ns + round((self.plan.source.open_timeout_s + START_GRACE_S) * 1e9)
        self.state = CameraState.OPENING

    def _try_again(self, cause: str) -> None:
        delay_s = self.restarts.died()
        self.fault = cause
        self._start_at_ns = self._clock.monotonic_ns() + round(delay_s * 1e9)
        self.state = CameraState.WAITING
        text = f"{self.name}: {cause}; trying again in {pause_text(delay_s)}"
        self._say(LogLine(Level.WARNING, text))

    def _start_child(self) -> None:
        ours, theirs = channel_pair()
        stdin = 0 if self.plan.source.input == "-" else None
        module, spec = (
            (SOURCE_MODULE, self.plan.source) if self.plan.door is None else (DOOR_MODULE, self.plan.door)
        )
        try:
            arguments = [str(theirs.fileno()), str(os.getpid()), msgspec.json.encode(spec).decode()]
            self.child = Child(module, arguments, pass_fds=(theirs.fileno(),), stdin=stdin)
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.control = Channel(ours, FromSource)

    def listen(self) -> None:
        """Read what the source child says."""
        if self.control is None:
            return
        try:
            while (received := self.control.receive()) is not None:
                self._hear(received[0])
        except PeerGoneError:
            return

    def _hear(self, message: FromSource) -> None:
        if isinstance(message, Opened):
            first = self.info is None
            self.info = message.info
            self._wanted_bytes = message.slot_bytes
            if first:
                self._say(f"{self.name}: {message.info.description}")
                for note in message.info.notes:
                    self._say(f"{self.name}: {note}")
            self.state = CameraState.HELD
            self._check_budget()
        elif isinstance(message, NeedRing):
            self._wanted_bytes = message.slot_bytes
            self.state = CameraState.HELD
        elif isinstance(message, Remark):
            self._say(f"{self.name}: {message.text}")
        else:
            self._farewell = message

    def _check_budget(self) -> None:
        """Refuse a first ring as soon as its size is known, not after a model was loaded for it."""
        if self.ring is None:
            try:
                self._budget.reserve(self.name, self._geometry())
            except VedetteError as error:
                self._refuse(error)

    def _geometry(self) -> RingGeometry:
        return RingGeometry(self.plan.slots, self._wanted_bytes, self.live)

    def _give_ring(self, now_ns: int) -> None:
        """Lend the child a ring that is large enough; the old one must be read out first when lossless."""
        ring = self.ring
        if ring is not None and not self._fits(ring):
            if not self.live and ring.head != ring.taken:
                return
            ring = None
        try:
            if ring is None:
                ring = self._new_ring()
        except VedetteError as error:
            self._refuse(error)
            ring = self.ring
            if ring is None or self._child_has_ring:
                return
        if self.tell(UseRing(), ring.handles.fds):
            self._lent_at_ns = now_ns
            self.first_lent_ns = self.first_lent_ns or now_ns
            self._child_has_ring = True
            self.state, self.fault = CameraState.RUNNING, ""

    def _fits(self, ring: Ring) -> bool:
        """Whether a ring will do for what the source wants, and is what the plan says."""
        have, want = ring.geometry, self._geometry()
        same = (have.slots, have.newest_wins) == (want.slots, want.newest_wins)
        return same and have.slot_bytes >= want.slot_bytes

    def tell(self, message: ToSource | ToDoor, fds: Sequence[int] = ()) -> bool:
        """Send to the child; False when it cannot be told, because it is gone or does not listen."""
        try:
            return self.control is not None and self.control.send(message, fds)
        except PeerGoneError:
            return False  # its end is seen at the next look at its pidfd

    def _new_ring(self) -> Ring:
        geometry = self._geometry()
        self._budget.reserve(self.name, geometry)
        try:
            ring = Ring(create_ring(geometry, name=self.name))
        except UnavailableError:
            if self.ring is not None:
                self._budget.reserve(self.name, self.ring.geometry)
            raise
        if self.ring is not None:
            ring.resume_from(self.ring)
            self.retired_rings.append(self.ring)
        self.ring = ring
        return ring

    def _refuse(self, error: VedetteError) -> None:
        """Without any ring the camera has failed; with an old one, large frames are lost and counted."""
        if self.ring is None:
            self.error = error
            self._kill(error.cause)
            return
        self._say(error.diagnostics())
        if self._child_has_ring and self.tell(RefuseRing(error.cause)):
            self.state = CameraState.RUNNING

    def _kill(self, why: str) -> None:
        if self.child is not None and not self._killed_for:
            self._killed_for = why
            self.child.kill()

    def buried(self, status: int) -> None:
        """The child has ended with `status`: decide what follows."""
        self.listen()
        words = self.child.last_words() if self.child is not None else ""
        self._close_child()
        farewell = self._farewell
        if self._ending_by_ns and (self.error is None or self._next_plan is not None or self._removed):
            self._source_ended()
            return
        if isinstance(farewell, Ended) and self.plan.door is None:
            self.state = CameraState.ENDED
            return
        if self.error is not None:
            self.state = CameraState.FAILED
            return
        if isinstance(farewell, SourceFailed):
            cause, cure, retry, code = farewell.cause, farewell.cure, farewell.retry, farewell.exit_code
        else:
            cause = self._killed_for or f"the source process ended: {describe_exit(status)}"
            if words and not self._killed_for:
                cause = f"{cause}: {words}"
            cure, retry, code = None, True, UnavailableError.exit_code
        if retry and self._may_reconnect():
            self._try_again(cause)
            return
        self.error = rebuild_error(code, cause, cure)
        self.state = CameraState.FAILED

    def _may_reconnect(self) -> bool:
        """A live input can be opened again, and so can the door; a file would repeat or skip frames."""
        if self.plan.door is not None:
            return True
        if self.plan.source.input == "-":
            return False
        if self.info is not None:
            return self.info.live
        return self.plan.source.live is not False and _is_camera(self.plan.source)

    def stop(self) -> None:
        """Ask the source to end."""
        self.tell(StopSource())

    def drop_retired_rings(self) -> None:
        """Unmap rings that were replaced, once the worker has the new one."""
        for ring in self.retired_rings:
            ring.close()
            ring.handles.close()
        self.retired_rings = []

    def _close_child(self) -> None:
        if self.child is not None:
            self.child.close()
            self.child = None
        if self.control is not None:
            self.control.close()
            self.control = None

    def close(self) -> None:
        """Kill the child and give the memory back."""
        self._close_child()
        self.drop_retired_rings()
        if self.ring is not None:
            self.ring.close()
            self.ring.handles.close()
            self.ring = None
        self._budget.release(self.name)


def _is_camera(spec: SourceSpec) -> bool:
    """Whether an input that was never open yet is one that may come up later."""
    try:
        return kind_of(spec)[0] in {"stream", "device"}
    except VedetteError:
        return False
