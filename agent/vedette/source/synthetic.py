"""A moving test picture with its own number in it, for benches and tests: `synthetic:WxH@FPS[?frames=N]`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from vedette.clock import Clock, SystemClock
from vedette.errors import ConfigError
from vedette.source.pacing import Playback, RateCap
from vedette.source.port import SourceInfo, SourceSpec
from vedette.source.waiting import sleep_s, wait_until
from vedette.wire.causes import DropCause
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    import numpy.typing as npt

    from vedette.source.port import FrameSink
    from vedette.source.waiting import Sleep

SCHEME = "synthetic:"
PATTERN = re.compile(
    r"synthetic:(?P<width>[0-9]{1,5})x(?P<height>[0-9]{1,5})"
    r"(?:@(?P<fps>[0-9]+(?:\.[0-9]+)?))?(?:\?frames=(?P<frames>[0-9]+))?"
)
DEFAULT_FPS = 30.0
MAX_PIXELS = 1 << 26
NUMBER_BYTES = 4


class SyntheticSource:
    """bgr24 bars that move one row a frame; the first four bytes are the frame's number, little-endian.

    Lossless and as fast as it is read, unless `live`, which paces it at FPS.
    """

    def __init__(self, spec: SourceSpec, *, clock: Clock | None = None, sleep: Sleep = sleep_s) -> None:
        """Draw the picture once.

        Raises:
            ConfigError: Not of the form `synthetic:WxH@FPS?frames=N`, or out of range.
        """
        match = PATTERN.fullmatch(spec.input)
        if match is None:
            raise ConfigError(f"{spec.input!r} is not of the form synthetic:640x480@30?frames=100")
        width, height = int(match["width"]), int(match["height"])
        self._fps = float(match["fps"] or DEFAULT_FPS)
        if width < 2 or height < 1 or width * height > MAX_PIXELS or self._fps <= 0:
            raise ConfigError(f"{spec.input!r}: the size or the rate is out of range")
        self._frames = int(match["frames"]) if match["frames"] else None
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._cap = RateCap(spec.fps)
        self._playback = Playback()
        self._number = 0
        self._picture = _bars(width, height)
        self._loop = spec.loop
        self.info = SourceInfo(
            format=describe(width, height, PixelFormat.BGR24),
            live=bool(spec.live),
            fps=self._fps,
            description=f"synthetic {width}x{height} at {self._fps:g} fps",
        )

    def read(self, sink: FrameSink) -> bool:
        """Move one frame, or count one that is above the cap."""
        number = self._number
        if self._frames is not None and number >= self._frames and not self._loop:
            return False
        media_ns = round(number / self._fps * 1e9)
        if self.info.live:
            due_ns = self._playback.due_ns(media_ns, self._clock.monotonic_ns())
            if not wait_until(due_ns, sink, clock=self._clock, sleep=self._sleep):
                return False
        if not self._cap.admits(media_ns):
            self._number += 1
            sink.drop(DropCause.RATE)
            return True
        memory = sink.acquire(self.info.format)
        if memory is None:
            return False
        self._draw(memory, number)
        sink.publish(self._clock.monotonic_ns())
        self._number += 1
        return True

    def _draw(self, memory: memoryview, number: int) -> None:
        height = self.info.format.height
        first = number % height
        pixels = np.frombuffer(memory, np.uint8, count=self.info.format.frame_bytes)
        np.copyto(pixels, self._picture[first : first + height].reshape(-1))
        shown = number if self._frames is None else number % max(1, self._frames)
        pixels[:NUMBER_BYTES] = np.frombuffer((shown & 0xFFFFFFFF).to_bytes(NUMBER_BYTES, "little"), np.uint8)

    def close(self) -> None:
        """Nothing is open."""


def frame_number(pixels: bytes | memoryview) -> int:
    """The number that a synthetic frame carries."""
    return int.from_bytes(pixels[:NUMBER_BYTES], "little")


def _bars(width: int, height: int) -> npt.NDArray[np.uint8]:
    """Twice the height, so that any shift by rows is one contiguous slice."""
    rows = np.arange(2 * height) % height
    columns = np.arange(width)
    picture = np.empty((2 * height, width, 3), np.uint8)
    picture[:, :, 0] = (columns * 255 // max(1, width - 1)).astype(np.uint8)
    picture[:, :, 1] = (rows * 255 // max(1, height - 1)).astype(np.uint8)[:, None]
    picture[:, :, 2] = ((columns[None, :] // 16 + rows[:, None] // 16) % 2 * 255).astype(np.uint8)
    return picture


def open_synthetic(text: str, spec: SourceSpec) -> SyntheticSource:
    """Open `synthetic:...`.

    Raises:
        ConfigError: Not of the documented form.
    """
    del text  # the same as spec.input
    return SyntheticSource(spec)
