"""The hot path gives what the slow truth gives, in every format, layout and type (cases 10, 16, 19)."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.vision.oracle import bgr_of_yuv, formats, noise, upright_bgr, yuv_at

from vedette.errors import BundleError, InternalError
from vedette.vision.picture import picture_from_buffer, to_bgr
from vedette.vision.preprocess import Preprocessor
from vedette.vision.tensors import TensorInfo
from vedette.wire.bundle import Colour, InputSpec, Interpolation, Quantisation, ResizeMode, TensorLayout
from vedette.wire.pixels import YUV_FORMATS, ColorMatrix, ColorRange, FrameFormat, PixelFormat, describe

if TYPE_CHECKING:
    from numpy.typing import NDArray

NHWC, NCHW = TensorLayout.NHWC, TensorLayout.NCHW
SUBSAMPLED = [pixel for pixel in PixelFormat if pixel in YUV_FORMATS and pixel is not PixelFormat.YUV444P]


def tensor_for(spec: InputSpec, dtype: str = "uint8", scale: float = 0.0, zero_point: int = 0) -> TensorInfo:
    width, height = spec.size
    channels = 1 if spec.colour is Colour.GRAY else 3
    shape = (1, height, width, channels) if spec.layout is NHWC else (1, channels, height, width)
    return TensorInfo("image", shape, dtype, scale, zero_point)


def prepared(spec: InputSpec, tensor: TensorInfo, buffer: bytes, fmt: FrameFormat) -> NDArray[Any]:
    """The tensor as height x width x channels, whatever its layout; every element was garbage before."""
    out = np.full(tensor.shape, 99, tensor.dtype)
    Preprocessor(spec, tensor).prepare(picture_from_buffer(memoryview(buffer), fmt), out)
    seen: NDArray[Any] = out[0]
    return seen if spec.layout is NHWC else seen.transpose(1, 2, 0)


@settings(max_examples=150, deadline=None)
@given(fmt=formats(), seed=st.integers(0, 1000), colour=st.sampled_from([Colour.RGB, Colour.BGR]))
def test_at_the_models_own_size_pixels_arrive_unchanged(fmt: FrameFormat, seed: int, colour: Colour) -> None:
    """Case 16 and 19: strides, ranges, orientation and channel order against the definitions."""
    if fmt.pixel in SUBSAMPLED:
        fmt = msgspec.structs.replace(describe(fmt.width, fmt.height, PixelFormat.YUV444P), range=fmt.range)
    buffer = noise(fmt, seed)
    spec = InputSpec(fmt.upright_size, NHWC, colour)
    seen = prepared(spec, tensor_for(spec), buffer, fmt)
    truth = upright_bgr(buffer, fmt)
    assert np.abs(seen - (truth[:, :, ::-1] if colour is Colour.RGB else truth)).max() <= 1.0


@settings(max_examples=100, deadline=None)
@given(
    pixel=st.sampled_from(SUBSAMPLED),
    half=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    matrix=st.sampled_from(ColorMatrix),
    color_range=st.sampled_from(ColorRange),
    seed=st.integers(0, 1000),
)
def test_planes_are_resized_before_they_are_converted(
    pixel: PixelFormat, half: tuple[int, int], matrix: ColorMatrix, color_range: ColorRange, seed: int
) -> None:
    """Case 16: at half size, each pixel is the mean of its four Y, U and V, then converted."""
    width, height = half[0] * 2, half[1] * 2
    fmt = describe(width, height, pixel, matrix=matrix, color_range=color_range)
    buffer = noise(fmt, seed)
    spec = InputSpec(half, NCHW, Colour.BGR)
    seen = prepared(spec, tensor_for(spec), buffer, fmt)
    samples = np.array([[yuv_at(buffer, fmt, x, y) for x in range(width)] for y in range(height)], float)
    means = samples.reshape(half[1], 2, half[0], 2, 3).mean(axis=(1, 3))
    for (y, x), _ in np.ndenumerate(means[:, :, 0]):
        truth = bgr_of_yuv(tuple(means[y, x]), matrix, color_range)
        assert np.abs(seen[y, x] - truth).max() <= 2.5


@pytest.mark.parametrize("pixel", SUBSAMPLED)
@pytest.mark.parametrize("mode", ResizeMode)
@pytest.mark.parametrize("size", [(641, 479), (640, 480), (95, 201)])
def test_a_smooth_picture_looks_the_same_through_the_hot_path(
    pixel: PixelFormat, mode: ResizeMode, size: tuple[int, int]
) -> None:
    """Case 16: odd 4:2:0 included; converting small is converting full size, within a few levels."""
    fmt = describe(*size, pixel, matrix=ColorMatrix.BT709)
    buffer = bytearray(fmt.frame_bytes)
    for index, plane in enumerate(fmt.planes):
        rows = np.linspace(40, 200, plane.rows)[:, None] + np.linspace(0, 30 + 9 * index, plane.row_bytes)
        if pixel is PixelFormat.NV12 and index == 1:
            rows = rows[:, ::2].repeat(2, axis=1)[:, : plane.row_bytes]
        if pixel is PixelFormat.YUYV422:
            rows = rows[:, ::4].repeat(4, axis=1)[:, : plane.row_bytes]
        smooth = rows.astype(np.uint8).tobytes()
        buffer[plane.offset_bytes : plane.offset_bytes + len(smooth)] = smooth
    bgr = to_bgr(picture_from_buffer(memoryview(buffer), fmt))
    plain = describe(*size, PixelFormat.BGR24)
    spec = InputSpec((64, 48), NHWC, resize=mode)
    fast = prepared(spec, tensor_for(spec), bytes(buffer), fmt).astype(int)
    slow = prepared(spec, tensor_for(spec), bgr.tobytes(), plain).astype(int)
    assert np.abs(fast - slow).max() <= 5


@st.composite
def inputs(draw: st.DrawFn) -> tuple[InputSpec, TensorInfo]:
    """Any sensible combination of colour, layout, type, normalisation and quantisation."""
    colour = draw(st.sampled_from(Colour))
    channels = draw(st.sampled_from([1, 1 if colour is Colour.GRAY else 3]))
    numbers = st.floats(0, 200)
    spec = InputSpec((5, 4), draw(st.sampled_from(TensorLayout)), colour)
    match draw(st.sampled_from(["raw", "range", "mean"])):
        case "range":
            spec = msgspec.structs.replace(spec, range=draw(st.sampled_from([(-1.0, 1.0), (0.0, 1.0)])))
        case "mean":
            mean = tuple(draw(numbers) for _ in range(channels))
            std = tuple(draw(st.floats(20, 130)) for _ in range(channels))
            spec = msgspec.structs.replace(spec, mean=mean, std=std)
    dtype = draw(st.sampled_from(["uint8", "int8", "int16", "uint16", "float16", "float32"]))
    if dtype.startswith("float"):
        return spec, tensor_for(spec, dtype)
    low, high = (
        real_values(spec, np.array([0.0, 255.0])).min(),
        real_values(spec, np.array([0.0, 255.0])).max(),
    )
    scale = float(high - low) / 255
    zero_point = int(np.iinfo(dtype).min - round(low / scale))
    return spec, tensor_for(spec, dtype, scale, zero_point)


def real_values(spec: InputSpec, pixels: NDArray[Any]) -> NDArray[np.float64]:
    """The formula of the manifest's documentation, on (..., channels) or on levels of one channel."""
    values = pixels.astype(np.float64)
    if spec.range is not None:
        return spec.range[0] + values / 255 * (spec.range[1] - spec.range[0])
    if spec.mean is None or spec.std is None:
        return values
    if values.ndim == 1:
        values = values[:, None]
    return np.asarray((values - np.array(spec.mean)) / np.array(spec.std))


