"""Where a frame lies in the model's input, and the way back. Pure.

Coordinates are continuous: pixel i covers [i, i + 1), so the right edge of a picture 640 wide is 640.0.
The integers that the forward step really used (crop, resized size, pads) are kept, never derived a second
time (casebook 23).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vedette.vision.orientation import Rect, upright_rect
from vedette.wire.bundle import ResizeMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.wire.pixels import FrameFormat


class Placement(msgspec.Struct, frozen=True):
    """How one frame was put into the model's input.

    Attributes:
        frame_size: Width, height of the upright original.
        model_size: Width, height of the model's input.
        taken: The part that was resized, in pixels as stored.
        crop: The same part in upright pixels.
        region: Where it went, in model pixels; what is outside of it is padding.
    """

    frame_size: tuple[int, int]
    model_size: tuple[int, int]
    taken: Rect
    crop: Rect
    region: Rect

    def to_frame(self, coordinates: NDArray[Any]) -> NDArray[np.float64]:
        """Map model pixels to upright original pixels, clipped to the frame.

        Args:
            coordinates: Any shape whose last axis is x, y, x, y, ...: points (..., 2) or boxes (..., 4).

        Returns:
            The same shape.
        """
        mapped = _moved(coordinates, self.region, self.crop)
        np.maximum(mapped, 0.0, out=mapped)
        np.minimum(mapped, self.frame_size, out=mapped)
        return mapped.reshape(coordinates.shape)

    def to_model(self, coordinates: NDArray[Any]) -> NDArray[np.float64]:
        """Map upright original pixels to model pixels; what was cropped away lands outside of the input."""
        return _moved(coordinates, self.crop, self.region).reshape(coordinates.shape)


def _moved(coordinates: NDArray[Any], here: Rect, there: Rect) -> NDArray[np.float64]:
    """Carry x, y pairs from one rectangle to the other; (n, 2) in double precision."""
    pairs = coordinates.reshape(-1, 2).astype(np.float64)
    pairs -= here[:2]
    pairs *= (there.width / here.width, there.height / here.height)
    pairs += there[:2]
    return pairs


def place(frame: FrameFormat, model_size: tuple[int, int], mode: ResizeMode) -> Placement:
    """Decide once, in whole pixels, which part of the frame goes where in the model's input."""
    whole = Rect(0, 0, frame.width, frame.height)
    taken = _central_part(frame, model_size) if mode is ResizeMode.CENTER_CROP else whole
    crop = upright_rect(taken, frame.width, frame.height, frame.orientation)
    region = Rect(0, 0, *model_size)
    if mode is ResizeMode.LETTERBOX:
        region = _fitted(frame.upright_size, model_size)
    return Placement(frame.upright_size, model_size, taken, crop, region)


def _central_part(frame: FrameFormat, model_size: tuple[int, int]) -> Rect:
    """Give the largest central part with the model's aspect ratio, in pixels as stored."""
    model_width, model_height = model_size if frame.orientation < 5 else (model_size[1], model_size[0])
    width = min(frame.width, max(1, round(frame.height * model_width / model_height)))
    height = min(frame.height, max(1, round(frame.width * model_height / model_width)))
    # Even corners, so that a subsampled chroma plane is cut at the very same place.
    return Rect((frame.width - width) // 2 & ~1, (frame.height - height) // 2 & ~1, width, height)


def _fitted(frame_size: tuple[int, int], model_size: tuple[int, int]) -> Rect:
    """Give the largest centred region with the frame's aspect ratio, in model pixels."""
    ratio = min(model_size[0] / frame_size[0], model_size[1] / frame_size[1])
    width = min(model_size[0], max(1, round(frame_size[0] * ratio)))
    height = min(model_size[1], max(1, round(frame_size[1] * ratio)))
    return Rect((model_size[0] - width) // 2, (model_size[1] - height) // 2, width, height)
