"""One camera as the supervisor sees it: its source child, its ring, and whether they do well."""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import ConfigError, UnavailableError, VedetteError, rebuild_error
from vedette.frame.channel import Channel, PeerGoneError, channel_pair
from vedette.frame.layout import MAX_RING_BYTES, RingGeometry
from vedette.frame.ring import Ring, create_ring
from vedette.runtime.child import Child, describe_exit
from vedette.source.messages import (
    Ended,
    FromSource,
    NeedRing,
    Opened,
    RefuseRing,
    SourceFailed,
    StopSource,
    UseRing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.runtime.plan import CameraPlan
    from vedette.runtime.restart import Restarts
    from vedette.source.port import SourceInfo

SOURCE_MODULE = "vedette.source.child"
# A child's interpreter and OpenCV need time to start before the input's own time-out begins.
START_GRACE_S = 10.0


class CameraState(str, Enum):
    """Where a camera is in its life."""

    WAITING = "waiting"  # for the next start of its source
    OPENING = "opening"
    HELD = "held"  # open; a lossless source gets its ring when a worker is ready
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


class RingBudget:
    """The memory that all rings together may take."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used: dict[str, int] = {}

    def reserve(self, camera: str, geometry: RingGeometry) -> None:
        """Set the memory of a camera's ring aside.

        Raises:
            ConfigError: It is over the limit; the message says how much would be needed.
        """
        others = sum(used for name, used in self._used.items() if name != camera)
        needed = geometry.total_bytes
        if needed > MAX_RING_BYTES or others + needed > self._limit_bytes:
            raise ConfigError(
                f"camera {camera}: its frame ring needs {needed:,} bytes ({geometry.slots} slots of "
                f"{geometry.slot_bytes:,}); {max(0, self._limit_bytes - others):,} of the "
                f"{self._limit_bytes:,} bytes for rings are free",
                cure=f"set limits.ring_memory to at least {others + needed}, or use fewer slots",
            )
        self._used[camera] = needed

    def release(self, camera: str) -> None:
        """Give a camera's memory back."""
        self._used.pop(camera, None)


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
        self.ring: Ring | None = None
        self.child: Child | None = None
        self.control: Channel[FromSource] | None = None
        self.restarts = restarts
        self._clock = clock
        self._budget = budget
        self._say = say
        self._start_at_ns = clock.monotonic_ns()
        self._opened_by_ns = 0
        self._wanted_bytes = 0
        self.retired_rings: list[Ring] = []
        self._farewell: SourceFailed | Ended | None = None
        self._killed_for = ""

    @property
    def live(self) -> bool:
        """Newest-wins, as the opened source said."""
        return self.info is not None and self.info.live

    @property
    def over(self) -> bool:
        """No further frame will come."""
        return self.state in {CameraState.ENDED, CameraState.FAILED}

    def tick(self, *, worker_ready: bool) -> None:
        """Start, hold or kill the source as its state and the time say."""
        now_ns = self._clock.monotonic_ns()
        if self.state is CameraState.WAITING and now_ns >= self._start_at_ns:
            self._start(now_ns)
        elif self.state is CameraState.OPENING and now_ns > self._opened_by_ns:
            self._kill(f"did not open within {self.plan.source.open_timeout_s:g} s")
        elif self.state is CameraState.HELD and (worker_ready or self.live):
            self._give_ring()
        elif self.state is CameraState.RUNNING and self.ring is not None and self.live:
            mute_s = (now_ns - self.ring.producer_pulse_ns) / 1e9
            if mute_s > self.plan.source.stall_s:
                self._kill(f"no frame for {self.plan.source.stall_s:g} s")

    def _start(self, now_ns: int) -> None:
        ours, theirs = channel_pair()
        stdin = 0 if self.plan.source.input == "-" else None
        try:
            arguments = [
                str(theirs.fileno()),
                str(os.getpid()),
                msgspec.json.encode(self.plan.source).decode(),
            ]
            self.child = Child(SOURCE_MODULE, arguments, pass_fds=(theirs.fileno(),), stdin=stdin)
        finally:
            theirs.close()
        self.control = Channel(ours, FromSource)
        self._farewell, self._killed_for = None, ""
        self._opened_by_ns = now_ns + round((self.plan.source.open_timeout_s + START_GRACE_S) * 1e9)
        self.state = CameraState.OPENING

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
        elif isinstance(message, NeedRing):
            self._wanted_bytes = message.slot_bytes
            self.state = CameraState.HELD
        else:
            self._farewell = message

    def _give_ring(self) -> None:
        """Lend the child a ring that is large enough; the old one must be read out first when lossless."""
        ring = self.ring
        if ring is not None and ring.geometry.slot_bytes < self._wanted_bytes:
            if not self.live and ring.head != ring.taken:
                return
            ring = None
        try:
            if ring is None:
                ring = self._new_ring()
        except VedetteError as error:
            self._refuse(error)
            return
        if self.control is not None and self.control.send(UseRing(), ring.handles.fds):
            self.state = CameraState.RUNNING

    def _new_ring(self) -> Ring:
        geometry = RingGeometry(self.plan.slots, self._wanted_bytes, self.live)
        self._budget.reserve(self.name, geometry)
        ring = Ring(create_ring(geometry, name=self.name))
        if self.ring is not None:
            ring.resume_from(self.ring)
            self.retired_rings.append(self.ring)
        self.ring = ring
        return ring

    def _refuse(self, error: VedetteError) -> None:
        """Without any ring the camera has failed; with an old one, large frames are lost and counted."""
        self._say(error.diagnostics())
        if self.ring is None:
            self.error = error
            self._kill(error.cause)
        elif self.control is not None and self.control.send(RefuseRing(error.cause)):
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
        if isinstance(farewell, Ended):
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
            delay_s = self.restarts.died()
            self._start_at_ns = self._clock.monotonic_ns() + round(delay_s * 1e9)
            self.state = CameraState.WAITING
            self._say(f"{self.name}: {cause}; trying again in {delay_s:.1f} s")
            return
        self.error = rebuild_error(code, cause, cure)
        self.state = CameraState.FAILED

    def _may_reconnect(self) -> bool:
        """A live input can be opened again; a file or pipe would repeat or skip frames silently."""
        if self.plan.source.input == "-":
            return False
        if self.info is not None:
            return self.info.live
        return self.plan.source.live is not False and "://" in self.plan.source.input

    def frame_seen(self) -> None:
        """A frame came through: the next loss starts from the shortest delay."""
        self.restarts.proved_good()

    def stop(self) -> None:
        """Ask the source to end."""
        if self.control is not None:
            try:
                self.control.send(StopSource())
            except PeerGoneError:
                return

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
