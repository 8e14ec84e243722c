"""Planes are read by their stride, and colours mean what the descriptor says (case 16, case 19)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.vision.oracle import KR_KB, formats, noise, upright_bgr

from vedette.errors import FrameError
from vedette.vision.picture import picture_from_buffer, to_bgr
from vedette.wire.pixels import (
    ColorMatrix,
    ColorRange,
    FrameFormat,
    PixelFormat,
    Plane,
    describe,
)

YUV = [pixel for pixel in PixelFormat if pixel.value.startswith(("yuv", "nv", "yuyv"))]


@settings(max_examples=150, deadline=None)
@given(fmt=formats(), seed=st.integers(0, 1000))
def test_every_format_reads_as_its_definition_says(fmt: FrameFormat, seed: int) -> None:
    """Case 16 and 19: any size, stride, padded height, matrix, range and orientation, within one level."""
    buffer = noise(fmt, seed)
    picture = to_bgr(picture_from_buffer(memoryview(buffer), fmt))
    truth = upright_bgr(buffer, fmt)
    assert picture.shape == truth.shape
    assert np.abs(picture - truth).max() <= 1.0


@pytest.mark.parametrize(
    ("fmt", "frame_bytes"),
    [
        (describe(641, 479, PixelFormat.BGR24, strides=(1984,)), 1984 * 479),
        (describe(1944, 1094, PixelFormat.NV12, strides=(1952, 1952), padded_height=1104), None),
        (describe(720, 576, PixelFormat.YUYV422), 1440 * 576),
        (describe(641, 479, PixelFormat.NV12), 641 * 479 + 642 * 240),
    ],
    ids=["bgr-stride-1984", "nv12-padded-to-16", "yuyv-1440-a-row", "nv12-odd"],
)
def test_the_corners_of_a_padded_frame_are_where_they_belong(
    fmt: FrameFormat, frame_bytes: int | None
) -> None:
    """Case 16: a marker in the last row and column survives padding of rows and of the height."""
    if frame_bytes is not None:
        assert fmt.frame_bytes == frame_bytes
    buffer = bytearray(fmt.frame_bytes)
    if fmt.pixel is not PixelFormat.BGR24:
        for plane in fmt.planes[1:]:
            rows = plane.stride_bytes * plane.rows
            buffer[plane.offset_bytes : plane.offset_bytes + rows] = b"\x80" * rows
    if fmt.pixel is PixelFormat.YUYV422:
        buffer[:] = b"\x00\x80" * (len(buffer) // 2)
    luma = fmt.planes[0]
    last = luma.offset_bytes + luma.stride_bytes * (fmt.height - 1)
    pixel_bytes = {PixelFormat.BGR24: 3, PixelFormat.YUYV422: 2}.get(fmt.pixel, 1)
    buffer[last + (fmt.width - 1) * pixel_bytes] = 235
    picture = to_bgr(picture_from_buffer(memoryview(buffer), fmt))
    assert np.argwhere(picture[:, :, 0] > 200).tolist() == [[fmt.height - 1, fmt.width - 1]]


@pytest.mark.parametrize("pixel", YUV)
@pytest.mark.parametrize("matrix", ColorMatrix)
@pytest.mark.parametrize("color_range", ColorRange)
def test_red_stays_red_and_black_stays_black(
    pixel: PixelFormat, matrix: ColorMatrix, color_range: ColorRange
) -> None:
    """Case 16: encode pure red and black by the standard's own formula, read them back."""
    fmt = describe(6, 4, pixel, matrix=matrix, color_range=color_range)
    primaries: tuple[tuple[int, int, int], ...] = ((0, 0, 255), (0, 0, 0), (255, 255, 255))
    for colour in primaries:
        buffer = uniform_yuv(fmt, colour)
        picture = to_bgr(picture_from_buffer(memoryview(buffer), fmt))
        assert np.abs(picture.astype(int) - np.array(colour)).max() <= 2, (colour, picture[0, 0])


