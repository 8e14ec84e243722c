"""Suppression against a brute-force oracle, and the quarrels of case 24."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.vision.nms import suppress
from vedette.vision.ranking import best_few, best_first
from vedette.wire.bundle import Nms

if TYPE_CHECKING:
    from numpy.typing import NDArray

Box = tuple[float, float, float, float]


def iou(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(0.0, width) * max(0.0, height)
    union = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - shared
    return shared / union if union > 0 else 0.0


def brute_force(boxes: list[Box], scores: list[float], classes: list[int], rules: Nms) -> list[int]:
    order = sorted(range(len(boxes)), key=lambda index: (-scores[index], index))[: rules.max_candidates]
    kept: list[int] = []
    for index in order:
        rivals = [one for one in kept if rules.class_agnostic or classes[one] == classes[index]]
        if all(iou(boxes[one], boxes[index]) <= rules.iou for one in rivals):
            kept.append(index)
    return kept[: rules.max_detections]


def kept(boxes: list[Box], scores: list[float], classes: list[int], rules: Nms) -> list[int]:
    corners = np.array(boxes, np.float32).reshape(-1, 4)
    return [int(one) for one in suppress(corners, np.array(scores), np.array(classes, np.intp), rules)]


@st.composite
def heaps(draw: st.DrawFn) -> tuple[list[Box], list[float], list[int]]:
    """Whole coordinates on a small grid: many overlaps, many exact ties of score and of IoU."""
    at = draw(st.sampled_from([0, 7600]))
    side = st.integers(1, 6)
    corner = st.integers(at, at + 8)
    count = draw(st.integers(0, 12))
    boxes: list[Box] = []
    for _ in range(count):
        x, y, width, height = draw(corner), draw(corner), draw(side), draw(side)
        boxes.append((x, y, x + width, y + height))
    scores = [draw(st.sampled_from([0.25, 0.5, 0.75, 0.9])) for _ in range(count)]
    return boxes, scores, [draw(st.sampled_from([0, 1, 79])) for _ in range(count)]


@settings(max_examples=300, deadline=None)
@given(
    heap=heaps(),
    threshold=st.sampled_from([0.3, 0.45, 0.7]),
    agnostic=st.booleans(),
    most=st.sampled_from([3, 300]),
)
def test_the_same_boxes_stay_as_by_brute_force(
    *, heap: tuple[list[Box], list[float], list[int]], threshold: float, agnostic: bool, most: int
) -> None:
    """Case 24: per class or across, ties by index, top-k cut before and after."""
    rules = Nms(threshold, agnostic, max_candidates=most * 3, max_detections=most)
    assert kept(*heap, rules) == brute_force(*heap, rules)


RIDER: Box = (100.0, 100.0, 200.0, 200.0)
BICYCLE: Box = (100.0, 105.0, 200.0, 205.0)


@pytest.mark.parametrize(
    ("classes", "agnostic", "stay"),
    [([0, 1], False, [0, 1]), ([0, 1], True, [0]), ([1, 1], False, [0])],
    ids=["rider-and-bicycle", "class-agnostic", "same-class"],
)
def test_a_rider_is_not_swallowed_by_the_bicycle(
    *, classes: list[int], agnostic: bool, stay: list[int]
) -> None:
    """Case 24: IoU 0.9 in different classes stays by default, by option it does not."""
    assert iou(RIDER, BICYCLE) > 0.9
    assert kept([RIDER, BICYCLE], [0.9, 0.8], classes, Nms(0.45, agnostic)) == stay


@pytest.mark.parametrize("class_index", [0, 79])
def test_wide_pictures_lose_no_precision(class_index: int) -> None:
    """Case 24: at 7680 px and class 79, an IoU just above and just below the threshold is told apart."""
    left: Box = (7660.0, 4300.0, 7670.0, 4310.0)
    above: Box = (7662.0, 4300.0, 7672.0, 4310.0)  # IoU 8/12
    boxes, classes = [left, above], [class_index] * 2
    assert kept(boxes, [0.9, 0.8], classes, Nms(8 / 12 + 1e-4)) == [0, 1]
    assert kept(boxes, [0.9, 0.8], classes, Nms(8 / 12 - 1e-4)) == [0]


def test_25200_candidates_are_bounded_in_time() -> None:
    """Case 24: a frame of noise costs milliseconds, not seconds, thanks to the cut."""
    random = np.random.default_rng(1)
    corners = random.uniform(0, 600, (25200, 2))
    boxes = np.concatenate([corners, corners + random.uniform(1, 40, (25200, 2))], axis=1)
    scores = random.uniform(0.3, 1, 25200)
    start_s = time.perf_counter()
    stay = suppress(boxes, scores, np.zeros(25200, np.intp), Nms())
    assert time.perf_counter() - start_s < 5
    assert len(stay) == 300
    assert (np.diff(scores[stay]) <= 0).all()


@settings(max_examples=200, deadline=None)
@given(
    scores=st.lists(st.sampled_from([-3, -1, 0, 1, 5, 127]), max_size=40),
    count=st.integers(0, 45),
    dtype=st.sampled_from(["int8", "uint8", "int16", "float32", "float64"]),
)
def test_the_best_come_first_and_ties_keep_their_order(scores: list[int], count: int, dtype: str) -> None:
    """The order of equal scores is the order of their indices, in every type."""
    values: NDArray[np.generic] = (
        np.abs(scores).astype(dtype) if dtype == "uint8" else np.array(scores, dtype)
    )
    ranked = sorted(range(len(scores)), key=lambda index: (-float(values[index]), index))
    assert best_first(values, count).tolist() == ranked[:count]
    assert best_few(values, count) == (ranked[:count], values[ranked[:count]].tolist())
