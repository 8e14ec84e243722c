"""From audits to a threshold, how well the box agrees, and when the world changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vedette.gate.agreement import AgreementTally
from vedette.gate.binomial import least_samples
from vedette.gate.calibrate import AuditedBoxes, Promise, calibrate_boxes, calibrate_classes, samples_needed
from vedette.gate.confidence import scores_of
from vedette.gate.coverage import held_epsilon
from vedette.gate.drift import Adwin, PageHinkley
from vedette.gate.setting import GateMode, Score
from vedette.wire.escalation import Guarantee

Array = np.ndarray[Any, np.dtype[Any]]
RNG = np.random.default_rng(17)


def audits(count: int) -> tuple[Array, Array, Array]:
    """Logits of five classes, twice too sure; the local answers, and a large model that knows the truth."""
    truth = RNG.integers(0, 5, count)
    logits = RNG.normal(0, 1.2, (count, 5))
    logits[np.arange(count), truth] += 3.0
    return 4 * logits, logits.argmax(axis=1), truth


# Calibration ------------------------------------------------------------------------------------------------


def test_a_calibration_promises_what_holds_on_other_frames() -> None:
    logits, local, cloud = audits(2000)
    scenes = [str(n) for n in range(2000)]
    found = calibrate_classes(logits, local, cloud, scenes, promise=Promise(0.02))
    assert (found.mode, found.guarantee) == (GateMode.CALIBRATED, Guarantee.AGREEMENT)
    assert (found.samples, found.needed) == (1600, 149)
    logits, local, cloud = audits(20_000)
    kept = scores_of(logits, Score.MAX_SOFTMAX, found.temperature) >= found.threshold
    assert float((kept & (local != cloud)).mean()) <= 0.02
    assert float(kept.mean()) > 0.5
    assert found.temperature > 1.5  # it was too sure


def test_too_few_audits_are_no_calibration_and_that_is_said() -> None:
    logits, local, cloud = audits(148)
    found = calibrate_classes(logits, local, cloud, [str(n) for n in range(148)], promise=Promise(0.02))
    assert (found.mode, found.guarantee) == (GateMode.UNCALIBRATED, Guarantee.NONE)
    assert (found.threshold, found.samples, found.needed) == (0.98, 148, 149)
    empty = calibrate_classes(logits[:0], local[:0], cloud[:0], [], promise=Promise(0.02))
    assert (empty.mode, empty.samples) == (GateMode.UNCALIBRATED, 0)


def test_all_looks_together_spend_delta_and_no_more() -> None:
    """Calibrating each day until it passes would break one promise in twenty each day."""
    promise = Promise(0.02, 0.05)
    looks = [promise.of_look(number) for number in range(1, 5001)]
    assert sum(look.delta for look in looks) == pytest.approx(0.05, rel=1e-3)
    assert sum(look.delta for look in looks) < 0.05
    assert {look.epsilon for look in looks} == {0.02}
    needed = [least_samples(look.epsilon, look.delta) for look in (looks[0], looks[9], looks[99])]
    assert needed == [173, 401, 629]
    with pytest.raises(ValueError, match="the first one is 1"):
        promise.of_look(0)


def test_near_duplicates_of_one_scene_count_once() -> None:
    """A thousand frames of a parked car are one observation: 27 to 41 % of promises broke otherwise."""
    logits, local, cloud = audits(1000)
    found = calibrate_classes(
        logits, local, cloud, [f"scene {n % 50}" for n in range(1000)], promise=Promise(0.02)
    )
    assert (found.mode, found.samples) == (GateMode.UNCALIBRATED, 50)


def test_a_large_model_that_names_no_class_of_ours_disagrees() -> None:
    logits, local, _ = audits(500)
    found = calibrate_classes(
        logits, local, np.full(500, -1), [str(n) for n in range(500)], promise=Promise(0.05)
    )
    assert found.mode is GateMode.CALIBRATED
    kept = scores_of(logits, Score.MAX_SOFTMAX, found.temperature) >= found.threshold
    assert float(kept.mean()) <= 0.05


def test_a_selective_promise_bounds_errors_among_what_is_kept() -> None:
    logits, local, cloud = audits(3000)
    found = calibrate_classes(
        logits, local, cloud, [str(n) for n in range(3000)], promise=Promise(0.05, selective=True)
    )
    assert found.guarantee is Guarantee.SELECTIVE
    logits, local, cloud = audits(20_000)
    kept = scores_of(logits, Score.MAX_SOFTMAX, found.temperature) >= found.threshold
    assert float((local != cloud)[kept].mean()) <= 0.05


def test_a_detector_is_calibrated_on_its_boxes() -> None:
    """Each frame has up to four objects, seen the better the higher the score."""

    def frames(count: int) -> list[AuditedBoxes]:
        made = []
        for _ in range(count):
            scores = RNG.beta(3, 1, RNG.integers(0, 5))
            hits = RNG.random(scores.size) < scores
            kept = scores >= 0.5
            wrong, missed = int((kept & ~hits).sum()), int((~kept & hits).sum())
            right = int((kept & hits).sum())
            loss = 0.0 if right + wrong + missed == 0 else 1 - 2 * right / (2 * right + wrong + missed)
            boxes = tuple((float(s), 0, bool(h)) for s, h in zip(scores, hits, strict=True))
            made.append(AuditedBoxes(boxes, loss))
        return made

    found = calibrate_boxes(frames(1200), [str(n) for n in range(1200)], Promise(0.1), 0.5)
    assert (found.mode, found.guarantee) == (GateMode.CALIBRATED, Guarantee.AGREEMENT)
    assert calibrate_boxes([], [], Promise(0.1), 0.5).mode is GateMode.UNCALIBRATED
    with pytest.raises(ValueError, match="selective"):
        calibrate_boxes([], [], Promise(0.1, selective=True), 0.5)


# Agreement --------------------------------------------------------------------------------------------------


def test_audits_with_unequal_odds_are_weighed_by_them() -> None:
    """A burst of audits in a bad hour must not make the whole day look bad."""
    tally = AgreementTally()
    assert tally.estimate() is None
    for number in range(10_000):
        bad_hour = number >= 9000
        inclusion = 0.1 if bad_hour else 0.02
        tally.frame(corrected=False)
        if RNG.random() < inclusion:
            tally.audit(agreed=bool(RNG.random() < (0.5 if bad_hour else 0.95)), inclusion=inclusion)
    found = tally.estimate()
    assert found is not None
    assert found.share == pytest.approx(0.905, abs=0.06)
    assert found.low < 0.905 < found.high


def test_frames_that_the_large_model_answered_agree_with_it() -> None:
    tally = AgreementTally()
    for number in range(100):
        tally.frame(corrected=number < 40)
    for number in range(20):
        tally.audit(agreed=number < 15, inclusion=0.2)
    found = tally.estimate()
    assert found is not None
    assert found.share == pytest.approx(0.4 + 0.6 * 0.75)
    assert found.audits == 20
    with pytest.raises(ValueError, match="probability 0"):
        tally.audit(agreed=True, inclusion=0.0)


def test_what_was_not_asked_for_want_of_money_is_taken_off_the_promise() -> None:
    assert held_epsilon(0.02, 0.03) == pytest.approx(0.05)
    assert held_epsilon(0.02, 0.99) == 1.0


# Drift ------------------------------------------------------------------------------------------------------


def test_a_drop_of_confidence_is_seen_within_300_frames_and_nothing_in_clean_ones() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        adwin = Adwin()
        assert not any(adwin.add(value) for value in rng.beta(8, 1, 12_000))
        seen = next(n for n, value in enumerate(rng.beta(3, 2, 300)) if adwin.add(value))
        assert seen < 300


def test_the_window_grows_while_nothing_changes_and_is_right_about_itself() -> None:
    values = np.random.default_rng(2).random(5000)
    adwin = Adwin()
    for value in values:
        adwin.add(float(value))
    assert adwin.width == 5000
    assert adwin.mean == pytest.approx(float(values.mean()))
    assert adwin._deviations / 5000 == pytest.approx(float(values.var()), rel=1e-6)
    assert sum(map(len, adwin._rows)) <= 6 * 13


def test_swapped_labels_are_seen_in_audits_and_chance_is_not() -> None:
    """Errors of 3 % become errors of 60 %: confidence sees nothing of that."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        detector = PageHinkley()
        assert not any(detector.add(error) for error in rng.random(240) < 0.03)
        assert any(detector.add(error) for error in rng.random(80) < 0.6)


