"""YUV to RGB: the matrices and ranges that video really uses. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vedette.wire.bundle import Colour
from vedette.wire.pixels import ColorMatrix, ColorRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Weight of red and of blue in luma: ITU-R BT.601-7 section 2.5.1, BT.709-6 item 3.2.
_LUMA_WEIGHTS = {ColorMatrix.BT601: (0.299, 0.114), ColorMatrix.BT709: (0.2126, 0.0722)}


def yuv_to_colour(matrix: ColorMatrix, color_range: ColorRange, colour: Colour) -> NDArray[np.float32]:
    """Rows for `cv2.transform` on 8-bit Y, U, V: (3, 4) for RGB or BGR, in the order of `colour`."""
    red, blue = _LUMA_WEIGHTS[matrix]
    green = 1.0 - red - blue
    luma_gain, luma_black, chroma_gain = _levels(color_range)
    red_of_v = 2 * (1 - red) * chroma_gain
    blue_of_u = 2 * (1 - blue) * chroma_gain
    rgb = np.array(
        [
            [luma_gain, 0.0, red_of_v],
            [luma_gain, -blue_of_u * blue / green, -red_of_v * red / green],
            [luma_gain, blue_of_u, 0.0],
        ]
    )
    offsets = -rgb @ np.array([luma_black, 128.0, 128.0])
    rows = np.column_stack([rgb, offsets]).astype(np.float32)
    return rows if colour is Colour.RGB else np.ascontiguousarray(rows[::-1])


def luma_to_gray(color_range: ColorRange) -> NDArray[np.uint8]:
    """Give the table of 256 entries from Y as stored to grey 0..255; the luma of the stream is the grey."""
    luma_gain, luma_black, _ = _levels(color_range)
    levels = (np.arange(256) - luma_black) * luma_gain
    return np.asarray(np.clip(np.rint(levels), 0, 255), np.uint8)


def _levels(color_range: ColorRange) -> tuple[float, float, float]:
    if color_range is ColorRange.LIMITED:
        return 255 / 219, 16.0, 255 / 224
    return 1.0, 0.0, 1.0