@settings(max_examples=200, deadline=None)
@given(
    case=inputs(), seed=st.integers(0, 1000), pixel=st.sampled_from([PixelFormat.BGR24, PixelFormat.RGB24])
)
def test_stored_values_follow_the_formula(
    case: tuple[InputSpec, TensorInfo], seed: int, pixel: PixelFormat
) -> None:
    """Case 10: normalised, rounded, shifted and clipped, in every type, layout and channel order."""
    spec, tensor = case
    fmt = describe(5, 4, PixelFormat.GRAY8 if spec.colour is Colour.GRAY else pixel)
    buffer = noise(fmt, seed)
    pixels = np.frombuffer(buffer, np.uint8).reshape(4, 5, -1)
    if spec.colour is not Colour.GRAY and (spec.colour.value == "rgb") != (pixel is PixelFormat.RGB24):
        pixels = pixels[:, :, ::-1]
    real = real_values(spec, pixels)
    seen = prepared(spec, tensor, buffer, fmt)
    if tensor.scale == 0:
        assert seen == pytest.approx(real, rel=2e-3, abs=2e-3 if tensor.dtype == "float16" else 1e-5)
        return
    limits = np.iinfo(tensor.dtype)
    exact = np.clip(real / tensor.scale + tensor.zero_point, limits.min, limits.max)
    assert np.abs(seen - exact).max() <= 0.5 + 1e-6


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point", "spec_range", "levels"),
    [
        ("int8", 1 / 255, -128, (0.0, 1.0), (-128, 0, 127)),
        ("uint8", 1 / 128, 128, (-1.0, 1.0), (0, 129, 255)),
        ("float32", 0.0, 0, (0.0, 1.0), (0.0, 128 / 255, 1.0)),
        ("int8", 0.99568, -128, None, (-128, 1, 127)),
    ],
    ids=["10a-int8", "10b-uint8", "10c-float-with-scale-0", "int8-raw-pixels"],
)
def test_black_middle_and_white_are_stored_as_the_runtime_would(
    dtype: str,
    scale: float,
    zero_point: int,
    spec_range: tuple[float, float] | None,
    levels: tuple[float, ...],
) -> None:
    """Case 10 a to c: the ends of the scale are reached and not passed."""
    spec = InputSpec((3, 1), NHWC, Colour.GRAY, range=spec_range)
    fmt = describe(3, 1, PixelFormat.GRAY8)
    seen = prepared(spec, tensor_for(spec, dtype, scale, zero_point), bytes((0, 128, 255)), fmt)
    assert seen.ravel().tolist() == pytest.approx(levels)


