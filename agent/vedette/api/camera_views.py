"""The rings of the other cameras, read along for the pages, and the last answers to their frames.

Nothing is copied while nobody looks. A picture is made on a thread of its own, at most every
PICTURE_EVERY_S for each camera, however many look; the rest is the event loop's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

import cv2

from vedette.api.latency_history import LatencyHistory
from vedette.api.matching import match
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.errors import VedetteError
from vedette.frame.shadow_reader import ShadowReader
from vedette.vision.annotate import Caption, draw_captions, draw_detections, enlarge
from vedette.vision.picture import picture_from_buffer, to_bgr

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    import numpy as np
    from numpy.typing import NDArray

    from vedette.clock import Clock
    from vedette.frame.ring import Ring
    from vedette.wire.messages import Result

PICTURE_EVERY_S = 0.15
# A reader keeps a copy of a whole frame; it is let go when nobody has looked for that long.
FORGET_AFTER_S = 10.0
KEPT_RESULTS = 64
KEPT_PICTURES = 3
MAX_WIDTH = 960
MIN_WIDTH = 320
SHOWN_LABELS = 3
JPEG_QUALITY = 80


class ShownPicture(NamedTuple):
    """A JPEG, the frame it is of, and the frame that its boxes are of; 0: nothing is drawn."""

    jpeg: bytes
    seq: int
    answer_seq: int


class _Held(NamedTuple):
    seq: int
    pixels: NDArray[np.uint8]
    scale: float


class CameraView:
    """One camera as the pages see it."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.reader: ShadowReader | None = None
        self.held: deque[_Held] = deque(maxlen=KEPT_PICTURES)
        self.shown: ShownPicture | None = None
        self.shown_ns = 0
        self.looked_ns = 0
        self.making = asyncio.Lock()
        self.retired = False

    def retire(self) -> None:
        """Unmap the ring; while a picture is made of it, whoever made it does so afterwards."""
        self.retired = True
        if not self.making.locked():
            self.forget_pictures()
            self.ring.close()
            self.ring.handles.close()

    def forget_pictures(self) -> None:
        """Give back what looking took."""
        self.reader = None
        self.held.clear()
        self.shown = None


class CameraViews:
    """All of them, by name."""

    def __init__(self, clock: Clock, drawing: Executor) -> None:
        self._clock = clock
        self._drawing = drawing
        self._views: dict[str, CameraView] = {}
        self._results: dict[str, OrderedDict[int, Result]] = {}
        self.latencies = LatencyHistory()

    @property
    def names(self) -> tuple[str, ...]:
        """Cameras with pictures."""
        return tuple(self._views)

    def show(self, camera: str, ring: Ring) -> None:
        """Read along in this ring from now on."""
        self.hide(camera)
        self._views[camera] = CameraView(ring)

    def hide(self, camera: str) -> None:
        """That ring is no more."""
        view = self._views.pop(camera, None)
        if view is not None:
            view.retire()

    def seen(self, results: Sequence[Result]) -> None:
        """Answers of the other cameras."""
        now_ns = self._clock.monotonic_ns()
        for result in results:
            kept = self._results.setdefault(result.camera, OrderedDict())
            kept[result.seq] = result
            while len(kept) > KEPT_RESULTS:
                kept.popitem(last=False)
            if result.latency_ms and not result.failed:
                self.latencies.add(result.camera, result.latency_ms, now_ns)

    def newest(self) -> dict[str, Result]:
        """The last answer of each camera."""
        return {camera: next(reversed(kept.values())) for camera, kept in self._results.items() if kept}

    def tidy(self) -> None:
        """Let go of pictures that nobody looks at any more."""
        horizon_ns = self._clock.monotonic_ns() - round(FORGET_AFTER_S * 1e9)
        for view in self._views.values():
            if view.reader is not None and view.looked_ns < horizon_ns and not view.making.locked():
                view.forget_pictures()

    async def picture(self, camera: str) -> ShownPicture:
        """The camera's newest picture with its answer drawn into it.

        Raises:
            RequestRefusedError: 404: no such camera; 503: no picture yet.
        """
        view = self._view(camera)
        view.looked_ns = self._clock.monotonic_ns()
        try:
            async with view.making:
                if not view.retired:
                    await self._refresh(camera, view)
        finally:
            if view.retired:
                view.retire()
        if view.retired or view.shown is None:
            raise not_now(f"the camera {camera!r} has shown no picture yet")
        return view.shown

    async def _refresh(self, camera: str, view: CameraView) -> None:
        age_ns = self._clock.monotonic_ns() - view.shown_ns
        if view.shown is None or age_ns >= PICTURE_EVERY_S * 1e9:
            results = dict(self._results.get(camera, {}))
            loop = asyncio.get_running_loop()
            view.shown = await loop.run_in_executor(self._drawing, _draw, view, results)
            view.shown_ns = self._clock.monotonic_ns()

    def _view(self, camera: str) -> CameraView:
        view = self._views.get(camera)
        if view is None:
            if camera in self._results:
                raise not_now(f"the camera {camera!r} has no picture at the moment")
            raise RequestRefusedError(404, f"there is no camera {camera[:64]!r} with pictures")
        return view


def _draw(view: CameraView, results: dict[int, Result]) -> ShownPicture | None:
    """On the drawing thread: read along, and draw what fits together."""
    _take(view)
    chosen = match([held.seq for held in view.held], results.keys())
    if chosen is None:
        return None
    if view.shown is not None and (view.shown.seq, view.shown.answer_seq) == (
        chosen.picture,
        chosen.answer or 0,
    ):
        return view.shown
    held = next(held for held in view.held if held.seq == chosen.picture)
    pixels = held.pixels
    if chosen.answer is not None:
        pixels = annotated(pixels, results[chosen.answer], held.scale)
    packed = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
    return ShownPicture(packed.tobytes(), chosen.picture, chosen.answer or 0)


def _take(view: CameraView) -> None:
    """Copy the newest frame out, if it is new, at the size of the pages."""
    if view.reader is None:
        view.reader = ShadowReader(view.ring, present=True)
    try:
        lease = view.reader.take()
    except VedetteError:  # a damaged descriptor: the engine worker counts it, the page waits for the next
        return
    if lease is None or lease.frame_format.tensor:
        return
    pixels = to_bgr(picture_from_buffer(lease.pixels, lease.frame_format))
    width = min(MAX_WIDTH, max(MIN_WIDTH, pixels.shape[1]))
    scale = width / pixels.shape[1]
    view.held.append(_Held(lease.seq, enlarge(pixels, width), scale))


def annotated(pixels: NDArray[np.uint8], result: Result, scale: float) -> NDArray[np.uint8]:
    """A picture with the answer to it: boxes in it, or labels under it."""
    if result.detections:
        return draw_detections(pixels, result.detections, scale=scale)
    if result.top:
        heading = f"{result.model.name} {result.model.version}"
        return draw_captions(pixels, [Caption(heading, result.top[:SHOWN_LABELS])])
    return pixels
