"""There and back: the inverse uses the very integers of the forward step (case 23)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.vision.geometry import Placement, place
from vedette.vision.picture import picture_from_buffer
from vedette.vision.preprocess import Preprocessor
from vedette.vision.tensors import TensorInfo
from vedette.wire.bundle import Colour, InputSpec, ResizeMode, TensorLayout
from vedette.wire.pixels import FrameFormat, PixelFormat, describe

CASE_23 = [(1300, 481), (1298, 719), (1999, 539), (1366, 767), (641, 479)]


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    sides = st.integers(1, 8000)
    frame = describe(draw(sides), draw(sides), PixelFormat.GRAY8, orientation=draw(st.integers(1, 8)))
    model = draw(st.integers(16, 1280)), draw(st.integers(16, 1280))
    return place(frame, model, draw(st.sampled_from(ResizeMode)))


@settings(max_examples=300, deadline=None)
@given(placement=placements(), across=st.floats(0, 1), down=st.floats(0, 1))
def test_a_point_of_the_frame_comes_back(placement: Placement, across: float, down: float) -> None:
    """Within a thousandth of a pixel, for every mode, orientation and size."""
    crop = placement.crop
    point = np.array([crop.x + across * crop.width, crop.y + down * crop.height])
    there = placement.to_model(point)
    assert (there >= -1e-6).all()
    assert (there <= np.array(placement.model_size) + 1e-6).all()
    assert placement.to_frame(there) == pytest.approx(point, abs=1e-3)


@settings(max_examples=200, deadline=None)
@given(placement=placements(), box=st.tuples(*[st.floats(-5000, 5000)] * 4))
def test_boxes_never_leave_the_frame(placement: Placement, box: tuple[float, float, float, float]) -> None:
    """Case 23: clipped to the upright frame, whatever the model says."""
    x1, y1, x2, y2 = placement.to_frame(np.array([box]))[0]
    width, height = placement.frame_size
    assert 0 <= min(x1, x2) <= max(x1, x2) <= width
    assert 0 <= min(y1, y2) <= max(y1, y2) <= height


@settings(max_examples=200, deadline=None)
@given(placement=placements())
def test_the_integers_lie_inside(placement: Placement) -> None:
    """Crop inside the frame, region inside the input, both with at least one pixel."""
    for rect, size in ((placement.crop, placement.frame_size), (placement.region, placement.model_size)):
        assert min(rect.width, rect.height) >= 1
        assert min(rect.x, rect.y) >= 0
        assert rect.x + rect.width <= size[0]
        assert rect.y + rect.height <= size[1]


def edges(profile: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    """Sub-pixel edges of a bright block on black: its first and last pixels count by their brightness."""
    bright = np.flatnonzero(profile > 0.02)
    inside = np.flatnonzero(profile > 0.98)
    before = profile[bright[0] : inside[0]].sum()
    after = profile[inside[-1] + 1 : bright[-1] + 1].sum()
    return float(inside[0] - before), float(inside[-1] + 1 + after)


@pytest.mark.parametrize("size", CASE_23)
@pytest.mark.parametrize("mode", ResizeMode)
@pytest.mark.parametrize("orientation", [1, 6])
def test_drawn_corners_are_found_again(size: tuple[int, int], mode: ResizeMode, orientation: int) -> None:
    """Case 23: draw a block, let the real preprocessor place it, map its edges back: half a model pixel."""
    stored_width, stored_height = size if orientation == 1 else size[::-1]
    fmt = describe(stored_width, stored_height, PixelFormat.GRAY8, orientation=orientation)
    width, height = fmt.upright_size
    assert (width, height) == size
    middle, third = width // 2, height // 3
    drawn = (middle - height // 4, third, middle + height // 4, height - third // 2)
    upright = np.zeros((height, width), np.uint8)
    upright[drawn[1] : drawn[3], drawn[0] : drawn[2]] = 255
    stored = upright if orientation == 1 else np.ascontiguousarray(np.rot90(upright, 1))
    spec = InputSpec((640, 640), TensorLayout.NHWC, Colour.GRAY, mode, pad=(0,))
    out = np.zeros((1, 640, 640, 1), np.uint8)
    placement = Preprocessor(spec, TensorInfo("image", out.shape, "uint8")).prepare(
        picture_from_buffer(memoryview(stored.tobytes()), fmt), out
    )
    seen = out[0, :, :, 0] / 255.0
    x1, x2 = edges(seen.max(axis=0))
    y1, y2 = edges(seen.max(axis=1))
    found = placement.to_frame(np.array([x1, y1, x2, y2]))
    model_pixel = np.array(
        [placement.crop.width / placement.region.width, placement.crop.height / placement.region.height] * 2
    )
    assert (np.abs(found - drawn) <= 0.5 * model_pixel).all(), (found, drawn)


@pytest.mark.parametrize(("size", "top"), [((1300, 481), 201), ((1298, 719), 142), ((1999, 539), 233)])
def test_the_pad_is_a_whole_number_of_the_forward_step(size: tuple[int, int], top: int) -> None:
    """Case 23: the pads that people re-derive wrongly; the inverse takes them from the placement."""
    placement = place(describe(*size, PixelFormat.GRAY8), (640, 640), ResizeMode.LETTERBOX)
    assert placement.region.y == top
    assert placement.to_frame(np.array([0.0, placement.region.y])).tolist() == [0.0, 0.0]
    bottom = placement.region.y + placement.region.height
    assert placement.to_frame(np.array([640.0, bottom])) == pytest.approx(size)


def test_points_and_boxes_keep_their_shape() -> None:
    """(n, 4) boxes, (n, k, 2) key points and nothing at all go through the same door."""
    fmt: FrameFormat = describe(100, 50, PixelFormat.GRAY8)
    placement = place(fmt, (10, 10), ResizeMode.STRETCH)
    assert placement.to_frame(np.zeros((0, 4))).shape == (0, 4)
    assert placement.to_frame(np.ones((3, 6, 2))).shape == (3, 6, 2)
    assert placement.to_frame(np.array([[1, 2, 3, 4]])).tolist() == [[10.0, 10.0, 30.0, 20.0]]