def test_the_manifests_quantisation_wins() -> None:
    """Some files carry none, or a wrong one: what is signed with the bundle decides."""
    spec = InputSpec((3, 1), NHWC, Colour.GRAY, quantisation=Quantisation(1.0, -128))
    seen = prepared(
        spec, tensor_for(spec, "int8", 0.5, 3), bytes((0, 128, 255)), describe(3, 1, PixelFormat.GRAY8)
    )
    assert seen.ravel().tolist() == [-128, 0, 127]


def test_letterbox_borders_go_through_the_same_normalisation() -> None:
    """Pad levels are R, G, B as in the manifest, for a BGR and an RGB frame alike, on every frame."""
    for pixel in (PixelFormat.BGR24, PixelFormat.RGB24, PixelFormat.NV12):
        fmt = describe(8, 4, pixel)
        for colour, order in ((Colour.RGB, [10, 20, 30]), (Colour.BGR, [30, 20, 10])):
            spec = InputSpec((8, 8), NHWC, colour, ResizeMode.LETTERBOX, pad=(10, 20, 30))
            preprocessor = Preprocessor(spec, tensor_for(spec))
            out = np.zeros((1, 8, 8, 3), np.uint8)
            for _ in range(2):
                out[:] = 200
                preprocessor.prepare(picture_from_buffer(memoryview(bytes(fmt.frame_bytes)), fmt), out)
                assert out[0, :2].reshape(-1, 3).tolist() == [order] * 16
                assert out[0, 6:].reshape(-1, 3).tolist() == [order] * 16
                assert out[0, 2:6].max() < 200


def test_center_crop_takes_the_middle() -> None:
    """The sides of a wide frame are not squeezed in."""
    fmt = describe(12, 4, PixelFormat.GRAY8)
    row = bytes([255] * 4 + [7] * 4 + [255] * 4)
    spec = InputSpec((4, 4), NHWC, Colour.GRAY, ResizeMode.CENTER_CROP)
    assert (prepared(spec, tensor_for(spec), row * 4, fmt) == 7).all()


@pytest.mark.parametrize("pixel", PixelFormat)
@pytest.mark.parametrize("mode", ResizeMode)
def test_the_model_sees_the_same_upright_scene_in_all_orientations(
    pixel: PixelFormat, mode: ResizeMode
) -> None:
    """Case 19: one scene stored in the eight EXIF ways gives one tensor."""
    down, across = np.mgrid[0:32, 0:48]
    scene = (4 * down + 2 * across).astype(np.uint8)
    spec = InputSpec((16, 16), NHWC, Colour.RGB, mode)
    seen = []
    for orientation in range(1, 9):
        stored = {
            1: scene,
            2: scene[:, ::-1],
            3: scene[::-1, ::-1],
            4: scene[::-1],
            5: scene.T,
            6: np.rot90(scene, 1),
            7: scene[::-1, ::-1].T,
            8: np.rot90(scene, -1),
        }[orientation]
        fmt = describe(stored.shape[1], stored.shape[0], pixel, orientation=orientation)
        seen.append(prepared(spec, tensor_for(spec), gray_frame(stored, fmt), fmt).astype(int))
    # One level of luma is 1.16 levels of colour in limited range, rounded twice.
    assert all(np.abs(other - seen[0]).max() <= 2 for other in seen[1:])
    assert seen[0].std() > 10


