"""The source port: where frames come from, and where they go.

A source fills memory that it is lent; it never allocates frames of its own where that can be helped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from vedette.wire.pixels import ColorMatrix, ColorRange, FrameFormat, PixelFormat

if TYPE_CHECKING:
    from vedette.wire.causes import DropCause


class SourceSpec(msgspec.Struct, frozen=True):
    """What a camera entry or the `pipe` command asks for; crosses to the source child as JSON.

    `input` is a URL, a device, a file, a folder of pictures, a FIFO, or `-` for standard input. `container`
    is the framing of a pipe: `y4m`, `rawvideo`, `mjpeg`, or empty where the input itself tells. `live` None
    means: as the input is by nature. `fps` caps the rate, 0 is no cap. `stall_s` is how long a live source
    may be mute before it counts as lost.
    """

    camera: str
    input: str
    container: str = ""
    width: int = 0
    height: int = 0
    pixel: PixelFormat | None = None
    strides: tuple[int, ...] = ()
    padded_height: int = 0
    matrix: ColorMatrix | None = None
    range: ColorRange | None = None
    fps: float = 0.0
    live: bool | None = None
    loop: bool = False
    stall_s: float = 10.0
    open_timeout_s: float = 15.0


class SourceInfo(msgspec.Struct, frozen=True):
    """What an opened source turned out to be.

    `format` is of the first frame; `live` sources are newest-wins, others lossless. `fps` 0 means unknown.
    `notes` are sentences for a person (a V4L2 device that gave another size than asked, for instance).
    """

    format: FrameFormat
    live: bool
    fps: float
    description: str
    notes: tuple[str, ...] = ()


class FrameSink(Protocol):
    """Where a source puts frames; implemented over the ring in the child, over a list in tests."""

    def acquire(self, frame_format: FrameFormat) -> memoryview | None:
        """Lend memory of `frame_format.frame_bytes` bytes for the next frame.

        Blocks while a lossless consumer is behind. Returns None when the source must stop (the frame in hand
        is then dropped with cause `shutdown` by the sink). Asking again before `publish` reuses the memory.
        """
        ...

    def publish(self, captured_ns: int, file: str = "") -> None:
        """Hand the frame last acquired to the reader; `captured_ns` is CLOCK_MONOTONIC at arrival.

        The arrival of a frame is when its last byte was here, before any decoding. `file` names the picture
        file that it came from, in text that UTF-8 can carry.
        """
        ...

    def remark(self, text: str) -> None:
        """Tell a person; for what matters and is rare, because nothing bounds it here."""
        ...

    def drop(self, cause: DropCause, count: int = 1) -> None:
        """Count frames that were there and are not handed on."""
        ...

    def alive(self) -> None:
        """Say that the source waits for a reason (between frames of a slow stream, before a reconnect)."""
        ...

    @property
    def stopping(self) -> bool:
        """True once the source should end."""
        ...


class Source(Protocol):
    """An opened source; its factory may raise ConfigError, BadInputError or SourceLostError."""

    info: SourceInfo

    def read(self, sink: FrameSink) -> bool:
        """Move at most one frame into the sink, or count one drop.

        Returns:
            False at the regular end of the input, True when there may be more.

        Raises:
            SourceLostError: A live input broke; reconnecting may help.
            BadInputError: The input is not what it was declared to be and cannot be resynchronised.
        """
        ...

    def close(self) -> None:
        """Release devices and files; safe to call twice."""
        ...
