"""Pixel formats and frame geometry, shared by sources, the ring and the preprocessor. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec


class PixelFormat(str, Enum):
    """Names follow FFmpeg's `-pix_fmt`, which is what people pipe in."""

    BGR24 = "bgr24"
    RGB24 = "rgb24"
    BGRA = "bgra"
    GRAY8 = "gray8"
    GRAY16LE = "gray16le"
    YUV420P = "yuv420p"
    YUV422P = "yuv422p"
    YUV444P = "yuv444p"
    NV12 = "nv12"
    YUYV422 = "yuyv422"


class ColorMatrix(str, Enum):
    """YUV to RGB matrix."""

    BT601 = "bt601"
    BT709 = "bt709"


class ColorRange(str, Enum):
    """`limited` is 16..235 (video), `full` is 0..255 (JPEG)."""

    LIMITED = "limited"
    FULL = "full"


class Plane(msgspec.Struct, frozen=True):
    """One plane inside a frame buffer; all figures in bytes except `rows`."""

    offset_bytes: int
    stride_bytes: int
    rows: int
    row_bytes: int


# Bytes a sample, horizontal and vertical subsampling (as shifts) of each plane.
_LAYOUT: dict[PixelFormat, tuple[tuple[int, int, int], ...]] = {
    PixelFormat.BGR24: ((3, 0, 0),),
    PixelFormat.RGB24: ((3, 0, 0),),
    PixelFormat.BGRA: ((4, 0, 0),),
    PixelFormat.GRAY8: ((1, 0, 0),),
    PixelFormat.GRAY16LE: ((2, 0, 0),),
    PixelFormat.YUV420P: ((1, 0, 0), (1, 1, 1), (1, 1, 1)),
    PixelFormat.YUV422P: ((1, 0, 0), (1, 1, 0), (1, 1, 0)),
    PixelFormat.YUV444P: ((1, 0, 0), (1, 0, 0), (1, 0, 0)),
    PixelFormat.NV12: ((1, 0, 0), (2, 1, 1)),
    PixelFormat.YUYV422: ((4, 1, 0),),
}

YUV_FORMATS = frozenset(
    {
        PixelFormat.YUV420P,
        PixelFormat.YUV422P,
        PixelFormat.YUV444P,
        PixelFormat.NV12,
        PixelFormat.YUYV422,
    }
)


def _shrink(length: int, shift: int) -> int:
    """Subsampled length, rounded up: odd 4:2:0 pictures keep their last chroma sample."""
    return -(-length >> shift) if shift else length


class FrameFormat(msgspec.Struct, frozen=True, cache_hash=True):
    """Everything needed to read a frame buffer: size, planes, colour meaning.

    `width` and `height` are pixels as stored. `orientation` is the EXIF value 1..8 that makes the picture
    upright; results are always given in upright pixels. `tail_bytes` follow the last row of the last plane
    (rows that a padded height adds); they belong to the frame in a pipe and hold nothing. A `tensor` is no
    picture: its bytes are the model's input as the engine takes it (`tensor_format`).
    """

    width: int
    height: int
    pixel: PixelFormat
    planes: tuple[Plane, ...]
    matrix: ColorMatrix = ColorMatrix.BT601
    range: ColorRange = ColorRange.LIMITED
    orientation: int = 1
    tail_bytes: int = 0
    tensor: bool = False

    @property
    def frame_bytes(self) -> int:
        """Length a buffer must have to hold the frame, all padding included."""
        return max(p.offset_bytes + p.stride_bytes * p.rows for p in self.planes) + self.tail_bytes

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) after the orientation is applied."""
        if self.orientation >= 5:
            return self.height, self.width
        return self.width, self.height


def describe(
    width: int,
    height: int,
    pixel: PixelFormat,
    *,
    strides: tuple[int, ...] = (),
    padded_height: int = 0,
    matrix: ColorMatrix = ColorMatrix.BT601,
    color_range: ColorRange = ColorRange.LIMITED,
    orientation: int = 1,
) -> FrameFormat:
    """Lay planes one after the other, as raw video pipes do.

    Args:
        width: Pixels.
        height: Pixels.
        pixel: Pixel format.
        strides: Bytes from row to row for each plane; empty means tightly packed.
        padded_height: Rows really stored in the first plane (hardware encoders pad to 16); 0 means `height`.
        matrix: YUV matrix; ignored for RGB.
        color_range: YUV range; ignored for RGB.
        orientation: EXIF orientation, 1..8.

    Returns:
        The format.

    Raises:
        ValueError: A size, stride or orientation that cannot describe such a frame.
    """
    if width < 1 or height < 1:
        raise ValueError(f"a frame of {width}x{height} pixels has no pixels")
    if not 1 <= orientation <= 8:
        raise ValueError(f"orientation {orientation} is not an EXIF value (1..8)")
    layout = _LAYOUT[pixel]
    if strides and len(strides) != len(layout):
        planes_text = "1 plane" if len(layout) == 1 else f"{len(layout)} planes"
        given = "1 stride was given" if len(strides) == 1 else f"{len(strides)} strides were given"
        raise ValueError(f"{pixel.value} has {planes_text}, {given}")
    if padded_height and padded_height < height:
        raise ValueError(f"padded height {padded_height} is below the height {height}")
    stored_height = padded_height or height
    planes: list[Plane] = []
    offset = 0
    for index, (sample_bytes, shift_x, shift_y) in enumerate(layout):
        row_bytes = sample_bytes * _shrink(width, shift_x)
        stride = strides[index] if strides else row_bytes
        if stride < row_bytes:
            raise ValueError(
                f"stride {stride} of plane {index} is below the {row_bytes} bytes that a row of "
                f"{width} pixels needs in {pixel.value}"
            )
        planes.append(Plane(offset, stride, _shrink(height, shift_y), row_bytes))
        offset += stride * _shrink(stored_height, shift_y)
    last = planes[-1]
    tail_bytes = offset - last.offset_bytes - last.stride_bytes * last.rows
    return FrameFormat(width, height, pixel, tuple(planes), matrix, color_range, orientation, tail_bytes)


def tensor_format(size_bytes: int) -> FrameFormat:
    """The format of a frame that holds an input tensor of that many bytes, as one row.

    Raises:
        ValueError: A tensor without bytes.
    """
    return msgspec.structs.replace(describe(size_bytes, 1, PixelFormat.GRAY8), tensor=True)
