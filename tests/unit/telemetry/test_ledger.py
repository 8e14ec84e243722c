"""The ledger: every frame that came in ends in exactly one way."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vedette.errors import InternalError
from vedette.telemetry.ledger import CameraCounts, Ledger
from vedette.wire.causes import SOURCE_DROPS, DropCause, FailCause

CAMERAS = ("front", "back")
LATER_DROPS = [cause for cause in DropCause if cause not in SOURCE_DROPS]


def test_the_counts_of_a_run_come_out_by_cause() -> None:
    ledger = Ledger(["front"])
    ledger.observe_ring("front", 10, {DropCause.RATE: 4, DropCause.DAMAGED: 0})
    for _ in range(5):
        ledger.ok("front")
    ledger.dropped("front", DropCause.SUPERSEDED, 3)
    ledger.failed("front", FailCause.DECODE)
    counts = ledger.snapshot().cameras["front"]
    assert counts == CameraCounts(14, 5, {"superseded": 3, "rate": 4}, {"decode": 1})
    assert (counts.dropped_total, counts.failed_total, counts.in_flight) == (7, 1, 1)


def test_one_cause_from_source_and_worker_is_added_up() -> None:
    ledger = Ledger(["front"])
    ledger.observe_ring("front", 2, {DropCause.DAMAGED: 3})
    ledger.dropped("front", DropCause.DAMAGED, 2)
    counts = ledger.snapshot().cameras["front"]
    assert counts.dropped == {"damaged": 5}
    assert (counts.frames_in, counts.in_flight) == (5, 0)


def test_a_vanished_frame_is_an_imbalance_once_nothing_is_on_the_way() -> None:
    ledger = Ledger(["front", "back"])
    ledger.observe_ring("front", 3, {})
    ledger.ok("front")
    assert ledger.imbalance({"front": 2}) == {}
    assert ledger.imbalance({"front": 1}) == {"front": 1}
    assert ledger.imbalance() == {"front": 2}


def test_a_frame_with_two_outcomes_is_a_negative_imbalance() -> None:
    ledger = Ledger(["front"])
    ledger.observe_ring("front", 1, {})
    ledger.ok("front")
    ledger.failed("front", FailCause.WORKER_CRASHED)
    assert ledger.imbalance() == {"front": -1}


@pytest.mark.parametrize(
    ("captured", "drops", "what"),
    [
        (9, {DropCause.RATE: 2}, "captured went back from 10 to 9"),
        (10, {DropCause.RATE: 1}, r"dropped\(rate\) went back from 2 to 1"),
        (10, {}, r"dropped\(rate\) went back from 2 to 0"),
        (10, {DropCause.RATE: 2, DropCause.SHORT: -1}, "negative"),
    ],
)
def test_a_counter_that_goes_back_is_refused_and_changes_nothing(
    captured: int, drops: dict[DropCause, int], what: str
) -> None:
    ledger = Ledger(["front"])
    ledger.observe_ring("front", 10, {DropCause.RATE: 2})
    before = ledger.snapshot()
    with pytest.raises(InternalError, match=what):
        ledger.observe_ring("front", captured, drops)
    assert ledger.snapshot() == before


def test_what_makes_no_sense_is_refused() -> None:
    ledger = Ledger(["front"])
    with pytest.raises(InternalError, match="no camera `back`"):
        ledger.ok("back")
    with pytest.raises(InternalError, match="-1 dropped"):
        ledger.dropped("front", DropCause.STALE, -1)
    assert ledger.snapshot().cameras["front"] == CameraCounts()


def test_a_snapshot_does_not_change_afterwards() -> None:
    ledger = Ledger(["front"])
    drops = {DropCause.RATE: 1}
    ledger.observe_ring("front", 1, drops)
    before = ledger.snapshot()
    drops[DropCause.RATE] = 50
    ledger.dropped("front", DropCause.STALE)
    assert before.cameras["front"].dropped == {"rate": 1}
    assert ledger.snapshot().cameras["front"].dropped == {"stale": 1, "rate": 1}


class FramesThroughTheAgent(RuleBasedStateMachine):
    """Frames arrive, wait and end in any order; the ledger sees the ring late and the outcomes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(CAMERAS)
        self.captured: Counter[str] = Counter()
        self.at_source: dict[str, Counter[DropCause]] = {camera: Counter() for camera in CAMERAS}
        self.waiting: Counter[str] = Counter()
        self.ended: dict[str, Counter[str]] = {camera: Counter() for camera in CAMERAS}
        self.last: dict[str, CameraCounts] = {camera: CameraCounts() for camera in CAMERAS}

    @rule(camera=st.sampled_from(CAMERAS), count=st.integers(1, 5))
    def frames_are_captured(self, camera: str, count: int) -> None:
        self.captured[camera] += count
        self.waiting[camera] += count

    @rule(camera=st.sampled_from(CAMERAS), cause=st.sampled_from(SOURCE_DROPS), count=st.integers(1, 5))
    def the_source_drops(self, camera: str, cause: DropCause, count: int) -> None:
        self.at_source[camera][cause] += count

    @precondition(lambda self: any(self.waiting.values()))
    @rule(data=st.data())
    def a_frame_ends(self, data: st.DataObject) -> None:
        camera = data.draw(st.sampled_from([name for name in CAMERAS if self.waiting[name]]))
        outcome = data.draw(st.sampled_from(["ok", *LATER_DROPS, *FailCause]))
        count = 1
        if isinstance(outcome, DropCause):
            count = data.draw(st.integers(1, self.waiting[camera]))
            self.ledger.dropped(camera, outcome, count)
        elif isinstance(outcome, FailCause):
            self.ledger.failed(camera, outcome)
        else:
            self.ledger.ok(camera)
        self.waiting[camera] -= count
        self.ended[camera][getattr(outcome, "value", "ok")] += count

    @rule()
    def the_ring_is_read(self) -> None:
        for camera in CAMERAS:
            self.ledger.observe_ring(camera, self.captured[camera], self.at_source[camera])

    @invariant()
    def counts_only_grow(self) -> None:
        for camera, counts in self.ledger.snapshot().cameras.items():
            before = self.last[camera]
            assert counts.frames_in >= before.frames_in
            assert counts.ok >= before.ok
            assert all(counts.dropped.get(cause, 0) >= total for cause, total in before.dropped.items())
            assert all(counts.failed.get(cause, 0) >= total for cause, total in before.failed.items())
            self.last[camera] = counts

    @invariant()
    def the_books_balance_once_the_ring_is_read(self) -> None:
        self.the_ring_is_read()
        snapshot = self.ledger.snapshot()
        assert snapshot.imbalance(self.waiting) == {}
        for camera, counts in snapshot.cameras.items():
            assert counts.in_flight == self.waiting[camera]
            assert counts.ok == self.ended[camera]["ok"]
            expected = Counter({cause.value: n for cause, n in self.at_source[camera].items()})
            expected.update({c.value: self.ended[camera][c.value] for c in LATER_DROPS})
            assert Counter(counts.dropped) == +expected
            assert counts.failed_total == sum(self.ended[camera][cause.value] for cause in FailCause)


FramesThroughTheAgent.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestFramesThroughTheAgent = FramesThroughTheAgent.TestCase
