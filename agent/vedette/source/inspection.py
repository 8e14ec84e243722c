"""What is in this pipe: container, geometry, rate, jitter and misalignment, for `ingest-check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from vedette.clock import Clock, SystemClock
from vedette.errors import BadInputError, FrameError, SourceLostError
from vedette.source.byteio import FdReader
from vedette.source.geometry import (
    ALIGNMENTS,
    COMMON_ROWS,
    guess_stride,
    judge_stride,
    suggest_sizes,
)
from vedette.source.jpeg import examine
from vedette.source.jpegstream import Chunk, JpegScanner
from vedette.source.signatures import guess_container, known_foreign
from vedette.source.y4m import (
    FRAME_MAGIC,
    MAX_LINE_BYTES,
    STREAM_MAGIC,
    Y4mHeader,
    parse_header,
)
from vedette.wire.pixels import FrameFormat, PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_BYTES = 256 << 10
NO_Y4M = "make the producer write y4m and nothing else: ffmpeg ... -f yuv4mpegpipe -"
SAMPLE_BYTES = 4 << 20


class Inspection(msgspec.Struct, frozen=True):
    """What was seen; times in milliseconds of the monotonic clock, 0 where there were too few frames.

    `leftover_bytes` are those after the last whole frame, `misaligned` says that the input ended there.
    `stride_bytes` is the row stride that the pixels themselves suggest (raw video only, 0 if unclear).
    `looks_like` names what came in place of undescribed raw video, such as `an AVI file`, where it is known.
    """

    container: str
    declared: bool
    format: FrameFormat | None
    frames: int
    damaged: int
    read_bytes: int
    leftover_bytes: int
    misaligned: bool
    ended: bool
    declared_fps: float
    measured_fps: float
    interval_p50_ms: float
    interval_p95_ms: float
    stride_bytes: int
    suggestions: tuple[str, ...]
    notes: tuple[str, ...]
    looks_like: str


class _Seen:
    """Bytes with their arrival times, up to a limit of frames and seconds."""

    def __init__(self, fd: int, *, limit_s: float, clock: Clock) -> None:
        self._reader = FdReader(fd, name="the input", stall_s=None, clock=clock)
        self._clock = clock
        self._end_ns = clock.monotonic_ns() + round(limit_s * 1e9)
        self._block = memoryview(bytearray(READ_BYTES))
        self.read_bytes = 0
        self.ended = False
        self.mute = False

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """Pieces as they come with CLOCK_MONOTONIC of their arrival, until the time is over."""
        while True:
            left_s = (self._end_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0:
                return
            try:
                count = self._reader.read_some(self._block, None, limit_s=left_s)
            except SourceLostError:
                self.mute = True
                return
            if not count:
                self.ended = True
                return
            self.read_bytes += count
            yield bytes(self._block[:count]), self._reader.last_byte_ns


class _Count:
    """What a framer found so far."""

    def __init__(self) -> None:
        self.format: FrameFormat | None = None
        self.arrivals_ns: list[int] = []
        self.damaged = 0
        self.fault = ""
        self.stride_bytes = 0
        self.suggestions: tuple[str, ...] = ()
        self.leftover_bytes = 0
        self.declared_fps = 0.0
        self.notes: list[str] = []
        self.looks_like = ""


def inspect_pipe(
    fd: int,
    *,
    container: str = "",
    width: int = 0,
    height: int = 0,
    pixel: PixelFormat | None = None,
    strides: tuple[int, ...] = (),
    padded_height: int = 0,
    limit_frames: int = 100,
    limit_s: float = 5.0,
    clock: Clock | None = None,
) -> Inspection:
    """Read about `limit_frames` frames or `limit_s` seconds and say what they are.

    Args:
        fd: Readable; stays open.
        container: `y4m`, `mjpeg` or `rawvideo` where it is known; empty guesses from the first bytes.
        width: Pixels, for raw video.
        height: Pixels, for raw video.
        pixel: Pixel format, for raw video.
        strides: Bytes from row to row for each plane, for raw video.
        padded_height: Rows stored in the first plane where they are more than `height`, for raw video.
        limit_frames: Frames after which to stop.
        limit_s: Seconds after which to stop.
        clock: For tests.

    Raises:
        BadInputError: Nothing came at all, or a y4m whose header or marker is broken.
    """
    seen = _Seen(fd, limit_s=limit_s, clock=clock or SystemClock())
    pieces = seen.pieces()
    head, head_ns = bytearray(), 0
    for piece, head_ns in pieces:  # noqa: B007 - the last arrival is used below
        head += piece
        if len(head) >= len(STREAM_MAGIC):
            break
    if not head:
        raise BadInputError(
            "nothing came out of the pipe",
            cure="look at the producer's messages: it died at once, or waits for its own input",
        )
    guess = container or guess_container(bytes(head))
    stream = _after(bytes(head), head_ns, pieces)
    count = _Count()
    if guess == "y4m":
        _count_y4m(stream, count, limit_frames)
    elif guess == "mjpeg":
        _count_mjpeg(stream, count, limit_frames)
    else:
        declared = None
        if width and height and pixel is not None:
            declared = _declared(width, height, pixel, strides, padded_height)
        sample = _count_raw(stream, count, limit_frames, declared)
        total = seen.read_bytes if seen.ended else 0
        _advise_raw(sample, total, declared, count)
    if seen.mute and not count.arrivals_ns:
        count.notes.append("the producer fell silent before one frame was complete")
    return _report(guess, count, seen, declared=bool(container))


def _after(head: bytes, head_ns: int, pieces: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
    yield head, head_ns
    yield from pieces


def _declared(
    width: int, height: int, pixel: PixelFormat, strides: tuple[int, ...], padded_height: int
) -> FrameFormat:
    try:
        return describe(width, height, pixel, strides=strides, padded_height=padded_height)
    except ValueError as error:
        raise BadInputError(f"the declared geometry is impossible: {error}") from error


def _count_y4m(stream: Iterator[tuple[bytes, int]], count: _Count, limit_frames: int) -> None:
    buffer = bytearray()
    offset = 0
    header: Y4mHeader | None = None
    for piece, now_ns in stream:
        buffer += piece
        while (end := buffer.find(b"\n", 0, MAX_LINE_BYTES)) >= 0:
            line = bytes(buffer[:end])
            if line.startswith(STREAM_MAGIC):
                header = parse_header(line)
                count.format = describe(header.width, header.height, header.pixel)
                count.declared_fps = header.fps
                size_bytes = 0
            elif line.split(b" ")[0] == FRAME_MAGIC and count.format is not None:
                size_bytes = count.format.frame_bytes
            else:
                raise BadInputError(f"y4m: expected FRAME at byte {offset}, found {line[:16]!r}", cure=NO_Y4M)
            if len(buffer) < end + 1 + size_bytes:
                break
            offset += end + 1 + size_bytes
            del buffer[: end + 1 + size_bytes]
            if size_bytes:
                count.arrivals_ns.append(now_ns)
        # Only a payload may be longer than a line; anything else would be collected without end.
        if len(buffer) > MAX_LINE_BYTES and b"\n" not in buffer[:MAX_LINE_BYTES]:
            raise BadInputError(
                f"y4m: no line ends within {MAX_LINE_BYTES} bytes from byte {offset} on", cure=NO_Y4M
            )
        if len(count.arrivals_ns) >= limit_frames:
            break
    count.leftover_bytes = len(buffer)
    if header is not None and header.interlace in ("t", "b", "m"):
        count.notes.append("the stream is interlaced")


def _count_mjpeg(stream: Iterator[tuple[bytes, int]], count: _Count, limit_frames: int) -> None:
    scanner = JpegScanner()
    for piece, now_ns in stream:
        scanner.feed(piece)
        while (chunk := scanner.pull()) is not None:
            _count_picture(chunk, now_ns, count)
        if len(count.arrivals_ns) >= limit_frames:
            break
    last = scanner.finish()
    count.leftover_bytes = len(last.data) if last is not None else 0
    if count.damaged:
        count.notes.append(f"{count.damaged} damaged pictures; the last fault: {count.fault}")


def _count_picture(chunk: Chunk, now_ns: int, count: _Count) -> None:
    fault, structure = chunk.fault, None
    if not fault:
        try:
            structure = examine(chunk.data)
        except FrameError as error:
            fault = error.cause
    if structure is None:
        count.damaged += 1
        count.fault = fault
        return
    pixel = PixelFormat.GRAY8 if len(structure.components) == 1 else PixelFormat.BGR24
    count.format = describe(structure.width, structure.height, pixel, orientation=structure.orientation)
    count.arrivals_ns.append(now_ns)


def _count_raw(
    stream: Iterator[tuple[bytes, int]], count: _Count, limit_frames: int, declared: FrameFormat | None
) -> bytes:
    """Count frames of the declared size; the first bytes are kept to look at."""
    sample = bytearray()
    total = 0
    count.format = declared
    for piece, now_ns in stream:
        sample += piece[: max(0, SAMPLE_BYTES - len(sample))]
        total += len(piece)
        if declared is None:
            continue
        while (len(count.arrivals_ns) + 1) * declared.frame_bytes <= total:
            count.arrivals_ns.append(now_ns)
        if len(count.arrivals_ns) >= limit_frames:
            break
    count.leftover_bytes = total % declared.frame_bytes if declared is not None else total
    return bytes(sample)


def _advise_raw(sample: bytes, total: int, declared: FrameFormat | None, count: _Count) -> None:
    """Stride of the pixels, and geometries that fit; `total` bytes of an input that ended, else 0."""
    if declared is None:
        count.looks_like = known_foreign(sample[:4096])
        count.stride_bytes = guess_stride(sample[: 1 << 20], COMMON_ROWS)
        count.suggestions = suggest_sizes(total, count.stride_bytes)
        return
    first = declared.planes[0]
    candidates = sorted({-(-first.row_bytes // step) * step for step in ALIGNMENTS} | {first.stride_bytes})
    count.stride_bytes = judge_stride(
        sample[: declared.frame_bytes], first.stride_bytes, [*candidates, *COMMON_ROWS]
    )
    if count.stride_bytes and count.stride_bytes != first.stride_bytes:
        count.notes.append(
            f"rows look {count.stride_bytes} bytes apart, {first.stride_bytes} are declared: the producer "
            "pads rows, or the width is another"
        )
        count.suggestions = suggest_sizes(total, count.stride_bytes, rows_only=True)
    elif total and total % declared.frame_bytes:
        count.suggestions = suggest_sizes(total, guess_stride(sample[: 1 << 20], COMMON_ROWS))


def _report(container: str, count: _Count, seen: _Seen, *, declared: bool) -> Inspection:
    arrivals = np.asarray(count.arrivals_ns, np.float64) / 1e6
    intervals = np.diff(arrivals)
    span_ms = float(arrivals[-1] - arrivals[0]) if len(arrivals) > 1 else 0.0
    p50, p95 = (float(v) for v in np.percentile(intervals, (50, 95))) if len(intervals) else (0.0, 0.0)
    return Inspection(
        container=container,
        declared=declared,
        format=count.format,
        frames=len(arrivals),
        damaged=count.damaged,
        read_bytes=seen.read_bytes,
        leftover_bytes=count.leftover_bytes,
        misaligned=seen.ended and count.leftover_bytes > 0,
        ended=seen.ended,
        declared_fps=count.declared_fps,
        measured_fps=1000 * (len(arrivals) - 1) / span_ms if span_ms > 0 else 0.0,
        interval_p50_ms=p50,
        interval_p95_ms=p95,
        stride_bytes=count.stride_bytes,
        suggestions=count.suggestions,
        notes=tuple(count.notes),
        looks_like=count.looks_like,
    )