def test_the_local_answers_alone_are_told_beside_what_becomes_of_them() -> None:
    """Ten audits, six of them of frames that were to be corrected; seven of the local answers were right."""
    tally = AgreementTally()
    for number in range(10):
        kept = number < 4
        tally.frame(corrected=not kept)
        tally.audit(agreed=number < 7, inclusion=0.1, kept=kept)
    local, all_of_it = tally.local(), tally.estimate()
    assert local is not None
    assert all_of_it is not None
    assert local.share == pytest.approx(0.7)
    assert all_of_it.share == pytest.approx(1.0)
    assert (local.audits, all_of_it.audits) == (10, 4)
    assert local.low < 0.7 < local.high


def test_good_days_first_prove_nothing_for_the_bad_ones_after() -> None:
    """Bets in the order of the days would grow rich on the first half: a mean of 0.05 would pass for 0.02."""
    boxes: list[tuple[float, int, bool]] = []
    good = [AuditedBoxes(tuple(boxes), 0.0) for _ in range(1500)]
    bad = [AuditedBoxes(tuple(boxes), 0.1) for _ in range(1500)]
    scenes = [str(number) for number in range(3000)]
    found = calibrate_boxes([*good, *bad], scenes, Promise(0.02), 0.5)
    assert found.mode is GateMode.UNCALIBRATED
    assert calibrate_boxes(good, scenes[:1500], Promise(0.02), 0.5).mode is GateMode.CALIBRATED


def test_a_selective_promise_says_that_it_takes_more_audits() -> None:
    assert samples_needed(Promise(0.02)) == least_samples(0.02, 0.05)
    assert samples_needed(Promise(0.02, selective=True)) == pytest.approx(
        1.6 * least_samples(0.02, 0.05), abs=1
    )
