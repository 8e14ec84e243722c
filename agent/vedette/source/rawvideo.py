"""Raw video from a pipe: bare frames of a declared geometry, one after the other.

There is no framing, so a change of size in the middle of the stream cannot be noticed (casebook 18): the
picture starts to roll. Producers that may change size should send y4m.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import ConfigError
from vedette.source.pacing import RateCap
from vedette.source.port import SourceInfo, SourceSpec
from vedette.wire.causes import DropCause
from vedette.wire.pixels import ColorMatrix, ColorRange, FrameFormat, describe

if TYPE_CHECKING:
    from vedette.source.byteio import FdReader
    from vedette.source.port import FrameSink

MAX_FRAME_BYTES = 1 << 30
GEOMETRY_CURE = (
    "give size, pixel format, strides and padded height as the producer has them; "
    "`vedette-agent ingest-check` finds out"
)


class RawVideoSource:
    """Frames of exactly `format.frame_bytes` bytes, read straight into the lent memory."""

    def __init__(self, reader: FdReader, spec: SourceSpec, *, description: str) -> None:
        live = bool(spec.live)
        notes: tuple[str, ...] = ()
        if spec.fps and not live:
            notes = (
                "the fps cap is not applied: raw video carries no time; set `live: true` to cap arrivals",
            )
        self._reader = reader
        self._cap = RateCap(spec.fps if live else 0.0)
        self.info = SourceInfo(
            format=declared_format(spec), live=live, fps=0.0, description=description, notes=notes
        )

    def read(self, sink: FrameSink) -> bool:
        """Move one frame; the short tail of a stream that ends inside a frame is counted once.

        Raises:
            SourceLostError: A live pipe was mute for too long, or reading failed.
        """
        memory = sink.acquire(self.info.format)
        if memory is None:
            return False
        wanted_bytes = self.info.format.frame_bytes
        got_bytes = self._reader.fill(memory[:wanted_bytes], sink)
        if got_bytes < wanted_bytes:
            if got_bytes and self._reader.at_eof:
                sink.drop(DropCause.SHORT)
                sink.remark(
                    f"the input ended {got_bytes:,} bytes into a frame of {wanted_bytes:,}: are size and "
                    "pixel format right? `vedette-agent ingest-check` tells"
                )
            return False
        if self._cap.admits(self._reader.last_byte_ns):
            sink.publish(self._reader.last_byte_ns)
        else:
            sink.drop(DropCause.RATE)
        return True

    def close(self) -> None:
        """Close the descriptor."""
        self._reader.close()


def declared_format(spec: SourceSpec) -> FrameFormat:
    """The geometry that the options declare.

    Raises:
        ConfigError: A part is missing or cannot describe a frame.
    """
    missing = [
        option
        for option, given in (("--size WxH", spec.width and spec.height), ("--pix-fmt", spec.pixel))
        if not given
    ]
    if missing or spec.pixel is None:
        raise ConfigError(
            f"camera {spec.camera!r}: raw video says nothing of itself; {' and '.join(missing)} missing",
            cure="give the size and pixel format as they were given to the producer, or send y4m",
        )
    try:
        frame_format = describe(
            spec.width,
            spec.height,
            spec.pixel,
            strides=spec.strides,
            padded_height=spec.padded_height,
            matrix=spec.matrix or ColorMatrix.BT601,
            color_range=spec.range or ColorRange.LIMITED,
        )
    except ValueError as error:
        raise ConfigError(f"camera {spec.camera!r}: {error}", cure=GEOMETRY_CURE) from error
    if frame_format.frame_bytes > MAX_FRAME_BYTES:
        raise ConfigError(
            f"camera {spec.camera!r}: a frame of {frame_format.frame_bytes} bytes is above the limit of "
            f"{MAX_FRAME_BYTES}",
            cure=GEOMETRY_CURE,
        )
    return frame_format
