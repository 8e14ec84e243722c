"""Every frame that was handed over ends once, whatever is said in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import given
from msgspec import UNSET
from msgspec.structs import replace

from vedette.runtime.escalation_ledger import MAX_OPEN_BYTES, EscalationLedger
from vedette.telemetry.escalation_window import EscalationCounts
from vedette.wire.escalation import Reason
from vedette.wire.messages import Detection, Escalation, Label, ModelRef, Result

if TYPE_CHECKING:
    from vedette.runtime.escalation_ledger import Ending

S = 1_000_000_000
PATIENCE_NS = 13 * S


def answer(seq: int, camera: str = "front") -> Result:
    return Result(1, camera, seq, 5, ModelRef("m", "1", "a"), "classify", top=(Label("cat", 0, 0.4),))


def outcome(seq: int, word: str = "answered", cause: str = "", camera: str = "front") -> Result:
    ended = Escalation(word, cause or UNSET, "uncertain", 12.0)  # type: ignore[arg-type] # the words of the tests
    return replace(answer(seq, camera), escalation=ended)


def ledger() -> EscalationLedger:
    return EscalationLedger(patience_ns=PATIENCE_NS)


def counts(book: EscalationLedger, camera: str = "front") -> EscalationCounts:
    return book.counts()[camera]


def test_what_is_opened_ends_once_and_what_comes_again_is_stray() -> None:
    book = ledger()
    assert book.opened(answer(1), Reason.UNCERTAIN, 0, hold_ns=None) == []
    ending = book.ended(outcome(1), 0)
    assert ending is not None
    assert (ending.line, ending.settles) == (outcome(1), False)
    assert book.ended(outcome(1, "failed", "busy"), 0) is None
    assert book.unasked("front", 1, 0) is None
    assert book.ended(outcome(7), 0) is None
    assert counts(book) == EscalationCounts(1, 0, 0, 0, {"answered": 1})
    assert book.stray == 3
    assert book.stopped(S) == []


def test_a_frame_for_which_there_was_no_room_is_declined_as_busy() -> None:
    book = ledger()
    book.opened(answer(1), Reason.AUDIT, 2 * S, hold_ns=None)
    ending = book.unasked("front", 1, 3 * S)
    assert ending is not None
    assert ending.line.escalation == Escalation("declined", "busy", "audit", 1000.0)
    assert counts(book) == EscalationCounts(0, 1, 0, 0, {"declined_busy": 1})


def test_without_anybody_to_ask_all_end_as_stopped() -> None:
    book = ledger()
    for seq in (1, 2):
        book.opened(answer(seq), Reason.UNCERTAIN, 0, hold_ns=None)
    assert [ending.line.seq for ending in book.stopped(S)] == [1, 2]
    assert counts(book).outcomes == {"declined_stopped": 2}


def test_what_is_never_heard_of_again_ends_when_patience_does() -> None:
    """A worker may die between saying that it hands a frame over, and doing so."""
    book = ledger()
    book.opened(answer(1), Reason.UNCERTAIN, 0, hold_ns=None)
    book.opened(answer(2), Reason.UNCERTAIN, S, hold_ns=None)
    assert book.due_ns() == PATIENCE_NS
    assert book.overdue(PATIENCE_NS - 1) == []
    assert [ending.line.seq for ending in book.overdue(PATIENCE_NS)] == [1]
    assert book.due_ns() == PATIENCE_NS + S


def test_a_held_answer_goes_out_with_its_outcome_or_when_it_was_held_long_enough() -> None:
    book = ledger()
    book.opened(answer(1), Reason.UNCERTAIN, 0, hold_ns=3 * S)
    book.opened(answer(2), Reason.UNCERTAIN, 0, hold_ns=3 * S)
    assert counts(book).held == 2
    ending = book.ended(outcome(1), 0)
    assert ending is not None
    assert ending.settles
    assert book.due_ns() == 3 * S
    assert book.released(3 * S - 1) == []
    assert [(one.line, one.settles) for one in book.released(3 * S)] == [(answer(2), True)]
    assert counts(book).held == 0
    late = book.ended(outcome(2, "expired"), 0)
    assert late is not None
    assert not late.settles, "the frame's line is written already"


def test_too_many_under_way_end_the_oldest() -> None:
    """Memory is bounded even where the asking process says nothing."""
    book = ledger()
    boxes = tuple(Detection("person", 0, 0.5, (0.0, 0.0, 1.0, 1.0)) for _ in range(300))
    ended: list[Ending] = []
    for seq in range(1, 201):
        local = replace(answer(seq), top=UNSET, detections=boxes)
        ended += book.opened(local, Reason.UNCERTAIN, 0, hold_ns=None)
    assert [one.line.seq for one in ended] == list(range(1, len(ended) + 1))
    assert counts(book).under_way * 300 * 200 <= MAX_OPEN_BYTES
    assert counts(book).under_way + len(ended) == 200


def test_what_the_gate_kept_is_counted_among_the_outcomes() -> None:
    book = ledger()
    book.kept(replace(answer(1), escalation=Escalation("declined", "cool_down")), 0)
    book.kept(answer(2), 0)
    assert counts(book) == EscalationCounts(outcomes={"declined_cool_down": 1})


def declined(seq: int, cause: str) -> Result:
    return replace(answer(seq), escalation=Escalation("declined", cause))


def test_what_no_answer_covers_is_taken_off_the_promise() -> None:
    """No token, no room, failed, late, withheld: unsure frames of which the promise says nothing."""
    book = ledger()
    for _ in range(100):
        book.judged(0)
    assert book.unmet_share(0) == 0.0
    for seq, (word, cause) in enumerate(
        [("answered", ""), ("agreed", ""), ("failed", "server"), ("expired", ""), ("declined", "offline")], 1
    ):
        book.opened(answer(seq), Reason.UNCERTAIN, 0, hold_ns=None)
        book.ended(outcome(seq, word, cause), 0)
    assert book.unmet_share(0) == 0.03
    book.opened(answer(10), Reason.UNCERTAIN, 0, hold_ns=None)
    book.unasked("front", 10, 0)
    for seq, cause in ((11, "budget"), (12, "privacy")):
        book.kept(declined(seq, cause), 0)
    assert book.unmet_share(0) == 0.06


def test_an_audit_that_brought_nothing_is_uncovered_only_where_the_frame_was_unsure() -> None:
    book = ledger()
    for seq, unsure in ((1, True), (2, False)):
        for audit, word in ((seq, "failed"), (seq + 10, "agreed")):
            book.judged(0)
            book.opened(answer(audit), Reason.AUDIT, 0, hold_ns=None, unsure=unsure)
            book.ended(outcome(audit, word, "busy" if word == "failed" else ""), 0)
    assert book.unmet_share(0) == 0.25


def test_a_scenes_later_frames_are_covered_by_its_question_if_that_was_answered() -> None:
    book = ledger()
    for seq, word in ((1, "agreed"), (4, "expired")):
        book.opened(answer(seq), Reason.UNCERTAIN, 0, hold_ns=None)
        book.ended(outcome(seq, word), 0)
        for later in (1, 2):
            book.kept(declined(seq + later, "cool_down"), 0)
    for _ in range(6):
        book.judged(0)
    assert book.unmet_share(0) == 0.5  # the three of the second scene


def test_an_outage_is_forgotten_after_an_hour_and_frames_of_before_do_not_hide_it() -> None:
    book = ledger()
    hour_ns = 3600 * S
    for _ in range(10_000):
        book.judged(0)
    for now_ns, share in ((hour_ns + 60 * S, 1.0), (2 * hour_ns, 1.0), (3 * hour_ns, 0.0)):
        if share:
            book.judged(now_ns)
            book.kept(declined(1, "budget"), now_ns)
        assert book.unmet_share(now_ns) == share


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["opened", "held", "ended", "unasked", "stopped", "time"]),
        st.sampled_from(["front", "yard"]),
        st.integers(1, 6),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_each_one_opened_ends_once_and_each_held_line_is_written_once(
    steps: list[tuple[str, str, int]],
) -> None:
    book = ledger()
    now_ns = 0
    opened: list[tuple[str, int]] = []
    held = 0
    endings: list[Ending] = []
    for what, camera, seq in steps:
        now_ns += S
        if what in {"opened", "held"} and (camera, seq) not in opened:
            opened.append((camera, seq))
            held += what == "held"
            hold_ns = 3 * S if what == "held" else None
            endings += book.opened(answer(seq, camera), Reason.UNCERTAIN, now_ns, hold_ns=hold_ns)
        elif what in {"ended", "unasked"}:
            ending = (
                book.ended(outcome(seq, camera=camera), now_ns)
                if what == "ended"
                else book.unasked(camera, seq, now_ns)
            )
            endings += [] if ending is None else [ending]
        elif what == "stopped":
            endings += book.stopped(now_ns)
        elif what == "time":
            endings += [*book.released(now_ns), *book.overdue(now_ns)]
    endings += book.stopped(now_ns)
    ended = [(one.line.camera, one.line.seq) for one in endings if one.line.escalation is not None]
    assert sorted(ended) == sorted(opened)
    assert sum(one.settles for one in endings) == held
    totals = book.counts().values()
    assert sum(one.escalated for one in totals) == len(opened)
    assert sum(sum(one.outcomes.values()) for one in totals) == len(opened)
    assert book.due_ns() is None
