"""Compressed pictures to pixels, by written rules. Pure; the only place that calls OpenCV's still decoders.

- EXIF orientation is not applied to the pixels; it is returned, so that it is applied exactly once, later.
  (TIFF: OpenCV always applies its orientation tag itself, so 1 is returned.)
- 8-bit grey stays one channel, palettes become BGR, CMYK JPEG becomes BGR as OpenCV converts it (Adobe's
  inverted CMYK included). CMYK TIFF is refused: OpenCV cannot be told which of its four-channel results it
  is.
- Alpha is laid over black. 16 bits are scaled by 1/257, rounded: 65535 becomes 255. Floating point is
  refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import numpy as np

from vedette.errors import FrameError, OutOfMemoryError
from vedette.source.entropy import is_whole
from vedette.source.exif import PNG_MAGIC, png_orientation, webp_orientation
from vedette.source.jpeg import SOI, damaged, examine
from vedette.wire.pixels import FrameFormat, PixelFormat, describe

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy.typing as npt

    Pixels: TypeAlias = npt.NDArray[np.uint8]

OPENCV_NO_MEMORY = -4
TIFF_MAGICS = (b"II*\x00", b"MM\x00*")
PHOTOMETRIC_TAG, PHOTOMETRIC_SEPARATED = 0x0106, 5


def decode_picture(data: bytes) -> tuple[FrameFormat, Pixels]:
    """Decode JPEG, PNG, WebP, BMP or TIFF.

    Returns:
        The format (bgr24 or gray8, with the EXIF orientation), and [height, width(, 3)] contiguous pixels.

    Raises:
        FrameError: Damaged, or a kind of picture that the rules above refuse; `kind` is `damaged` or
            `unsupported`.
        OutOfMemoryError: The picture is larger than what can be allocated.
    """
    orientation = 1
    if data.startswith(SOI):
        structure = examine(data)
        orientation = structure.orientation
        pixels = _to_8_bit_bgr(_imdecode(data))
        if not is_whole(data, structure, pixels):
            raise damaged("its picture data ends early")
    else:
        if data.startswith(PNG_MAGIC):
            orientation = png_orientation(data)
        elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            orientation = webp_orientation(data)
        elif data.startswith(TIFF_MAGICS) and _is_cmyk_tiff(data):
            raise FrameError("a CMYK TIFF", kind="unsupported", cure="convert it to RGB")
        pixels = _to_8_bit_bgr(_imdecode(data))
    return format_of(pixels, orientation=orientation), pixels


def format_of(pixels: Pixels, *, orientation: int = 1) -> FrameFormat:
    """The tight format of BGR or grey pixels."""
    pixel = PixelFormat.BGR24 if pixels.ndim == 3 else PixelFormat.GRAY8
    return describe(pixels.shape[1], pixels.shape[0], pixel, orientation=orientation)


def copy_into(memory: memoryview, pixels: Pixels) -> None:
    """Copy tight pixels into lent memory (OpenCV's imdecode takes no destination from Python)."""
    np.copyto(np.frombuffer(memory, np.uint8, count=pixels.size), pixels.reshape(-1))


def _imdecode(data: bytes) -> npt.NDArray[np.generic]:
    try:
        pixels: npt.NDArray[np.generic] | None = cv2.imdecode(
            np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED
        )
    except cv2.error as error:
        if error.code == OPENCV_NO_MEMORY:
            raise OutOfMemoryError("no memory to decode a picture") from error
        raise FrameError(f"the picture cannot be decoded: {error.err}", kind="damaged") from error
    if pixels is None:
        raise FrameError("the picture is damaged, or of a kind that OpenCV does not read", kind="damaged")
    return pixels


def _to_8_bit_bgr(pixels: npt.NDArray[np.generic]) -> Pixels:
    if pixels.dtype == np.uint16:
        scaled = np.rint(pixels.astype(np.float32) / 257.0).astype(np.uint8)
    elif pixels.dtype == np.uint8:
        scaled = pixels.astype(np.uint8, copy=False)
    else:
        raise FrameError(
            f"a picture of {pixels.dtype} samples", kind="unsupported", cure="convert it to 8 or 16 bits"
        )
    if scaled.ndim == 3 and scaled.shape[2] == 4:
        alpha = scaled[:, :, 3:].astype(np.uint16)
        scaled = ((scaled[:, :, :3] * alpha + 127) // 255).astype(np.uint8)
    if scaled.ndim == 3 and scaled.shape[2] == 1:
        scaled = scaled[:, :, 0]
    if scaled.ndim not in (2, 3) or (scaled.ndim == 3 and scaled.shape[2] != 3):
        raise FrameError(f"a picture of shape {scaled.shape}", kind="unsupported", cure="convert it to RGB")
    return np.ascontiguousarray(scaled)


def _is_cmyk_tiff(data: bytes) -> bool:
    """Looks at the first directory's PhotometricInterpretation (TIFF 6.0, section 16)."""
    little = data.startswith(b"II")

    def number(at: int, size_bytes: int) -> int:
        return int.from_bytes(data[at : at + size_bytes], "little" if little else "big")

    directory = number(4, 4)
    for index in range(number(directory, 2)):
        entry = directory + 2 + 12 * index
        if number(entry, 2) == PHOTOMETRIC_TAG:
            return number(entry + 8, 2) == PHOTOMETRIC_SEPARATED
    return False
