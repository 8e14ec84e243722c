"""A promise is earned on audits of the very model, lost when the world changes, and earned again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace
from tests.stubs.asked_cases import asked_model

from vedette.config.escalation import PolicyConfig
from vedette.escalate.audit_book import MAX_SAMPLES, AuditBook
from vedette.escalate.audit_record import AuditSample
from vedette.escalate.calibrating import Happened, ModelPromise
from vedette.gate.setting import GateMode
from vedette.wire.bundle import Task
from vedette.wire.escalation import Guarantee

if TYPE_CHECKING:
    from pathlib import Path

TARGET = PolicyConfig(target=0.95)


class World:
    """Frames whose local answer is wrong more often where its margin is small."""

    def __init__(self, promise: ModelPromise, *, wrong: float = 0.02, seed: int = 1) -> None:
        self._promise = promise
        self._rng = np.random.default_rng(seed)
        self.wrong = wrong
        self._number = 0

    def audits(self, count: int) -> list[Happened]:
        happened = []
        for _ in range(count):
            happened += self._promise.audited(self.sample())
        return happened

    def sample(self) -> AuditSample:
        self._number += 1
        unsure = self._rng.random() < 0.2
        margin = 0.3 if unsure else 4.0
        errs = self._rng.random() < (0.4 if unsure else self.wrong)
        logits = np.array([margin, 0.0, -1.0], "<f4")
        score = float(1 / np.exp(logits - logits.max()).sum())
        return AuditSample(
            float(self._number),
            f"scene-{self._number}",
            score,
            0.02,
            self._promise.keeps(score, 1 - score),
            not errs,
            local=0,
            cloud=1 if errs else 0,
            logits=logits.tobytes(),
        )


def promise_of(policy: PolicyConfig = TARGET, book: AuditBook | None = None) -> ModelPromise:
    return ModelPromise(asked_model(), policy, book or AuditBook(None))


def test_before_enough_audits_it_says_how_many_are_missing() -> None:
    one = promise_of()
    found = one.calibration
    assert (found.mode, found.guarantee, found.threshold) == (GateMode.UNCALIBRATED, Guarantee.NONE, 0.95)
    World(one).audits(10)
    assert (one.calibration.samples, one.calibration.needed) == (10, found.needed)
    assert 59 < found.needed < 90  # 59 for one look; looking again and again costs a little more


def test_with_enough_audits_it_is_calibrated_and_says_so_once() -> None:
    one = promise_of()
    happened = World(one, wrong=0.0).audits(500)
    assert one.calibration.mode is GateMode.CALIBRATED
    assert one.calibration.guarantee is Guarantee.AGREEMENT
    assert {event.word for event in happened} == {"calibrated"}
    assert 2 <= one.book.looks <= 4  # each look spends a part of delta: there are few
    assert one.keeps(0.97, 0.03)
    assert not one.keeps(0.3, 0.7)


def test_one_scene_counts_once() -> None:
    one = promise_of()
    world = World(one)
    for _ in range(500):
        one.audited(replace(world.sample(), scene="parked car"))
    assert one.calibration.samples == 1
    assert one.calibration.mode is GateMode.UNCALIBRATED


def test_when_errors_become_frequent_the_promise_ends_and_is_earned_anew() -> None:
    one = promise_of()
    world = World(one, wrong=0.0)
    world.audits(400)
    assert one.calibration.mode is GateMode.CALIBRATED
    looks = one.book.looks
    world.wrong = 0.9
    happened: list[Happened] = []
    while not happened:
        happened = world.audits(1)
        assert world._number < 600, "a world where nine of ten are wrong went unnoticed"
    assert [event.word for event in happened] == ["drift"]
    assert "no promise holds" in happened[0].detail
    assert (one.calibration.mode, one.burst) == (GateMode.UNCALIBRATED, True)
    assert len(one.book.samples) == 1
    world.wrong = 0.0
    happened = world.audits(400)
    assert happened[-1].word == "calibrated"
    assert not one.burst
    assert one.book.looks > looks


def test_errors_of_escalated_frames_are_watched_too() -> None:
    one = promise_of()
    for _ in range(200):
        assert one.escalated(agreed=True, utc_s=1.0) == []
    happened: list[Happened] = []
    for _ in range(100):
        happened += one.escalated(agreed=False, utc_s=2.0)
    assert happened[0].word == "drift"


def test_a_world_that_stays_gives_no_alarm() -> None:
    one = promise_of()
    rng = np.random.default_rng(9)
    happened = World(one, wrong=0.01).audits(8000)
    for wrong in rng.random(20_000) < 0.4:
        happened += one.escalated(agreed=not wrong, utc_s=1.0)
    assert {event.word for event in happened} == {"calibrated"}


def test_a_model_that_comes_back_has_its_promise_back_without_another_look(tmp_path: Path) -> None:
    path = tmp_path / "m.book"
    book = AuditBook(path)
    book.open()
    one = promise_of(book=book)
    World(one, wrong=0.0).audits(300)
    book.close()
    again = AuditBook(path)
    again.open()
    back = promise_of(book=again)
    assert back.calibration == one.calibration
    assert back.book.looks == one.book.looks
    assert back.agreement == one.agreement


def test_a_plain_threshold_is_never_calibrated() -> None:
    one = promise_of(PolicyConfig(threshold=0.9))
    assert (one.calibration.mode, one.calibration.threshold) == (GateMode.THRESHOLD, 0.9)
    World(one).audits(400)
    assert one.calibration.mode is GateMode.THRESHOLD
    boxes = ModelPromise(asked_model(task=Task.DETECT), PolicyConfig(threshold=0.9), AuditBook(None))
    assert boxes.keeps(0.95, 0.05)
    assert not boxes.keeps(0.85, 0.15)


def test_a_detector_has_no_selective_promise_and_says_so() -> None:
    boxes = ModelPromise(asked_model(task=Task.DETECT), PolicyConfig(selective=0.05), AuditBook(None))
    assert "selective" in boxes.fault
    classes = promise_of(PolicyConfig(selective=0.05))
    assert classes.fault == ""
    World(classes, wrong=0.0).audits(700)
    assert classes.calibration.guarantee is Guarantee.SELECTIVE


def test_boxes_earn_their_promise_on_what_differs_from_the_large_models() -> None:
    boxes = ModelPromise(asked_model(task=Task.DETECT), PolicyConfig(target=0.9), AuditBook(None))
    rng = np.random.default_rng(5)
    for number in range(700):
        good = rng.random() < 0.8
        sample = AuditSample(
            float(number),
            f"s{number}",
            0.9 if good else 0.4,
            0.02,
            kept=bool(good),
            agreed=bool(good),
            candidates=((0.95, 0, True),) if good else ((0.35, 0, False), (0.15, 1, True)),
            loss=0.0 if good else 1.0,
        )
        boxes.audited(sample)
    assert boxes.calibration.mode is GateMode.CALIBRATED
    assert boxes.calibration.guarantee is Guarantee.AGREEMENT


def test_agreement_is_that_of_all_frames_and_not_of_the_hard_ones() -> None:
    one = promise_of(PolicyConfig(threshold=0.9))
    assert World(one, wrong=0.1).audits(3000) == []
    agreement = one.agreement
    assert agreement is not None
    # A fifth of the frames is unsure and corrected; of the others a tenth is wrong.
    assert abs(agreement.share - (0.2 + 0.8 * 0.9)) < 0.02
    assert agreement.low < agreement.share < agreement.high


def test_the_window_is_bounded_and_looks_stay_rare() -> None:
    one = promise_of()
    World(one, wrong=0.0).audits(2 * MAX_SAMPLES)
    assert len(one.book.samples) <= MAX_SAMPLES * 5 // 4
    assert one.book.looks <= 12
