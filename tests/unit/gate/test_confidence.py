"""From logits and boxes to one number, and the fits that give it its scale."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from vedette.gate.confidence import fit_temperature, score_of, scores_of
from vedette.gate.expected_error import expected_error, fit_platt, probability
from vedette.gate.matching import iou, loss_between, matched
from vedette.gate.setting import Platt, Score

LOGITS = st.lists(st.floats(-60, 60), min_size=1, max_size=12)


@given(LOGITS, st.floats(0.05, 20), st.sampled_from(Score))
def test_one_frame_and_many_frames_score_the_same(
    logits: list[float], temperature: float, score: Score
) -> None:
    row = np.array(logits, np.float32)
    one = score_of(row, score, temperature)
    assert one == scores_of(row[None], score, temperature)[0]
    assert 0.0 <= one <= 1.0


def test_equal_frames_score_equal_wherever_they_stand() -> None:
    """An int8 model gives few different logits: a threshold must not pass between equals."""
    rng = np.random.default_rng(5)
    rows = rng.integers(-128, 128, (300, 1000)).astype(np.float32) * np.float32(0.137)
    for score in Score:
        many = scores_of(np.concatenate([rows, rows[::-1]]), score, 1.3)
        assert (many[:300] == many[300:][::-1]).all()
        assert [score_of(row, score, 1.3) for row in rows] == many[:300].tolist()


def test_known_scores() -> None:
    row = np.log(np.array([0.7, 0.2, 0.1], np.float32))
    assert score_of(row, Score.MAX_SOFTMAX, 1.0) == pytest.approx(0.7)
    assert score_of(row, Score.MARGIN, 1.0) == pytest.approx(0.5)
    assert score_of(np.array([3.0]), Score.MARGIN, 1.0) == 1.0


def test_classes_that_are_excluded_take_no_part() -> None:
    row = np.array([1.0, -math.inf, 0.0])
    assert score_of(row, Score.MAX_SOFTMAX, 1.0) == pytest.approx(1 / (1 + math.exp(-1)))


def test_the_temperature_is_the_likeliest_one() -> None:
    """Logits that are three times too sure; SciPy finds the same minimum."""
    rng = np.random.default_rng(3)
    true_logits = rng.normal(0, 2, (4000, 10))
    weights = np.exp(true_logits)
    wanted = (weights.cumsum(axis=1) / weights.sum(axis=1, keepdims=True) > rng.random((4000, 1))).argmax(
        axis=1
    )

    def loss(log_temperature: float) -> float:
        scaled = 3 * true_logits / math.exp(log_temperature)
        return float(np.mean(np.log(np.exp(scaled).sum(axis=1)) - scaled[np.arange(4000), wanted]))

    oracle = math.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
    found = fit_temperature(3 * true_logits, wanted)
    assert found == pytest.approx(oracle, rel=1e-3)
    assert found == pytest.approx(3.0, rel=0.1)


def test_answers_that_name_no_class_of_ours_are_left_out_of_the_fit() -> None:
    rng = np.random.default_rng(4)
    logits, wanted = rng.normal(0, 1, (300, 4)), rng.integers(0, 4, 300)
    with_unknown = np.where(np.arange(300) < 200, wanted, -1)
    assert fit_temperature(logits, with_unknown) == fit_temperature(logits[:200], wanted[:200])
    assert fit_temperature(logits, np.full(300, -1)) == 1.0


def test_the_slope_and_offsets_that_made_the_boxes_are_found() -> None:
    rng = np.random.default_rng(5)
    truth = Platt(1.5, -1.0, {0: 0.5, 1: -2.0})
    scores, classes = rng.beta(2, 2, 20_000), rng.choice([0, 1, 7], 20_000)
    likely = np.array([probability(s, int(c), truth) for s, c in zip(scores, classes, strict=True)])
    # Class 7 has plenty of boxes here, and so an offset of its own.
    found = fit_platt(scores, classes, rng.random(20_000) < likely)
    assert found.slope == pytest.approx(1.5, abs=0.1)
    assert {kind: round(offset, 1) for kind, offset in found.offsets.items()} == pytest.approx(
        {0: 0.5, 1: -2.0, 7: -1.0}, abs=0.15
    )


def test_a_class_with_few_boxes_shares_an_offset() -> None:
    rng = np.random.default_rng(6)
    classes = np.array([0] * 500 + [1] * 5 + [2] * 5)
    found = fit_platt(rng.random(510), classes, rng.random(510) < 0.5)
    assert set(found.offsets) == {0}
    assert fit_platt(np.array([]), np.array([]), np.array([])) == Platt()


def test_an_answer_without_boxes_is_as_uncertain_as_its_candidates() -> None:
    """No boxes is a value, never "easy": what was nearly seen is expected to be missed."""
    plain = Platt()
    assert expected_error([], 0.5, plain, count_normalised=False) == 0.0
    nearly = expected_error([(0.4, 0), (0.3, 0)], 0.5, plain, count_normalised=False)
    assert nearly == pytest.approx(0.7)
    assert expected_error([(0.4, 0), (0.3, 0)], 0.5, plain, count_normalised=True) == pytest.approx(1.4)
    sure = expected_error([(0.99, 0), (0.98, 0)], 0.5, plain, count_normalised=True)
    assert sure == pytest.approx(0.03 / 2.5)


def test_boxes_are_matched_class_by_class_and_once() -> None:
    wanted = [("car", (0.0, 0.0, 10.0, 10.0)), ("dog", (20.0, 0.0, 30.0, 10.0))]
    twice = [
        ("car", (0.0, 0.0, 10.0, 9.0)),
        ("car", (0.0, 0.0, 10.0, 10.0)),
        ("cat", (20.0, 0.0, 30.0, 10.0)),
    ]
    assert matched(twice, wanted) == [True, False, False]
    assert loss_between(twice, wanted) == pytest.approx(1 - 2 / 5)
    assert loss_between([], []) == 0.0
    assert loss_between([], wanted) == 1.0


BOX = st.tuples(*[st.floats(-100, 100)] * 4)


@given(BOX, BOX)
def test_overlap_is_symmetric_and_within_0_and_1(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> None:
    assert iou(one, other) == pytest.approx(iou(other, one))
    assert 0.0 <= iou(one, other) <= 1.0 + 1e-9
