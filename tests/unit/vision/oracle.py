"""The slow truth: pixel formats read one byte at a time, straight from their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from vedette.wire.pixels import ColorMatrix, ColorRange, FrameFormat, PixelFormat, describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

KR_KB = {ColorMatrix.BT601: (0.299, 0.114), ColorMatrix.BT709: (0.2126, 0.0722)}


def byte(buffer: bytes, fmt: FrameFormat, plane: int, row: int, column_byte: int) -> int:
    described = fmt.planes[plane]
    return buffer[described.offset_bytes + row * described.stride_bytes + column_byte]


def yuv_at(buffer: bytes, fmt: FrameFormat, x: int, y: int) -> tuple[int, int, int]:
    pixel = fmt.pixel
    if pixel is PixelFormat.YUYV422:
        pair = 4 * (x // 2)
        luma = byte(buffer, fmt, 0, y, pair + 2 * (x % 2))
        return luma, byte(buffer, fmt, 0, y, pair + 1), byte(buffer, fmt, 0, y, pair + 3)
    luma = byte(buffer, fmt, 0, y, x)
    if pixel is PixelFormat.NV12:
        return luma, byte(buffer, fmt, 1, y // 2, x // 2 * 2), byte(buffer, fmt, 1, y // 2, x // 2 * 2 + 1)
    half_x = 1 if pixel is PixelFormat.YUV444P else 2
    half_y = 2 if pixel is PixelFormat.YUV420P else 1
    u, v = (byte(buffer, fmt, plane, y // half_y, x // half_x) for plane in (1, 2))
    return luma, u, v


def bgr_of_yuv(yuv: tuple[int, int, int], matrix: ColorMatrix, color_range: ColorRange) -> list[float]:
    kr, kb = KR_KB[matrix]
    y, u, v = yuv
    if color_range is ColorRange.LIMITED:
        luma, cb, cr = (y - 16) / 219, (u - 128) / 224, (v - 128) / 224
    else:
        luma, cb, cr = y / 255, (u - 128) / 255, (v - 128) / 255
    red = luma + 2 * (1 - kr) * cr
    blue = luma + 2 * (1 - kb) * cb
    green = (luma - kr * red - kb * blue) / (1 - kr - kb)
    return [min(255.0, max(0.0, 255 * value)) for value in (blue, green, red)]


def bgr_at(buffer: bytes, fmt: FrameFormat, x: int, y: int) -> list[float]:
    def read(column_byte: int) -> int:
        return byte(buffer, fmt, 0, y, column_byte)

    pixel = fmt.pixel
    if pixel is PixelFormat.BGR24:
        return [read(3 * x), read(3 * x + 1), read(3 * x + 2)]
    if pixel is PixelFormat.RGB24:
        return [read(3 * x + 2), read(3 * x + 1), read(3 * x)]
    if pixel is PixelFormat.BGRA:
        return [read(4 * x + channel) * read(4 * x + 3) / 255 for channel in range(3)]
    if pixel is PixelFormat.GRAY8:
        return [read(x)] * 3
    if pixel is PixelFormat.GRAY16LE:
        return [(read(2 * x) + 256 * read(2 * x + 1)) / 257] * 3
    return bgr_of_yuv(yuv_at(buffer, fmt, x, y), fmt.matrix, fmt.range)


def upright_index(x: int, y: int, fmt: FrameFormat) -> tuple[int, int]:
    """Where stored pixel (x, y) is seen, from the table of EXIF 2.32 (row 0, column 0 of each value)."""
    right, down = fmt.width - 1 - x, fmt.height - 1 - y
    return {
        1: (x, y),
        2: (right, y),
        3: (right, down),
        4: (x, down),
        5: (y, x),
        6: (down, x),
        7: (down, right),
        8: (y, right),
    }[fmt.orientation]


def upright_bgr(buffer: bytes, fmt: FrameFormat) -> NDArray[np.float64]:
    width, height = fmt.upright_size
    picture = np.full((height, width, 3), np.nan)
    for y in range(fmt.height):
        for x in range(fmt.width):
            seen_x, seen_y = upright_index(x, y, fmt)
            picture[seen_y, seen_x] = bgr_at(buffer, fmt, x, y)
    return picture


@st.composite
def formats(draw: st.DrawFn, *, most: int = 9) -> FrameFormat:
    """Small pictures of every format, with padded rows, padded heights and orientations."""
    pixel = draw(st.sampled_from(PixelFormat))
    width, height = draw(st.integers(1, most)), draw(st.integers(1, most))
    tight = describe(width, height, pixel)
    padding = [draw(st.integers(0, 5)) for _ in tight.planes]
    return describe(
        width,
        height,
        pixel,
        strides=tuple(plane.row_bytes + pad for plane, pad in zip(tight.planes, padding, strict=True)),
        padded_height=height + draw(st.integers(0, 3)),
        matrix=draw(st.sampled_from(ColorMatrix)),
        color_range=draw(st.sampled_from(ColorRange)),
        orientation=draw(st.integers(1, 8)),
    )


def noise(fmt: FrameFormat, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, fmt.frame_bytes, np.uint8).tobytes()