def gray_frame(gray: NDArray[Any], fmt: FrameFormat) -> bytes:
    """A grey scene in any format; neutral chroma, opaque alpha."""
    if fmt.pixel is PixelFormat.GRAY16LE:
        return (gray.astype("<u2") * 257).tobytes()
    if fmt.pixel is PixelFormat.YUYV422:
        return np.stack([gray, np.full_like(gray, 128)], axis=-1).tobytes()
    if fmt.pixel in YUV_FORMATS:
        return np.ascontiguousarray(gray).tobytes() + b"\x80" * (fmt.frame_bytes - gray.size)
    repeats = fmt.planes[0].row_bytes // fmt.width
    frame = gray[:, :, None].repeat(repeats, axis=2)
    if fmt.pixel is PixelFormat.BGRA:
        frame[:, :, 3] = 255
    return frame.tobytes()


@pytest.mark.parametrize("pixel", PixelFormat)
def test_a_grey_model_sees_the_luma(pixel: PixelFormat) -> None:
    """Limited range is expanded: 16 is black and 235 is white, as in colour."""
    gray = np.array([[16, 16], [235, 235]], np.uint8)
    fmt = describe(2, 2, pixel)
    spec = InputSpec((2, 2), NCHW, Colour.GRAY)
    seen = prepared(spec, tensor_for(spec), gray_frame(gray, fmt), fmt)[:, :, 0]
    expected = [[0, 0], [255, 255]] if pixel in YUV_FORMATS else gray.tolist()
    assert np.abs(seen.astype(int) - expected).max() <= 1


def test_a_colour_picture_becomes_grey_by_its_luma() -> None:
    """Red, green and blue weigh .299, .587 and .114, in whichever order they are stored."""
    spec = InputSpec((3, 1), NHWC, Colour.GRAY)
    primaries = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255]], np.uint8)
    rgb = prepared(spec, tensor_for(spec), primaries.tobytes(), describe(3, 1, PixelFormat.RGB24))
    bgr = prepared(spec, tensor_for(spec), primaries[:, ::-1].tobytes(), describe(3, 1, PixelFormat.BGR24))
    assert rgb.ravel().tolist() == bgr.ravel().tolist() == [76, 150, 29]


def test_what_a_clear_pixel_hides_does_not_bleed() -> None:
    """Case 19: alpha is laid over black before the resize, not after it."""
    fmt = describe(2, 1, PixelFormat.BGRA)
    spec = InputSpec((1, 1), NHWC, interpolation=Interpolation.AREA)
    seen = prepared(spec, tensor_for(spec), bytes((255, 255, 255, 0, 0, 0, 0, 255)), fmt)
    assert seen.ravel().tolist() == [0, 0, 0]


def test_interpolation_is_the_one_asked_for() -> None:
    """Area takes the mean, nearest a pixel that exists, both about the cell's middle."""
    row = bytes((0, 90, 30, 250, 20, 100))
    fmt = describe(6, 1, PixelFormat.GRAY8)
    for interpolation, expected in ((Interpolation.AREA, [40, 123]), (Interpolation.NEAREST, [90, 20])):
        spec = InputSpec((2, 1), NHWC, Colour.GRAY, interpolation=interpolation)
        assert prepared(spec, tensor_for(spec), row, fmt).ravel().tolist() == expected


def test_cameras_of_many_formats_share_one_preprocessor() -> None:
    """What came before leaves no trace, even when more formats pass than are remembered."""
    spec = InputSpec((8, 8), NCHW, resize=ResizeMode.LETTERBOX, range=(0.0, 1.0))
    tensor = tensor_for(spec, "float32")
    shared = Preprocessor(spec, tensor)
    out = np.zeros(tensor.shape, np.float32)
    for _ in range(2):
        for seed, (pixel, width) in enumerate(
            (pixel, width) for pixel in PixelFormat for width in (9, 16, 31)
        ):
            fmt = describe(width, 12, pixel, orientation=1 + seed % 8)
            buffer = noise(fmt, seed)
            shared.prepare(picture_from_buffer(memoryview(buffer), fmt), out)
            alone = prepared(spec, tensor, buffer, fmt)
            assert (out[0].transpose(1, 2, 0) == alone).all()
    assert len(shared._plans) <= 16


