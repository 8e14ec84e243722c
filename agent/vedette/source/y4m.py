"""YUV4MPEG2 from a pipe: the parser of its text lines (pure), and the source.

Format: the yuv4mpeg(5) manual page of mjpegtools, and the XCOLORRANGE extension that FFmpeg writes. The
header does not name the YUV matrix; BT.601 is taken unless the camera entry says otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import BadInputError
from vedette.source.pacing import RateCap
from vedette.source.port import SourceInfo, SourceSpec
from vedette.wire.causes import DropCause
from vedette.wire.pixels import ColorMatrix, ColorRange, FrameFormat, PixelFormat, describe

if TYPE_CHECKING:
    from vedette.source.byteio import FdReader
    from vedette.source.port import FrameSink

STREAM_MAGIC = b"YUV4MPEG2"
FRAME_MAGIC = b"FRAME"
MAX_LINE_BYTES = 4096
MAX_FRAME_BYTES = 1 << 30
CUT = "the input ended inside a frame"
HEADER_CURE = "check that the producer writes -f yuv4mpegpipe and nothing else to this pipe"
CURE = "write 8-bit planar pictures: ffmpeg ... -pix_fmt yuv420p -f yuv4mpegpipe"

_SPACES = {
    "420": PixelFormat.YUV420P,
    "420jpeg": PixelFormat.YUV420P,
    "420mpeg2": PixelFormat.YUV420P,
    "420paldv": PixelFormat.YUV420P,
    "422": PixelFormat.YUV422P,
    "444": PixelFormat.YUV444P,
    "mono": PixelFormat.GRAY8,
}
_PICTURE_BYTES = {
    PixelFormat.YUV420P: 1.5,
    PixelFormat.YUV422P: 2.0,
    PixelFormat.YUV444P: 3.0,
    PixelFormat.GRAY8: 1.0,
}


class Y4mHeader(msgspec.Struct, frozen=True):
    """What the stream header says; `fps` 0 means unknown, `interlace` is one of `p t b m ?`."""

    width: int
    height: int
    pixel: PixelFormat
    fps: float = 0.0
    interlace: str = "?"
    aspect: tuple[int, int] = (0, 0)
    range: ColorRange | None = None


class LineAssembler:
    """Collects one text line without ever asking for a byte beyond it.

    Frames follow their FRAME line at once and are read straight into lent memory, so nothing is read ahead.
    """

    def __init__(self, magics: tuple[bytes, ...], *, offset_bytes: int = 0) -> None:
        self._magics = magics
        self._offset_bytes = offset_bytes
        self._line = bytearray()

    @property
    def wanted_bytes(self) -> int:
        """How many bytes may be fed next: at least 1, none of them beyond the line."""
        shortest = min(len(magic) for magic in self._magics) + 1
        return max(1, shortest - len(self._line))

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished line."""
        return len(self._line)

    def feed(self, piece: bytes) -> bytes | None:
        """Take bytes; the finished line without its newline, or None.

        Raises:
            BadInputError: The line cannot become one of the expected ones, or it is too long.
        """
        self._line += piece
        if not any(self._agrees(magic) for magic in self._magics):
            expected = " or ".join(magic.decode() for magic in self._magics)
            raise BadInputError(
                f"y4m: expected {expected} at byte {self._offset_bytes}, found {bytes(self._line[:16])!r}; "
                "the stream cannot be resynchronised",
                cure=HEADER_CURE,
            )
        if self._line.endswith(b"\n"):
            return bytes(self._line[:-1])
        if len(self._line) > MAX_LINE_BYTES:
            raise BadInputError(
                f"y4m: the line at byte {self._offset_bytes} is above {MAX_LINE_BYTES} bytes",
                cure=HEADER_CURE,
            )
        return None

    def _agrees(self, magic: bytes) -> bool:
        head = bytes(self._line[: len(magic) + 1])
        return head in (magic + b" ", magic + b"\n") or (len(head) <= len(magic) and magic.startswith(head))


