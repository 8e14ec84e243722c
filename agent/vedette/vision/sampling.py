"""From a frame's planes to a small upright 8-bit picture: resize first, convert after. Pure.

Planes are resized before anything else, so that colour conversion and rotation touch only the small picture.
All memory is allocated when a sampler is built. On an odd 4:2:0 or 4:2:2 picture the chroma plane, which
reaches half a pair further, is stretched with the luma: off by one luma pixel at most, at the far edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from vedette.vision.colour import luma_to_gray, yuv_to_colour
from vedette.vision.orientation import turn_upright
from vedette.vision.picture import deep_gray
from vedette.wire.bundle import Colour, Interpolation
from vedette.wire.pixels import YUV_FORMATS, ColorRange, FrameFormat, PixelFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vedette.vision.geometry import Placement
    from vedette.vision.picture import Picture

INTERPOLATIONS = {
    Interpolation.LINEAR: cv2.INTER_LINEAR,
    Interpolation.AREA: cv2.INTER_AREA,
    # The plain INTER_NEAREST takes the top left pixel of a cell, which shifts the picture by half a cell.
    Interpolation.NEAREST: cv2.INTER_NEAREST_EXACT,
}


class Sampler:
    """Samples frames of one format into a region of one size; not for two threads at once.

    Attributes:
        order: Channel order of what is written; packed RGB and BGR keep theirs, for the caller to swap.
    """

    def __init__(
        self, frame: FrameFormat, placement: Placement, interpolation: Interpolation, colour: Colour
    ) -> None:
        width, height = placement.region.width, placement.region.height
        self._orientation = frame.orientation
        self._size = (width, height) if frame.orientation < 5 else (height, width)
        self._interpolation = INTERPOLATIONS[interpolation]
        self._gray = colour is Colour.GRAY
        self._taken = None if (placement.taken[2:] == (frame.width, frame.height)) else placement.taken
        self._width = frame.width
        self.order = _order_written(frame.pixel, colour)
        self._sample = self._choose(frame.pixel)
        self._one = self._scratch(1)
        self._other = self._scratch(1)
        self._third = self._scratch(1)
        self._two = self._scratch(2)
        self._three = self._scratch(3)
        self._four = self._scratch(4)
        self._deep = np.empty((self._size[1], self._size[0]), np.uint16)
        self._sideways = self._scratch(1 if self._gray else 3)
        self._premultiplied: NDArray[np.uint8] | None = None
        self._levels = luma_to_gray(frame.range) if frame.range is ColorRange.LIMITED else None
        if frame.pixel in YUV_FORMATS and not self._gray:
            self._matrix = yuv_to_colour(frame.matrix, frame.range, self.order)

    def sample(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        """Fill `region`: (height, width, 3), or (height, width) for grey; rows may be padded."""
        if self._orientation == 1:
            self._sample(picture, region)
        else:
            self._sample(picture, self._sideways)
            turn_upright(self._sideways, self._orientation, region)

    def _choose(self, pixel: PixelFormat) -> Callable[[Picture, NDArray[np.uint8]], None]:
        if pixel in {PixelFormat.BGR24, PixelFormat.RGB24}:
            self._to_gray = cv2.COLOR_BGR2GRAY if pixel is PixelFormat.BGR24 else cv2.COLOR_RGB2GRAY
            return self._sample_packed
        return {
            PixelFormat.BGRA: self._sample_alpha,
            PixelFormat.GRAY8: self._sample_gray,
            PixelFormat.GRAY16LE: self._sample_deep_gray,
            PixelFormat.NV12: self._sample_semiplanar,
            PixelFormat.YUYV422: self._sample_yuyv,
        }.get(pixel, self._sample_planar)

    def _scratch(self, channels: int) -> NDArray[np.uint8]:
        """Allocate a small picture; untouched pages of the unused ones cost nothing."""
        shape = (self._size[1], self._size[0])
        return np.empty(shape if channels == 1 else (*shape, channels), np.uint8)

    def _cut(self, plane: NDArray[Any], shift_x: int = 0, shift_y: int = 0) -> NDArray[Any]:
        """Take the part of a plane that the placement takes; the whole one mostly."""
        if self._taken is None:
            return plane
        x, y, width, height = self._taken
        return plane[
            y >> shift_y : -(-(y + height) >> shift_y),
            x >> shift_x : -(-(x + width) >> shift_x),
        ]

    def _resize(self, plane: NDArray[Any], into: NDArray[Any]) -> None:
        cv2.resize(plane, self._size, dst=into, interpolation=self._interpolation)

    def _sample_packed(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        plane = self._cut(picture.planes[0])
        if self._gray:
            self._resize(plane, self._three)
            cv2.cvtColor(self._three, self._to_gray, dst=region)
        else:
            self._resize(plane, region)

    def _sample_alpha(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        """Lay over black before the resize: what a clear pixel hides must not bleed into its neighbours."""
        plane = self._cut(picture.planes[0])
        if self._premultiplied is None:
            self._premultiplied = np.empty(plane.shape, np.uint8)
        cv2.cvtColor(plane, cv2.COLOR_RGBA2mRGBA, dst=self._premultiplied)
        self._resize(self._premultiplied, self._four)
        cv2.cvtColor(self._four, cv2.COLOR_BGRA2GRAY if self._gray else cv2.COLOR_BGRA2BGR, dst=region)

    def _sample_gray(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        plane = self._cut(picture.planes[0])
        if self._gray:
            self._resize(plane, region)
        else:
            self._resize(plane, self._one)
            cv2.cvtColor(self._one, cv2.COLOR_GRAY2BGR, dst=region)

    def _sample_deep_gray(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        self._resize(deep_gray(self._cut(picture.planes[0])), self._deep)
        if self._gray:
            cv2.convertScaleAbs(self._deep, dst=region, alpha=1 / 257)
        else:
            cv2.convertScaleAbs(self._deep, dst=self._one, alpha=1 / 257)
            cv2.cvtColor(self._one, cv2.COLOR_GRAY2BGR, dst=region)

    def _sample_semiplanar(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        luma, chroma = picture.planes
        if self._gray:
            self._sample_luma(self._cut(luma), region)
            return
        self._resize(self._cut(luma), self._one)
        self._resize(self._cut(chroma, 1, 1), self._two)
        cv2.merge((self._one, self._two), self._three)
        cv2.transform(self._three, self._matrix, dst=region)

    def _sample_planar(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        luma, blue, red = picture.planes
        if self._gray:
            self._sample_luma(self._cut(luma), region)
            return
        shift_x = int(blue.shape[1] != luma.shape[1])
        shift_y = int(blue.shape[0] != luma.shape[0])
        self._resize(self._cut(luma), self._one)
        self._resize(self._cut(blue, shift_x, shift_y), self._other)
        self._resize(self._cut(red, shift_x, shift_y), self._third)
        cv2.merge((self._one, self._other, self._third), self._three)
        cv2.transform(self._three, self._matrix, dst=region)

    def _sample_yuyv(self, picture: Picture, region: NDArray[np.uint8]) -> None:
        """Read the plane twice: as (Y, chroma) pixels for Y, as (Y0, U, Y1, V) pairs for U and V."""
        pairs = picture.planes[0]
        pixels = pairs.reshape(pairs.shape[0], -1, 2)[:, : self._width]
        self._resize(self._cut(pixels), self._two)
        if self._gray:
            cv2.extractChannel(self._two, 0, dst=self._one)
            self._expand(self._one, region)
            return
        self._resize(self._cut(pairs, 1, 0), self._four)
        cv2.mixChannels([self._two, self._four], [self._three], [0, 0, 3, 1, 5, 2])
        cv2.transform(self._three, self._matrix, dst=region)

    def _sample_luma(self, luma: NDArray[Any], region: NDArray[np.uint8]) -> None:
        self._resize(luma, self._one)
        self._expand(self._one, region)

    def _expand(self, luma: NDArray[np.uint8], region: NDArray[np.uint8]) -> None:
        if self._levels is None:
            region[...] = luma
        else:
            cv2.LUT(luma, self._levels, dst=region)


def _order_written(pixel: PixelFormat, wanted: Colour) -> Colour:
    """Only packed colour comes in an order of its own; YUV is converted to the wanted one for nothing."""
    if wanted is Colour.GRAY:
        return wanted
    if pixel is PixelFormat.RGB24:
        return Colour.RGB
    if pixel in {PixelFormat.BGR24, PixelFormat.BGRA}:
        return Colour.BGR
    return wanted
