"""A frame's planes as views over its buffer, and the exact full-size conversion to BGR. Pure.

Rules for what is not plain 8-bit colour:

- 16-bit grey is scaled, not cut: 65535 becomes 255 (division by 257, rounded).
- Alpha is laid over black: colour * alpha / 255, rounded.
- Subsampled chroma is repeated; an odd picture keeps its last chroma sample.
- `range` and `matrix` mean something for YUV only; grey and RGB are full range.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from vedette.errors import FrameError
from vedette.vision.colour import yuv_to_colour
from vedette.vision.orientation import turn_upright
from vedette.wire.bundle import Colour
from vedette.wire.pixels import YUV_FORMATS, FrameFormat, PixelFormat

if TYPE_CHECKING:
    from vedette.wire.pixels import Plane

_Layout = tuple[int, int, int, int]
# Horizontal and vertical subsampling (as shifts), channels and bytes a channel of each plane.
_PLANES: dict[PixelFormat, tuple[_Layout, ...]] = {
    PixelFormat.BGR24: ((0, 0, 3, 1),),
    PixelFormat.RGB24: ((0, 0, 3, 1),),
    PixelFormat.BGRA: ((0, 0, 4, 1),),
    PixelFormat.GRAY8: ((0, 0, 1, 1),),
    PixelFormat.GRAY16LE: ((0, 0, 1, 2),),
    PixelFormat.YUV420P: ((0, 0, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
    PixelFormat.YUV422P: ((0, 0, 1, 1), (1, 0, 1, 1), (1, 0, 1, 1)),
    PixelFormat.YUV444P: ((0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1)),
    PixelFormat.NV12: ((0, 0, 1, 1), (1, 1, 2, 1)),
    PixelFormat.YUYV422: ((1, 0, 4, 1),),
}


class Picture(msgspec.Struct, frozen=True, eq=False):
    """A frame in memory that somebody else owns; valid only as long as that memory is.

    `planes` are views, one per plane: (rows, columns) or (rows, columns, channels), uint8, or uint16 for
    16-bit grey. Packed YUYV is (rows, pairs of pixels, 4): Y0, U, Y1, V.
    """

    format: FrameFormat
    planes: tuple[NDArray[Any], ...]


class _View(msgspec.Struct, frozen=True):
    """Arguments of one plane's `numpy.ndarray`."""

    shape: tuple[int, ...]
    dtype: str
    offset_bytes: int
    strides_bytes: tuple[int, ...]


def picture_from_buffer(buffer: memoryview, fmt: FrameFormat) -> Picture:
    """View a frame without copying a byte.

    Raises:
        FrameError: `short` when the buffer cannot hold the frame, `format` when the planes contradict the
            picture's size.
    """
    wanted_bytes, views = _plane_views(fmt)
    if buffer.nbytes < wanted_bytes:
        raise FrameError(
            f"a {fmt.width}x{fmt.height} {fmt.pixel.value} frame needs {wanted_bytes} bytes, "
            f"the buffer has {buffer.nbytes}",
            kind="short",
            cure="state the size, pixel format and strides that the sender really uses",
        )
    planes = tuple(
        np.ndarray(view.shape, view.dtype, buffer, view.offset_bytes, view.strides_bytes) for view in views
    )
    return Picture(fmt, planes)


@lru_cache(maxsize=64)
def _plane_views(fmt: FrameFormat) -> tuple[int, tuple[_View, ...]]:
    """Check a format once; cameras repeat it 30 times a second."""
    layout = _PLANES[fmt.pixel]
    if len(fmt.planes) != len(layout):
        raise _contradiction(fmt, f"has {len(fmt.planes)} planes, not {len(layout)}")
    if min(fmt.width, fmt.height) < 1 or not 1 <= fmt.orientation <= 8:
        raise _contradiction(fmt, f"has no pixels, or the orientation {fmt.orientation} is not 1..8")
    views = tuple(_view(fmt, plane, layout[index]) for index, plane in enumerate(fmt.planes))
    return fmt.frame_bytes, views


