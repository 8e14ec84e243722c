"""The source child process: one camera, decoded straight into the ring.

Started as `python -m vedette.source.child CONTROL_FD PARENT_PID SPEC`. A decoder that hangs or crashes costs
this process and no other; the daemon watches the pulse in the ring's header and starts another.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import TYPE_CHECKING

import msgspec

from vedette.clock import SystemClock
from vedette.errors import SourceLostError, UnavailableError, VedetteError
from vedette.frame.channel import Channel, PeerGoneError
from vedette.frame.cpu_share import put_frames_first
from vedette.frame.lifeline import tie_to_parent
from vedette.frame.producer import RingProducer
from vedette.frame.ring import Ring, RingHandles
from vedette.source.messages import (
    Ended,
    NeedRing,
    Opened,
    RefuseRing,
    Remark,
    SourceFailed,
    StopSource,
    ToSource,
    UseRing,
)
from vedette.source.port import SourceSpec
from vedette.source.registry import open_source
from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.wire.pixels import FrameFormat

# A lossless source gets its ring when the model is ready, which may take an engine build.
RING_TIMEOUT_S = 1800.0
SPACE_WAIT_S = 0.25
MAX_REMARK_CHARS = 1000


class RingSink:
    """The frame sink over a ring; asks the daemon for a larger one when frames outgrow it."""

    def __init__(self, control: Channel[ToSource], clock: Clock) -> None:
        self._control = control
        self._clock = clock
        self._ring: Ring | None = None
        self._producer: RingProducer | None = None
        self._refused_bytes = 0
        self._oversize = False
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """True once the daemon said stop, or is gone."""
        if not self._stopping:
            self._look_for_stop()
        return self._stopping

    def wait_for_ring(self) -> None:
        """Adopt the ring that the daemon sends in answer to Opened or NeedRing.

        Raises:
            UnavailableError: None came in time.
        """
        deadline_ns = self._clock.monotonic_ns() + round(RING_TIMEOUT_S * 1e9)
        while not self._stopping:
            left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0:
                raise UnavailableError(f"the daemon gave no frame ring within {RING_TIMEOUT_S:.0f} s")
            received = self._receive(min(left_s, SPACE_WAIT_S))
            if received is None:
                continue
            message, fds = received
            if isinstance(message, UseRing):
                ring = Ring(RingHandles(fds))
                self._ring, self._producer = ring, RingProducer(ring, self._clock)
                return
            if isinstance(message, RefuseRing):
                return

    def acquire(self, frame_format: FrameFormat) -> memoryview | None:
        """See FrameSink; a frame that no ring can hold is lent scratch memory and counted as `oversize`."""
        frame_bytes = frame_format.frame_bytes
        producer = self._fitting(frame_bytes)
        self._oversize = producer is None
        if producer is None:
            return None if self._stopping else memoryview(bytearray(frame_bytes))
        while not self.stopping:
            memory = producer.try_acquire(frame_format)
            if memory is not None:
                return memory
            producer.wait_for_space(SPACE_WAIT_S)
        return None

    def publish(self, captured_ns: int, file: str = "") -> None:
        """See FrameSink."""
        if self._producer is None:
            return
        if self._oversize:
            self._producer.count_drop(DropCause.OVERSIZE)
            return
        self._producer.publish(captured_ns, file)

    def drop(self, cause: DropCause, count: int = 1) -> None:
        """See FrameSink."""
        if self._producer is not None:
            self._producer.count_drop(cause, count)

    def remark(self, text: str) -> None:
        """See FrameSink; a daemon that does not listen misses a remark, and holds no frame up."""
        with contextlib.suppress(PeerGoneError):
            self._control.send(Remark(text[:MAX_REMARK_CHARS]))

    def alive(self) -> None:
        """See FrameSink."""
        if self._producer is not None:
            self._producer.pulse()

    def end(self) -> None:
        """Mark the ring as complete."""
        if self._producer is not None:
            self._producer.end()

    def _fitting(self, frame_bytes: int) -> RingProducer | None:
        """The producer if its slots are large enough; larger ones are asked for until they are refused."""
        if self._producer is not None and self._producer.fits(frame_bytes):
            return self._producer
        if 0 < self._refused_bytes <= frame_bytes:
            return None
        self._control.send(NeedRing(frame_bytes))
        before = self._producer
        self.wait_for_ring()
        if self._producer is not before:
            return self._producer
        self._refused_bytes = frame_bytes
        return None

    def _look_for_stop(self) -> None:
        received = self._receive(0)
        if received is not None and isinstance(received[0], StopSource):
            self._stopping = True

    def _receive(self, timeout_s: float) -> tuple[ToSource, list[int]] | None:
        try:
            received = self._control.receive(timeout_s)
        except PeerGoneError:
            self._stopping = True
            return None
        if received is not None and isinstance(received[0], StopSource):
            self._stopping = True
        self.alive()
        return received


def run(control: Channel[ToSource], spec: SourceSpec) -> int:
    """Open the input, get a ring, move frames until the end."""
    sink = RingSink(control, SystemClock())
    try:
        source = open_source(spec)
        try:
            control.send(Opened(source.info, source.info.format.frame_bytes))
            sink.wait_for_ring()
            gc.collect()
            gc.freeze()
            while not sink.stopping and source.read(sink):
                pass
        finally:
            source.close()
    except SourceLostError as error:
        control.send(SourceFailed(error.exit_code, error.cause, error.cure, retry=True))
        return error.exit_code
    except VedetteError as error:
        retry = isinstance(error, UnavailableError)
        control.send(SourceFailed(error.exit_code, error.cause, error.cure, retry=retry))
        return error.exit_code
    sink.end()
    control.send(Ended())
    return 0


def main(arguments: list[str]) -> int:
    """Entry of the child process."""
    control_fd, parent_pid = int(arguments[0]), int(arguments[1])
    tie_to_parent(parent_pid)
    put_frames_first()
    spec = msgspec.json.decode(arguments[2], type=SourceSpec)
    control: Channel[ToSource] = Channel.from_fd(control_fd, ToSource)
    try:
        return run(control, spec)
    except PeerGoneError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