@pytest.mark.parametrize("pixel", PixelFormat)
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_frame_allocates_no_pictures(pixel: PixelFormat, dtype: str) -> None:
    """After the first frame of a format, only small Python objects come and go."""
    fmt = describe(640, 480, pixel)
    buffer = memoryview(bytes(fmt.frame_bytes))
    spec = InputSpec((96, 96), NCHW, mean=(1.0, 2.0, 3.0), std=(4.0, 5.0, 6.0))
    if dtype == "uint8":
        spec = InputSpec((96, 96), NHWC)
    tensor = tensor_for(spec, dtype)
    preprocessor, out = Preprocessor(spec, tensor), np.zeros(tensor.shape, dtype)
    preprocessor.prepare(picture_from_buffer(buffer, fmt), out)
    tracemalloc.start()
    try:
        preprocessor.prepare(picture_from_buffer(buffer, fmt), out)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8192  # one small grey picture has 9216


GOOD = InputSpec((8, 6), NHWC)


@pytest.mark.parametrize(
    ("change", "tensor", "words"),
    [
        ({}, TensorInfo("image", (1, 8, 6, 3), "uint8"), "(1, 6, 8, 3)"),
        ({}, TensorInfo("image", (1, 3, 6, 8), "uint8"), "shape (1, 3, 6, 8)"),
        ({"colour": Colour.GRAY}, TensorInfo("image", (1, 6, 8, 3), "uint8"), "gray"),
        ({}, TensorInfo("image", (1, 6, 8, 3), "int64"), "int64"),
        ({"mean": (1.0,)}, None, "go together"),
        ({"mean": (1.0,), "std": (1.0,), "range": (0.0, 1.0)}, None, "both range and mean"),
        ({"mean": (1.0, 2.0), "std": (1.0,)}, None, "input.mean has 2 values"),
        ({"mean": (1.0,), "std": (0.0,)}, None, "above 0"),
        ({"range": (1.0, 1.0)}, None, "below the second"),
        ({"pad": (1, 2)}, None, "input.pad"),
        ({"pad": (300,)}, None, "input.pad"),
        ({"size": (0, 6)}, None, "input.size"),
        ({}, TensorInfo("image", (1, 6, 8, 3), "int8"), "do not fit int8"),
        ({}, TensorInfo("image", (1, 6, 8, 3), "int8", 1 / 255, -128), "fewer than 8 levels"),
        ({"range": (0.0, 1.0)}, TensorInfo("image", (1, 6, 8, 3), "uint8"), "fewer than 8 levels"),
        ({"quantisation": Quantisation(0.5)}, TensorInfo("image", (1, 6, 8, 3), "float32"), "not quantised"),
        ({"quantisation": Quantisation(-1.0)}, None, "not a scale"),
        ({"range": (0.0, 1e6)}, TensorInfo("image", (1, 6, 8, 3), "float16"), "do not fit float16"),
    ],
)
def test_an_input_section_that_cannot_be_right_is_refused(
    change: dict[str, Any], tensor: TensorInfo | None, words: str
) -> None:
    """Case 10 and 16: before the first frame, naming both sides, never a saturated or empty picture."""
    spec = msgspec.structs.replace(GOOD, **change)
    with pytest.raises(BundleError) as refused:
        Preprocessor(spec, tensor or TensorInfo("image", (1, 6, 8, 3), "uint8"))
    assert words in refused.value.cause


def test_another_output_array_is_our_bug() -> None:
    """The engine's array is what the preprocessor was built for, or nothing is written."""
    preprocessor = Preprocessor(GOOD, tensor_for(GOOD))
    fmt = describe(4, 4, PixelFormat.BGR24)
    picture = picture_from_buffer(memoryview(bytes(48)), fmt)
    for wrong in (np.zeros((1, 6, 8, 3), np.int8), np.zeros((1, 3, 6, 8), np.uint8)):
        with pytest.raises(InternalError, match="was built for"):
            preprocessor.prepare(picture, wrong)