def uniform_yuv(fmt: FrameFormat, bgr: tuple[int, int, int]) -> bytes:
    kr, kb = KR_KB[fmt.matrix]
    blue, green, red = (level / 255 for level in bgr)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    cb, cr = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    limited = fmt.range is ColorRange.LIMITED
    y = round(luma * 219 + 16) if limited else round(luma * 255)
    chroma_gain = 224 if limited else 255
    u, v = (min(255, round(value * chroma_gain + 128)) for value in (cb, cr))
    pixels = fmt.width * fmt.height
    if fmt.pixel is PixelFormat.YUYV422:
        return bytes((y, u, y, v)) * (pixels // 2)
    if fmt.pixel is PixelFormat.NV12:
        return bytes((y,)) * pixels + bytes((u, v)) * (pixels // 4)
    samples = fmt.planes[1].rows * fmt.planes[1].row_bytes
    return bytes((y,)) * pixels + bytes((u,)) * samples + bytes((v,)) * samples


def test_a_limited_range_ramp_fills_the_whole_scale() -> None:
    """Case 16: BT.709 limited grey 16..235 becomes 0..255, and stays grey within one level."""
    fmt = describe(220, 2, PixelFormat.YUV444P, matrix=ColorMatrix.BT709)
    ramp = bytes(range(16, 236)) * 2
    picture = to_bgr(picture_from_buffer(memoryview(ramp + b"\x80" * 880), fmt))
    assert picture[0, 0].tolist() == [0, 0, 0]
    assert picture[0, -1].tolist() == [255, 255, 255]
    assert (np.diff(picture[0, :, 1].astype(int)) >= 1).all()
    assert (picture.max(axis=2) - picture.min(axis=2) <= 1).all()


@pytest.mark.parametrize("pixel", PixelFormat)
def test_a_short_buffer_is_refused_with_wanted_and_got(pixel: PixelFormat) -> None:
    """Case 16: one byte less than the frame is an error that says both figures."""
    fmt = describe(7, 5, pixel)
    with pytest.raises(FrameError) as refused:
        picture_from_buffer(memoryview(bytes(fmt.frame_bytes - 1)), fmt)
    assert refused.value.kind == "short"
    assert f"needs {fmt.frame_bytes} bytes" in refused.value.cause
    assert f"has {fmt.frame_bytes - 1}" in refused.value.cause


@pytest.mark.parametrize(
    "planes",
    [
        (),
        (Plane(0, 20, 4, 20),),
        (Plane(0, 20, 5, 21),),
        (Plane(-8, 21, 5, 21),),
        (Plane(0, 21, 5, 21), Plane(105, 21, 5, 21)),
    ],
    ids=["none", "too-few-rows", "stride-below-the-row", "negative-offset", "too-many"],
)
def test_planes_that_contradict_the_size_are_refused(planes: tuple[Plane, ...]) -> None:
    """A descriptor from a client is checked before a byte is read."""
    fmt = FrameFormat(7, 5, PixelFormat.BGR24, planes)
    with pytest.raises(FrameError) as refused:
        picture_from_buffer(memoryview(bytes(1000)), fmt)
    assert refused.value.kind == "format"


def test_planes_are_views_that_follow_the_buffer() -> None:
    """No copy: what the producer writes later is what the picture shows."""
    fmt = describe(4, 2, PixelFormat.NV12)
    buffer = bytearray(fmt.frame_bytes)
    picture = picture_from_buffer(memoryview(buffer), fmt)
    buffer[0] = 77
    buffer[8] = 99
    assert picture.planes[0][0, 0] == 77
    assert picture.planes[1][0, 0, 0] == 99


def test_a_read_only_buffer_is_good_enough() -> None:
    """A ring maps frames read-only; nothing here needs to write to them."""
    fmt = describe(4, 2, PixelFormat.BGR24)
    assert to_bgr(picture_from_buffer(memoryview(bytes([9]) * 24), fmt)).tolist() == [[[9, 9, 9]] * 4] * 2


def test_16_bit_grey_is_scaled_not_cut() -> None:
    """Case 19: 65535 is white; the low byte alone would make 256 black."""
    fmt = describe(3, 1, PixelFormat.GRAY16LE)
    levels = np.array([0, 256 * 128, 65535], "<u2").tobytes()
    assert to_bgr(picture_from_buffer(memoryview(levels), fmt))[0, :, 0].tolist() == [0, 128, 255]


def test_what_is_clear_is_black() -> None:
    """Case 19: the written rule for alpha, whatever colour a clear pixel hides."""
    fmt = describe(3, 1, PixelFormat.BGRA)
    pixels = bytes((200, 100, 50, 0, 200, 100, 50, 255, 200, 100, 50, 128))
    picture = to_bgr(picture_from_buffer(memoryview(pixels), fmt))
    assert picture[0].tolist() == [[0, 0, 0], [200, 100, 50], [100, 50, 25]]
