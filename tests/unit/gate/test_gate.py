"""The gate frame by frame: who is asked about, who pays, and what an audit is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from vedette.gate.gate import Evidence, Gate
from vedette.gate.pacing import Pacer
from vedette.gate.setting import GateMode, GateSetting
from vedette.wire.escalation import DeclineCause, Guarantee, Reason

if TYPE_CHECKING:
    from vedette.gate.setting import Verdict

SECOND = 1_000_000_000


def setting(number: int = 1, **changes: Any) -> GateSetting:  # noqa: ANN401 - fields of a struct
    plain = GateSetting(
        number=number,
        model_sha256="a" * 64,
        mode=GateMode.CALIBRATED,
        threshold=0.8,
        guarantee=Guarantee.AGREEMENT,
        epsilon=0.02,
        tokens=10,
        audit_tokens=10,
        paced=False,
    )
    return msgspec.structs.replace(plain, **changes)


def sure(share: float) -> Evidence:
    """Two classes, the first with this probability."""
    return Evidence(np.log(np.array([share, 1 - share])))


class Box:
    """A gate, a clock and a die."""

    def __init__(self, first: GateSetting, *, draw: float = 0.99) -> None:
        self.draw = draw
        self.gate = Gate(lambda: self.draw)
        self.gate.use(first)
        self.now_ns = 0

    def frame(
        self, share: float, *, camera: str = "front", answer: str = "", after_s: float = 1.0
    ) -> Verdict:
        self.now_ns += round(after_s * SECOND)
        return self.gate.judge(camera, answer or str(self.now_ns), sure(share), self.now_ns)


def test_the_unsure_are_asked_about_and_the_sure_are_not() -> None:
    box = Box(setting())
    assert box.frame(0.9)[:2] == (None, None)
    verdict = box.frame(0.6)
    assert (verdict.reason, verdict.declined) == (Reason.UNCERTAIN, None)
    assert (verdict.score, verdict.uncertainty) == pytest.approx((0.6, 0.4))


def test_without_a_setting_and_switched_off_nothing_is_asked() -> None:
    gate = Gate(lambda: 0.0)
    assert gate.on is False
    assert gate.judge("front", "x", sure(0.5), 0).reason is None
    gate.use(setting(mode=GateMode.OFF, audit_share=1.0))
    assert (gate.on, gate.judge("front", "x", sure(0.5), 0).reason) == (False, None)


def test_quiet_cameras_are_left_alone() -> None:
    box = Box(setting(quiet_cameras=("nursery",), audit_share=1.0), draw=0.0)
    assert box.frame(0.5, camera="nursery") == (None, None, 0.0, 0.0, 0.0, False)
    assert box.frame(0.5, camera="street").reason is Reason.AUDIT


def test_an_audit_is_drawn_whatever_the_score_and_says_how_likely_it_was() -> None:
    box = Box(setting(audit_share=0.02), draw=0.019)
    for share in (0.999, 0.5):
        verdict = box.frame(share)
        assert (verdict.reason, verdict.inclusion) == (Reason.AUDIT, 0.02)
    box.draw = 0.02
    passed = box.frame(0.999)
    assert (passed.reason, passed.declined, passed.inclusion) == (None, None, 0.02)
    assert passed[2:4] == pytest.approx((0.999, 0.001))


def test_without_a_token_for_audits_none_can_be_drawn_and_the_odds_say_so() -> None:
    box = Box(setting(audit_share=0.5, audit_tokens=1), draw=0.1)
    assert box.frame(0.9).inclusion == 0.5
    assert box.frame(0.9)[::4] == (None, 0.0)


def test_an_empty_budget_is_said_and_a_new_setting_fills_it() -> None:
    box = Box(setting(tokens=2))
    found = [box.frame(0.5).declined for _ in range(4)]
    assert found == [None, None, DeclineCause.BUDGET, DeclineCause.BUDGET]
    box.gate.use(setting(2, tokens=1))
    assert [box.frame(0.5).declined for _ in range(2)] == [None, DeclineCause.BUDGET]
    box.gate.use(setting(2, tokens=50))  # the same again, late
    assert box.frame(0.5).declined is DeclineCause.BUDGET


def test_a_token_that_was_not_used_is_given_back() -> None:
    box = Box(setting(tokens=1))
    box.gate.refund("front", box.frame(0.5))
    assert box.frame(0.5).reason is Reason.UNCERTAIN


def test_a_scene_that_could_not_be_handed_over_was_not_asked_about() -> None:
    box = Box(setting(cool_down_s=30.0))
    box.gate.refund("front", box.frame(0.5, answer="cat"))
    assert box.frame(0.5, answer="cat").reason is Reason.UNCERTAIN


def test_whoever_asks_or_does_not_an_unsure_frame_is_said_to_be_unsure() -> None:
    """Audited, asked about, without a token: the promise counts on an answer in each case."""
    box = Box(setting(audit_share=0.02, tokens=1), draw=0.0)
    assert [(v.reason, v.unsure) for v in map(box.frame, (0.5, 0.9))] == [
        (Reason.AUDIT, True),
        (Reason.AUDIT, False),
    ]
    box.draw = 0.5
    assert [(v.reason, v.unsure) for v in map(box.frame, (0.5, 0.5, 0.9))] == [
        (Reason.UNCERTAIN, True),
        (None, True),
        (None, False),
    ]


def test_a_still_scene_is_asked_about_once_in_its_cool_down() -> None:
    box = Box(setting(cool_down_s=30.0))
    assert box.frame(0.5, answer="cat").reason is Reason.UNCERTAIN
    assert box.frame(0.52, answer="cat").declined is DeclineCause.COOL_DOWN
    assert box.frame(0.5, answer="dog").reason is Reason.UNCERTAIN  # somebody else came
    assert box.frame(0.5, answer="dog", camera="back").reason is Reason.UNCERTAIN
    assert box.frame(0.7, answer="dog").reason is Reason.UNCERTAIN  # the picture changed
    assert box.frame(0.7, answer="dog", after_s=31).reason is Reason.UNCERTAIN


def test_another_model_begins_anew() -> None:
    box = Box(setting(number=9, cool_down_s=1000.0))
    box.frame(0.5, answer="cat")
    box.gate.use(setting(number=1, model_sha256="b" * 64, cool_down_s=1000.0))
    assert box.gate.number == 1
    assert box.frame(0.5, answer="cat").reason is Reason.UNCERTAIN


def test_a_detector_that_sees_nothing_may_be_unsure() -> None:
    box = Box(setting(threshold=0.5))
    nearly = Evidence(candidates=((0.45, 0), (0.4, 0)), box_threshold=0.5)
    clear = Evidence(candidates=((0.97, 0),), box_threshold=0.5)
    assert box.gate.judge("front", "", nearly, 1).reason is Reason.UNCERTAIN
    assert box.gate.judge("front", "", clear, 2).reason is None
    assert box.gate.judge("front", "", Evidence(box_threshold=0.5), 3)[2:4] == (1.0, 0.0)


def test_paced_tokens_go_to_the_most_uncertain_frames() -> None:
    """A token for each tenth frame: first come would spend them on average frames."""
    rng = random.Random(1)  # noqa: S311 - a story is told the same way each time
    box = Box(setting(paced=True, threshold=1.1, tokens=10**6, rate_per_s=0.1, fill=0.5))
    asked: list[float] = []
    shares = [rng.random() / 2 + 0.5 for _ in range(3000)]
    for share in shares:
        verdict = box.frame(share)
        if verdict.reason is not None:
            asked.append(verdict.uncertainty)
    assert len(asked) == pytest.approx(300, rel=0.2)
    best = sorted((1 - share for share in shares), reverse=True)[: len(asked)]
    assert sum(asked) / sum(best) > 0.95


def test_a_pacer_forgets_and_stands_still_clocks() -> None:
    pacer = Pacer()
    for _ in range(1200):
        pacer.see(0.5, 0)  # a clock that does not move: no rate is known, nothing is chosen
    assert pacer.share(1.0, 1.0) == 0.0
    assert not pacer.chosen(0.9, 1.0, 1.0)
    assert len(pacer._sorted) == 500
