"""EXIF orientation: from the pixels as stored to the picture as seen. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import cv2

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Rect(NamedTuple):
    """A rectangle of whole pixels."""

    x: int
    y: int
    width: int
    height: int


# EXIF 2.32, tag 0x0112: (transpose first, then mirror left-right, then mirror top-bottom).
_STEPS: dict[int, tuple[bool, bool, bool]] = {
    1: (False, False, False),
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, True, False),
    7: (True, True, True),
    8: (True, False, True),
}
_ROTATIONS = {3: cv2.ROTATE_180, 6: cv2.ROTATE_90_CLOCKWISE, 8: cv2.ROTATE_90_COUNTERCLOCKWISE}
_FLIPS = {2: 1, 4: 0}


def turn_upright(stored: NDArray[Any], orientation: int, upright: NDArray[Any]) -> None:
    """Write the upright picture into `upright`, which has the upright size and the same channels."""
    if orientation in _ROTATIONS:
        cv2.rotate(stored, _ROTATIONS[orientation], dst=upright)
    elif orientation in _FLIPS:
        cv2.flip(stored, _FLIPS[orientation], dst=upright)
    elif orientation == 5:
        cv2.transpose(stored, dst=upright)
    elif orientation == 7:
        cv2.flip(cv2.transpose(stored), -1, dst=upright)
    else:
        upright[...] = stored


def upright_rect(stored: Rect, width: int, height: int, orientation: int) -> Rect:
    """Where a rectangle of a stored `width` x `height` picture lies once the picture is upright."""
    transposed, mirrored, flipped = _STEPS[orientation]
    x, y, rect_width, rect_height = stored
    if transposed:
        x, y, rect_width, rect_height = y, x, rect_height, rect_width
        width, height = height, width
    if mirrored:
        x = width - x - rect_width
    if flipped:
        y = height - y - rect_height
    return Rect(x, y, rect_width, rect_height)