def parse_header(line: bytes) -> Y4mHeader:
    """Read the stream header, newline removed.

    Raises:
        BadInputError: Not a header, a tag missing, twice, unknown or out of range, or a colour space that is
            not 8-bit planar.
    """
    try:
        return _parse_header(line)
    except BadInputError as error:
        error.cure = error.cure or HEADER_CURE
        raise


def _parse_header(line: bytes) -> Y4mHeader:
    try:
        words = line.decode("ascii").split(" ")
    except UnicodeDecodeError as error:
        raise BadInputError("y4m: the stream header is not ASCII text") from error
    if words[0] != STREAM_MAGIC.decode():
        raise BadInputError(f"y4m: the stream starts with {words[0][:16]!r} and not with YUV4MPEG2")
    tags: dict[str, str] = {}
    extensions: list[str] = []
    for word in filter(None, words[1:]):
        letter, value = word[0], word[1:]
        if letter == "X":
            extensions.append(value)
        elif letter not in "WHFIAC":
            raise BadInputError(f"y4m: unknown tag {word[:32]!r} in the stream header")
        elif letter in tags:
            raise BadInputError(f"y4m: tag {letter} is given twice in the stream header")
        else:
            tags[letter] = value
    width, height = _size(tags, "W"), _size(tags, "H")
    numerator, denominator = _ratio(tags, "F")
    pixel = _colour_space(tags.get("C", "420jpeg"))
    if width * height * _PICTURE_BYTES[pixel] > MAX_FRAME_BYTES:
        raise BadInputError(f"y4m: a frame of {width}x{height} is above the limit of {MAX_FRAME_BYTES} bytes")
    return Y4mHeader(
        width=width,
        height=height,
        pixel=pixel,
        fps=numerator / denominator if denominator else 0.0,
        interlace=_interlace(tags.get("I", "?")),
        aspect=_ratio(tags, "A"),
        range=_colour_range(extensions),
    )


def _size(tags: dict[str, str], letter: str) -> int:
    value = tags.get(letter)
    if value is None:
        raise BadInputError(f"y4m: the stream header has no {letter} tag")
    if not re.fullmatch(r"[0-9]{1,6}", value) or int(value) < 1:
        raise BadInputError(f"y4m: {letter}{value[:32]} is no size in pixels")
    return int(value)


def _ratio(tags: dict[str, str], letter: str) -> tuple[int, int]:
    value = tags.get(letter, "0:0")
    match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", value)
    if match is None:
        raise BadInputError(f"y4m: {letter}{value[:32]} is no ratio such as 30:1")
    return int(match[1]), int(match[2])


def _interlace(value: str) -> str:
    if value not in ("p", "t", "b", "m", "?"):
        raise BadInputError(f"y4m: I{value[:32]} is no interlacing mode (p, t, b, m or ?)")
    return value


def _colour_space(value: str) -> PixelFormat:
    pixel = _SPACES.get(value)
    if pixel is None:
        what = (
            "has an alpha plane"
            if "alpha" in value
            else "is not an 8-bit 4:2:0, 4:2:2, 4:4:4 or mono picture"
        )
        raise BadInputError(f"y4m: colour space C{value[:32]} {what}", cure=CURE)
    return pixel


def _colour_range(extensions: list[str]) -> ColorRange | None:
    for extension in extensions:
        name, _, value = extension.partition("=")
        if name == "COLORRANGE":
            try:
                return ColorRange(value.lower())
            except ValueError as error:
                raise BadInputError(f"y4m: XCOLORRANGE={value[:32]} is neither FULL nor LIMITED") from error
    return None


