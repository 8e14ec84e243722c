"""Frames of one VideoCapture-like object: stamps, pacing, caps, orientation, ends and losses.

Frames that a decoder smeared after lost packets are not told apart: FFmpeg conceals them.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

import cv2
import numpy as np

from vedette.clock import Clock, SystemClock
from vedette.errors import BadInputError, SourceLostError
from vedette.source.decoding import copy_into, format_of
from vedette.source.pacing import Playback, RateCap
from vedette.source.port import SourceInfo, SourceSpec
from vedette.source.v4l2 import fourcc_name, truth_notes
from vedette.source.waiting import sleep_s, wait_until
from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.source.decoding import Pixels
    from vedette.source.port import FrameSink
    from vedette.source.waiting import Sleep
    from vedette.wire.pixels import FrameFormat

# Clockwise degrees in the container -> EXIF orientation with the same meaning.
EXIF_BY_DEGREES = {0: 1, 90: 6, 180: 3, 270: 8}
# A source that waited longer than this for its ring holds frames that were queued meanwhile (casebook 15).
STALE_AFTER_OPEN_NS = 2_000_000_000
# Containers that only estimate their number of frames are off by little.
MIN_SHARE_OF_FRAMES = 0.9


class Nature(Enum):
    """What kind of input it is."""

    FILE = "file"
    STREAM = "stream"
    DEVICE = "device"


class Capture(Protocol):
    """The part of cv2.VideoCapture that is used."""

    def grab(self) -> bool:
        """Advance to the next frame."""
        ...

    def retrieve(self, image: Pixels | None = None) -> tuple[bool, Pixels | None]:
        """Convert the grabbed frame, into `image` where it fits."""
        ...

    def get(self, prop: int) -> float:
        """Read a property; 0 where it means nothing."""
        ...

    def set(self, prop: int, value: float) -> bool:
        """Set a property."""
        ...

    def isOpened(self) -> bool:  # noqa: N802 - OpenCV's name
        """Whether there is something to read."""
        ...

    def release(self) -> None:
        """Close."""
        ...


class CaptureSource:
    """Frames of one capture, as bgr24 (gray8 from grey devices).

    `captured_ns` is when `grab` returned. A file gives every frame; played `live` it is paced by its own time
    stamps, `loop` opens it again at its end. The container's rotation goes into `FrameFormat.orientation` and
    is not applied to pixels, so that it is applied exactly once.
    """

    def __init__(
        self,
        open_capture: Callable[[], Capture],
        spec: SourceSpec,
        nature: Nature,
        *,
        description: str,
        asked_fourcc: str = "",
        clock: Clock | None = None,
        sleep: Sleep = sleep_s,
    ) -> None:
        """Open and take the first frame.

        Raises:
            SourceLostError: A stream or device gives no frame.
            BadInputError: A file gives no frame.
        """
        self._open_capture = open_capture
        self._spec = spec
        self._nature = nature
        self._description = description
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._live = (nature is not Nature.FILE) if spec.live is None else spec.live
        self._cap = RateCap(spec.fps)
        self._playback = Playback()
        self._capture: Capture | None = None
        self._offset_ns = 0
        self._started = False
        self._open()
        self.info = self._look(asked_fourcc)

    def _open(self) -> None:
        self.close()
        capture = self._open_capture()
        self._capture = capture
        if self._nature is not Nature.DEVICE:
            capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 0)
        degrees = 0 if self._nature is Nature.DEVICE else round(capture.get(cv2.CAP_PROP_ORIENTATION_META))
        self._orientation = EXIF_BY_DEGREES.get(degrees % 360, 1)
        self._fps = _sane_fps(capture.get(cv2.CAP_PROP_FPS))
        self._grabbed = 0
        self._media_ns = 0
        self._held_ns = self._grab()
        self._opened_ns = self._clock.monotonic_ns()
        if self._held_ns is None:
            self.close()
            raise self._no_frame()

    def _look(self, asked_fourcc: str) -> SourceInfo:
        assert self._capture is not None  # noqa: S101 - _open has just set it
        decoded, pixels = self._capture.retrieve()
        if not decoded or pixels is None:
            self.close()
            raise self._no_frame()
        self._format = format_of(pixels, orientation=self._orientation)
        notes: tuple[str, ...] = ()
        if self._nature is Nature.DEVICE:
            notes = truth_notes(
                self._spec,
                width=self._format.width,
                height=self._format.height,
                fps=self._fps,
                fourcc=fourcc_name(self._capture.get(cv2.CAP_PROP_FOURCC)),
                asked_fourcc=asked_fourcc,
            )
        return SourceInfo(self._format, self._live, self._fps, self._description, notes)

    def read(self, sink: FrameSink) -> bool:
        """Move one frame, or count one that is above the cap or cannot be converted.

        Raises:
            SourceLostError: A stream or device gave no frame.
            BadInputError: A file ended well before the number of frames that it declares.
        """
        self._start()
        captured_ns, self._held_ns = self._held_ns, None
        if captured_ns is None:
            captured_ns = self._grab()
        if captured_ns is None:
            return self._at_end(sink)
        if self._nature is Nature.FILE:
            moment_ns = self._offset_ns + self._media_ns
            if self._live:
                due_ns = self._playback.due_ns(moment_ns, self._clock.monotonic_ns())
                if not wait_until(due_ns, sink, clock=self._clock, sleep=self._sleep):
                    return False
                captured_ns = self._clock.monotonic_ns()
        else:
            moment_ns = captured_ns
        if not self._cap.admits(moment_ns):
            sink.drop(DropCause.RATE)
            return True
        return self._hand_on(sink, captured_ns)

    def _hand_on(self, sink: FrameSink, captured_ns: int) -> bool:
        assert self._capture is not None  # noqa: S101 - a frame was just grabbed from it
        memory = sink.acquire(self._format)
        if memory is None:
            return False
        lent = _as_pixels(memory, self._format)
        decoded, pixels = self._capture.retrieve(lent)
        if not decoded or pixels is None:
            sink.drop(DropCause.DAMAGED)
            return True
        if pixels.shape != lent.shape:
            self._format = format_of(pixels, orientation=self._orientation)
            memory = sink.acquire(self._format)
            if memory is None:
                return False
            copy_into(memory, np.ascontiguousarray(pixels))
        elif pixels.ctypes.data != lent.ctypes.data:
            copy_into(memory, np.ascontiguousarray(pixels))
        sink.publish(captured_ns)
        return True

    def _start(self) -> None:
        """A live input that waited between opening and the first read is opened anew: its queue is old."""
        if self._started:
            return
        self._started = True
        waited_ns = self._clock.monotonic_ns() - self._opened_ns
        if self._nature is not Nature.FILE and self._live and waited_ns > STALE_AFTER_OPEN_NS:
            self._open()

    def _grab(self) -> int | None:
        """Advance; CLOCK_MONOTONIC at arrival, or None where there is no frame."""
        if self._capture is None or not self._capture.grab():
            return None
        captured_ns = self._clock.monotonic_ns()
        if self._nature is Nature.FILE:
            by_rate_ns = round(self._grabbed / self._fps * 1e9) if self._fps else 0
            by_stamp_ns = round(self._capture.get(cv2.CAP_PROP_POS_MSEC) * 1e6)
            self._media_ns = max(self._media_ns, by_stamp_ns if by_stamp_ns > 0 else by_rate_ns)
        self._grabbed += 1
        return captured_ns

    def _at_end(self, sink: FrameSink) -> bool:
        if self._nature is not Nature.FILE:
            if self._nature is Nature.STREAM and not self._live:
                return False
            raise self._no_frame()
        if self._capture is None:
            return False
        declared = self._capture.get(cv2.CAP_PROP_FRAME_COUNT)
        if self._grabbed < declared * MIN_SHARE_OF_FRAMES:
            raise BadInputError(
                f"{self._description} ends after {self._grabbed} of {declared:.0f} frames: it is damaged",
                cure="copy it again, or repair it: ffmpeg -i FILE -c copy REPAIRED",
            )
        if not self._spec.loop or sink.stopping:
            return False
        period_ns = round(1e9 / self._fps) if self._fps else 0
        self._offset_ns += self._media_ns + period_ns
        self._open()
        return True

    def _no_frame(self) -> SourceLostError | BadInputError:
        if self._nature is Nature.FILE:
            return BadInputError(
                f"{self._description} gives no frame", cure="see whether ffprobe finds a video stream in it"
            )
        cure = "check the camera and its cable"
        if self._nature is Nature.STREAM:
            cure = f"check the camera and the network; frames may be {self._spec.stall_s:g} s apart at most"
        return SourceLostError(f"{self._description} gives no frame", cure=cure)

    def close(self) -> None:
        """Release the capture."""
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.release()


def _sane_fps(fps: float) -> float:
    """Some containers claim a time base of 90,000 as their rate."""
    return fps if 0 < fps <= 1000 else 0.0


def _as_pixels(memory: memoryview, frame_format: FrameFormat) -> Pixels:
    shape: tuple[int, ...] = (frame_format.height, frame_format.width)
    if frame_format.planes[0].row_bytes == 3 * frame_format.width:
        shape = (*shape, 3)
    return np.frombuffer(memory, np.uint8, count=int(np.prod(shape))).reshape(shape)
