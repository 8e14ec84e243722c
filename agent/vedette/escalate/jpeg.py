"""Pictures as JPEG, without any metadata. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2

from vedette.errors import FrameError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def encode_jpeg(picture: NDArray[np.uint8], quality: int) -> bytes:
    """A picture (height, width, 3), BGR, as a JPEG file.

    Raises:
        FrameError: `encode`: it is larger than JPEG allows.
    """
    done, packed = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        size = f"{picture.shape[1]}x{picture.shape[0]}"
        raise FrameError(f"a picture of {size} pixels is no JPEG", kind="encode", cure="lower `max_side`")
    return bytes(packed.tobytes())
