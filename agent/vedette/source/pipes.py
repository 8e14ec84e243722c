"""Opens what is read byte by byte: standard input, FIFOs, and files of raw video, y4m or MJPEG."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

from vedette.errors import BadInputError, ConfigError, SourceLostError
from vedette.source.byteio import FdReader
from vedette.source.mjpeg import MjpegSource
from vedette.source.opencv import open_file
from vedette.source.rawvideo import RawVideoSource, declared_format
from vedette.source.signatures import guess_container, known_foreign
from vedette.source.y4m import STREAM_MAGIC, Y4mSource

if TYPE_CHECKING:
    from vedette.source.port import FrameSink, Source, SourceSpec

STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0")


class ReturningWriter:
    """A FIFO with `loop`: its writer's leaving is a loss, after which the next writer is waited for."""

    def __init__(self, source: Source, name: str) -> None:
        self._source = source
        self._name = name
        self.info = source.info

    def read(self, sink: FrameSink) -> bool:
        """Read on.

        Raises:
            SourceLostError: The writer closed, or as the source underneath says.
            BadInputError: As the source underneath says.
        """
        if self._source.read(sink):
            return True
        if sink.stopping:
            return False
        raise SourceLostError(f"{self._name}: the writer closed it", cure="start the producer again")

    def close(self) -> None:
        """Close the FIFO."""
        self._source.close()


def open_rawvideo(path: str, spec: SourceSpec) -> Source:
    """Raw video; the geometry is checked before anything is opened.

    Raises:
        ConfigError: The geometry is missing or impossible, or a file is to be played live or in a loop.
        BadInputError: The path cannot be opened.
    """
    declared_format(spec)
    if (spec.live or spec.loop) and _is_regular(path):
        raise ConfigError(
            f"camera {spec.camera!r}: a file of raw video has no time stamps to be played by",
            cure="convert it: ffmpeg -f rawvideo ... -i FILE FILE.mp4",
        )
    return _open(path, spec)


def open_y4m(path: str, spec: SourceSpec) -> Source:
    """A y4m stream; a file that is to be played live or in a loop is read through FFmpeg.

    Raises:
        BadInputError: It is no y4m, or one that cannot be used.
        SourceLostError: Nothing came in time.
    """
    return open_file(path, spec) if (spec.live or spec.loop) and _is_regular(path) else _open(path, spec)


def open_mjpeg(path: str, spec: SourceSpec) -> Source:
    """An MJPEG stream; a file that is to be played live or in a loop is read through FFmpeg (at 25 fps).

    Raises:
        BadInputError: There is no whole picture in it.
        SourceLostError: Nothing came in time.
    """
    return open_file(path, spec) if (spec.live or spec.loop) and _is_regular(path) else _open(path, spec)


def open_pipe(path: str, spec: SourceSpec) -> Source:
    """A pipe or FIFO that nobody described: y4m and MJPEG announce themselves.

    Raises:
        ConfigError: It holds neither, so what it holds has to be told.
        BadInputError: It is known to hold something else, or nothing.
        SourceLostError: Nothing came in time.
    """
    return _open(path, spec)


def _recognise(reader: FdReader, spec: SourceSpec) -> str:
    """The container that the first bytes announce; they stay to be read."""
    head = reader.peek(len(STREAM_MAGIC), limit_s=spec.open_timeout_s)
    if not head:
        raise BadInputError(
            f"nothing came from {reader.name}",
            cure="look at the producer's messages: it wrote nothing, or died at once",
        )
    container = guess_container(head)
    if container != "rawvideo":
        return container
    foreign = known_foreign(head)
    if foreign:
        raise BadInputError(
            f"{reader.name} holds {foreign}",
            cure="decode it first: ffmpeg -i FILE -f yuv4mpegpipe - | vedette-agent pipe ...",
        )
    raise ConfigError(
        f"camera {spec.camera!r}: {reader.name} is neither y4m nor MJPEG; raw video says nothing of itself",
        cure="give format, size and pix_fmt (--format rawvideo --size WxH --pix-fmt F); "
        "`vedette-agent ingest-check` finds out",
    )


def _open(path: str, spec: SourceSpec) -> Source:
    name = "standard input" if path in STANDARD_INPUT else path
    reader = FdReader(_descriptor(path), name=name, stall_s=spec.stall_s if spec.live else None)
    source: Source
    try:
        container = spec.container or _recognise(reader, spec)
        if container == "rawvideo":
            source = RawVideoSource(reader, spec, description=f"raw video from {name}")
        elif container == "y4m":
            source = Y4mSource(reader, spec, description=f"y4m from {name}")
        else:
            source = MjpegSource(reader, spec, description=f"MJPEG from {name}")
    except BaseException:
        reader.close()
        raise
    if spec.loop and not _is_regular(path):
        return ReturningWriter(source, name)
    return source


def _descriptor(path: str) -> int:
    """Open for reading; a FIFO without waiting for its writer."""
    if path in STANDARD_INPUT:
        if sys.stdin is not None and sys.stdin.isatty():
            raise ConfigError(
                "standard input is a terminal, not a pipe",
                cure="pipe frames in: ffmpeg ... | vedette-agent ...",
            )
        return 0
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadInputError(
            f"{path} cannot be opened: {error.strerror}", cure="check the path and the rights to it"
        ) from error


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - the mode bits are wanted
    except OSError:
        return False