class Y4mSource:
    """Frames of a y4m stream; a new stream header between frames changes the format."""

    def __init__(self, reader: FdReader, spec: SourceSpec, *, description: str) -> None:
        """Read the stream header.

        Raises:
            BadInputError: The input is no y4m, or one that cannot be used.
            SourceLostError: Nothing came within `open_timeout_s`.
        """
        self._reader = reader
        self._spec = spec
        line = self._read_line((STREAM_MAGIC,), None, limit_s=spec.open_timeout_s)
        if line is None:
            raise BadInputError(
                "y4m: the input ended before its stream header was complete",
                cure="look at the producer's messages: it wrote nothing, or died at once",
            )
        header = parse_header(line)
        self._format = _format_of(header, spec)
        self._cap = RateCap(spec.fps)
        self._frames = 0
        self.info = SourceInfo(
            format=self._format,
            live=bool(spec.live),
            fps=header.fps,
            description=description,
            notes=_notes(header, spec),
        )
        self._fps = header.fps

    def read(self, sink: FrameSink) -> bool:
        """Move one frame.

        Raises:
            BadInputError: A broken FRAME marker; its byte offset is named.
            SourceLostError: A live pipe was mute for too long, or reading failed.
        """
        line = self._read_line((FRAME_MAGIC, STREAM_MAGIC), sink)
        if line is None:
            if self._pending_bytes and self._reader.at_eof:
                sink.drop(DropCause.SHORT)
                sink.remark(f"{CUT}, {self._pending_bytes:,} bytes into its marker")
            return False
        if line.startswith(STREAM_MAGIC):
            header = parse_header(line)
            self._format, self._fps = _format_of(header, self._spec), header.fps
            return True
        return self._read_picture(sink)

    def _read_picture(self, sink: FrameSink) -> bool:
        memory = sink.acquire(self._format)
        if memory is None:
            return False
        wanted_bytes = self._format.frame_bytes
        got_bytes = self._reader.fill(memory[:wanted_bytes], sink)
        if got_bytes < wanted_bytes:
            if self._reader.at_eof:
                sink.drop(DropCause.SHORT)
                sink.remark(f"{CUT}, after {got_bytes:,} of {wanted_bytes:,} bytes")
            return False
        if self._cap.admits(self._time_ns()):
            sink.publish(self._reader.last_byte_ns)
        else:
            sink.drop(DropCause.RATE)
        self._frames += 1
        return True

    def _time_ns(self) -> float:
        """Arrival for a live stream, media time otherwise."""
        if self.info.live or not self._fps:
            return self._reader.last_byte_ns
        return self._frames / self._fps * 1e9

    def _read_line(
        self, magics: tuple[bytes, ...], sink: FrameSink | None, *, limit_s: float | None = None
    ) -> bytes | None:
        """One line, or None at the end of the input (`_pending_bytes` then tells of a cut line)."""
        assembler = LineAssembler(magics, offset_bytes=self._reader.offset_bytes)
        line = None
        while line is None:
            piece = bytearray(assembler.wanted_bytes)
            count = self._reader.read_some(memoryview(piece), sink, limit_s=limit_s)
            self._pending_bytes = assembler.pending_bytes
            if count == 0:
                return None
            line = assembler.feed(bytes(piece[:count]))
        return line

    def close(self) -> None:
        """Close the descriptor."""
        self._reader.close()


def _format_of(header: Y4mHeader, spec: SourceSpec) -> FrameFormat:
    return describe(
        header.width,
        header.height,
        header.pixel,
        matrix=spec.matrix or ColorMatrix.BT601,
        color_range=spec.range or header.range or ColorRange.LIMITED,
    )


def _notes(header: Y4mHeader, spec: SourceSpec) -> tuple[str, ...]:
    notes = []
    if header.interlace in ("t", "b", "m"):
        notes.append("the stream is interlaced; moving edges are combed (ffmpeg: -vf yadif removes it)")
    if header.aspect[0] != header.aspect[1]:
        notes.append(
            f"pixels are not square ({header.aspect[0]}:{header.aspect[1]}); they are used as they are"
        )
    if (spec.width and spec.width != header.width) or (spec.height and spec.height != header.height):
        notes.append(f"the header says {header.width}x{header.height}; the declared size is ignored")
    return tuple(notes)