def _view(fmt: FrameFormat, plane: Plane, layout: _Layout) -> _View:
    shift_x, shift_y, channels, depth = layout
    columns = -(-fmt.width >> shift_x)
    rows = -(-fmt.height >> shift_y)
    row_bytes = columns * channels * depth
    if plane.rows < rows or plane.row_bytes < row_bytes or plane.stride_bytes < row_bytes:
        raise _contradiction(
            fmt,
            f"has a plane of {plane.rows} rows of {plane.row_bytes} bytes at stride {plane.stride_bytes}, "
            f"{rows} rows of {row_bytes} bytes are needed",
        )
    if plane.offset_bytes < 0:
        raise _contradiction(fmt, f"has a plane at offset {plane.offset_bytes}")
    if channels == 1:
        return _View((rows, columns), f"<u{depth}", plane.offset_bytes, (plane.stride_bytes, depth))
    strides = (plane.stride_bytes, channels * depth, depth)
    return _View((rows, columns, channels), f"<u{depth}", plane.offset_bytes, strides)


def _contradiction(fmt: FrameFormat, what: str) -> FrameError:
    return FrameError(
        f"a {fmt.width}x{fmt.height} {fmt.pixel.value} frame {what}",
        kind="format",
        cure="describe the frame with its real planes, or leave the planes to vedette.wire.pixels.describe",
    )


def to_bgr(picture: Picture) -> NDArray[np.uint8]:
    """Convert the whole frame, upright, for annotation and previews; the hot path never does this.

    Returns:
        A new (height, width, 3) array in upright pixels.
    """
    fmt = picture.format
    stored = _yuv_to_bgr(picture) if fmt.pixel in YUV_FORMATS else _plain_to_bgr(picture)
    if fmt.orientation == 1:
        return stored
    width, height = fmt.upright_size
    upright = np.empty((height, width, 3), np.uint8)
    turn_upright(stored, fmt.orientation, upright)
    return upright


def deep_gray(plane: NDArray[Any]) -> NDArray[Any]:
    """Give a 16-bit plane that OpenCV can read: it refuses a stride that is not whole samples."""
    return plane.copy() if plane.strides[0] % 2 else plane


def _plain_to_bgr(picture: Picture) -> NDArray[np.uint8]:
    plane = picture.planes[0]
    pixel = picture.format.pixel
    if pixel is PixelFormat.BGR24:
        return np.array(plane)
    if pixel is PixelFormat.RGB24:
        return np.asarray(cv2.cvtColor(plane, cv2.COLOR_RGB2BGR))
    if pixel is PixelFormat.BGRA:
        return np.asarray(cv2.cvtColor(cv2.cvtColor(plane, cv2.COLOR_RGBA2mRGBA), cv2.COLOR_BGRA2BGR))
    if pixel is PixelFormat.GRAY16LE:
        plane = cv2.convertScaleAbs(deep_gray(plane), alpha=1 / 257)
    return np.asarray(cv2.cvtColor(plane, cv2.COLOR_GRAY2BGR))


def _yuv_to_bgr(picture: Picture) -> NDArray[np.uint8]:
    fmt = picture.format
    yuv = np.empty((fmt.height, fmt.width, 3), np.uint8)
    y, u, v = _full_channels(picture)
    yuv[:, :, 0] = y
    yuv[:, :, 1] = u
    yuv[:, :, 2] = v
    return np.asarray(cv2.transform(yuv, yuv_to_colour(fmt.matrix, fmt.range, Colour.BGR)))


def _full_channels(picture: Picture) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Y, U and V, each of the picture's full size."""
    fmt = picture.format
    first = picture.planes[0]
    if fmt.pixel is PixelFormat.YUYV422:
        luma = first.reshape(fmt.height, -1, 2)[:, : fmt.width, 0]
        chroma = first[:, :, 1], first[:, :, 3]
    elif fmt.pixel is PixelFormat.NV12:
        luma = first
        chroma = picture.planes[1][:, :, 0], picture.planes[1][:, :, 1]
    else:
        luma = first
        chroma = picture.planes[1], picture.planes[2]
    return luma, _repeated(chroma[0], fmt), _repeated(chroma[1], fmt)


def _repeated(chroma: NDArray[Any], fmt: FrameFormat) -> NDArray[Any]:
    repeat_y = 1 if chroma.shape[0] == fmt.height else 2
    repeat_x = 1 if chroma.shape[1] == fmt.width else 2
    full: NDArray[Any] = chroma.repeat(repeat_y, axis=0).repeat(repeat_x, axis=1)
    return full[: fmt.height, : fmt.width]
