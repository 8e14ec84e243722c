"""Motion JPEG from a pipe or file: whole pictures are handed on, damaged ones are counted (casebook 17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.clock import Clock, SystemClock
from vedette.errors import BadInputError, FrameError
from vedette.source.decoding import copy_into, decode_picture
from vedette.source.jpegstream import Chunk, JpegScanner
from vedette.source.pacing import RateCap
from vedette.source.port import SourceInfo, SourceSpec
from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from vedette.source.byteio import FdReader
    from vedette.source.decoding import Pixels
    from vedette.source.port import FrameSink
    from vedette.wire.pixels import FrameFormat

READ_BYTES = 256 << 10
# A stream that shows nothing good in so many pieces is not the stream it was declared to be.
MAX_DAMAGED_AT_OPEN = 50


class MjpegSource:
    """Pictures of an MJPEG stream, bare or multipart; EXIF orientation goes into the format."""

    def __init__(
        self, reader: FdReader, spec: SourceSpec, *, description: str, clock: Clock | None = None
    ) -> None:
        """Read up to the first good picture.

        Raises:
            BadInputError: There is none in what came.
            SourceLostError: None came within `open_timeout_s`.
        """
        live = bool(spec.live)
        self._reader = reader
        self._clock = clock or SystemClock()
        self._scanner = JpegScanner()
        self._block = memoryview(bytearray(READ_BYTES))
        self._cap = RateCap(spec.fps if live else 0.0)
        self._ended = False
        self._owed: list[DropCause] = []
        self._first: tuple[FrameFormat, Pixels, int] | None = self._find_first(spec)
        notes: tuple[str, ...] = ()
        if spec.fps and not live:
            notes = ("the fps cap is not applied: MJPEG carries no time; set `live: true` to cap arrivals",)
        self.info = SourceInfo(
            format=self._first[0], live=live, fps=0.0, description=description, notes=notes
        )

    def _find_first(self, spec: SourceSpec) -> tuple[FrameFormat, Pixels, int]:
        began_ns = self._clock.monotonic_ns()
        fault = "it is empty"
        while len(self._owed) < MAX_DAMAGED_AT_OPEN:
            left_s = spec.open_timeout_s - (self._clock.monotonic_ns() - began_ns) / 1e9
            chunk = self._next_chunk(None, limit_s=max(0.0, left_s))
            if chunk is None:
                break
            try:
                return (*_decode(chunk), self._reader.last_byte_ns)
            except FrameError as error:
                fault = error.cause
                self._owed.append(DropCause.SHORT if chunk.cut else DropCause.DAMAGED)
        raise BadInputError(
            f"mjpeg: no whole JPEG picture in {self._reader.name}; the last fault: {fault}",
            cure="check that the producer writes JPEG pictures one after the other: ffmpeg ... -f mjpeg",
        )

    def read(self, sink: FrameSink) -> bool:
        """Move one picture, or count one that is damaged or above the cap.

        Raises:
            SourceLostError: A live pipe was mute for too long, or reading failed.
        """
        if self._owed:
            sink.drop(self._owed.pop(0))
            return True
        if self._first is not None:
            picture, self._first = self._first, None
            self._cap.admits(picture[2])
            return _hand_on(sink, *picture)
        chunk = self._next_chunk(sink)
        if chunk is None:
            return False
        captured_ns = self._reader.last_byte_ns
        if not chunk.fault and not self._cap.admits(captured_ns):
            sink.drop(DropCause.RATE)  # every picture stands alone, so it need not be decoded first
            return True
        try:
            frame_format, pixels = _decode(chunk)
        except FrameError:
            sink.drop(DropCause.SHORT if chunk.cut else DropCause.DAMAGED)
            if chunk.cut:
                sink.remark(f"the input ended inside a picture, after {len(chunk.data):,} bytes of it")
            return True
        return _hand_on(sink, frame_format, pixels, captured_ns)

    def _next_chunk(self, sink: FrameSink | None, *, limit_s: float | None = None) -> Chunk | None:
        """The next piece of the stream; None at its end or when the sink stops."""
        while not self._ended:
            chunk = self._scanner.pull()
            if chunk is not None:
                return chunk
            count = self._reader.read_some(self._block, sink, limit_s=limit_s)
            if count:
                self._scanner.feed(self._block[:count])
            elif self._reader.at_eof:
                self._ended = True
                return self._scanner.finish()
            else:
                return None
        return None

    def close(self) -> None:
        """Close the descriptor."""
        self._reader.close()


def _decode(chunk: Chunk) -> tuple[FrameFormat, Pixels]:
    if chunk.fault:
        raise FrameError(chunk.fault, kind="damaged")
    return decode_picture(chunk.data)


def _hand_on(sink: FrameSink, frame_format: FrameFormat, pixels: Pixels, captured_ns: int) -> bool:
    memory = sink.acquire(frame_format)
    if memory is None:
        return False
    copy_into(memory, pixels)
    sink.publish(captured_ns)
    return True
