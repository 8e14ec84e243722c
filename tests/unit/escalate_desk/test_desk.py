"""Each case ends exactly once, in time, within budget and by the rules (cases 49 to 51)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stubs.asked_cases import (
    SECOND_NS,
    HandPool,
    asked_model,
    case_of,
    escalation_config,
    frame_of,
    says,
)

from vedette.clock import ManualClock
from vedette.config.escalation import AuditConfig, BudgetConfig, OfflineConfig, PrivacyConfig
from vedette.errors import FrameError
from vedette.escalate.answer_cache import AnswerCache
from vedette.escalate.asking import RoundTrips
from vedette.escalate.backlog_files import BacklogFiles
from vedette.escalate.breaker import Breaker
from vedette.escalate.budgets import DAY_S
from vedette.escalate.desk import Desk, DeskParts
from vedette.escalate.port import CloudAnswer, CloudError
from vedette.escalate.purse import Purse
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.ticket import Ticket
    from vedette.gate.case import Case
    from vedette.wire.messages import Result

NOON_S = 20_000 * DAY_S + DAY_S / 2
START_NS = 10**12


class Office:
    """A desk with a pool that answers by hand, and everything that came out of it."""

    def __init__(
        self, config: EscalationConfig | None = None, folder: Path | None = None, *, places: int = 2
    ) -> None:
        self.config = config or escalation_config()
        self.clock = ManualClock(START_NS)
        self.pool = HandPool(places)
        self.trips = RoundTrips()
        self.breaker = Breaker(lambda: 0.5)
        self.cache = AnswerCache(self.config.cache.memory, self.config.cache.ttl_s)
        self.backlog = BacklogFiles(folder, self.config.offline)
        self.purse = Purse(self.config, None, self.clock, self.utc_s, boot="b")
        self.ended: list[Result] = []
        self.events: list[tuple[str, str]] = []
        self.learnt: list[tuple[Ticket, CloudAnswer, Result]] = []
        self.model = asked_model()
        self.desk = Desk(
            self.config,
            DeskParts(
                self.pool,
                self.purse,
                self.breaker,
                self.trips,
                self.cache,
                self.backlog,
                self.clock,
                self.utc_s,
                lambda case: case.uncertainty < 0.1,
                lambda *learnt: self.learnt.append(learnt),
                lambda result, _: self.ended.append(result),
                lambda word, detail: self.events.append((word, detail)),
            ),
        )
        self.desk.drained_for = self.model

    def utc_s(self) -> float:
        return NOON_S + (self.clock.monotonic_ns() - START_NS) / 1e9

    def bring(self, seq: int, *, picture: int | None = None, **changes: Any) -> Case:  # noqa: ANN401 - as of `case_of`
        case = case_of(seq, captured_ns=self.clock.monotonic_ns(), **changes)
        self.desk.take(case, self.model, lambda: frame_of(seq if picture is None else picture))
        return case

    def answer(self, answer: CloudAnswer | CloudError, number: int | None = None, crash: str = "") -> None:
        self.pool.reply(answer, number, crash)
        self.desk.turn()

    def wait_s(self, seconds: float) -> None:
        self.clock.advance_s(seconds)
        self.desk.turn()

    def words(self) -> list[tuple[int, str]]:
        return [(one.seq, _word(one)) for one in self.ended]


def _word(result: Result) -> str:
    ended = result.escalation
    assert ended is not None
    return f"{ended.outcome} {ended.cause or ''}".strip() if ended.cause else ended.outcome


def down(fault: CloudFault = CloudFault.CONNECT, **more: Any) -> CloudError:  # noqa: ANN401 - as of CloudError
    return CloudError(fault, "down", **more)


def test_what_the_large_model_says_comes_back_with_the_frame() -> None:
    office = Office()
    office.bring(1)
    office.bring(2, picture=2)
    office.clock.advance_s(0.2)
    office.answer(says("dog", dog=0.8))
    office.answer(says("Kitty"))
    assert office.words() == [(1, "answered"), (2, "agreed")]
    first, _ = office.ended
    assert (first.camera, first.source, first.top and first.top[0].label) == ("front", "cloud", "dog")
    assert first.escalation is not None
    assert first.escalation.took_ms == pytest.approx(200.0)
    assert office.desk.open == office.desk.in_flight == 0
    assert [learnt[0].case.result.seq for learnt in office.learnt] == [1, 2]
    assert office.desk.sent_bytes == 2000


def test_a_mute_cloud_ends_each_case_at_its_deadline_and_not_later() -> None:
    """Case 50: every escalation ends in exactly one outcome, whatever the network does."""
    office = Office()
    for seq in range(5):
        office.bring(seq)
    office.wait_s(0.999)
    assert office.ended == []
    office.wait_s(0.001)
    assert sorted(word for _, word in office.words()) == [*["declined too_old"] * 3, *["expired"] * 2]


def test_an_answer_that_comes_late_ends_nothing_twice_and_still_teaches() -> None:
    office = Office()
    case = office.bring(1, audit=True)
    office.wait_s(1.1)
    office.answer(says("dog"))
    assert office.words() == [(1, "expired")]
    assert [learnt[0].case for learnt in office.learnt] == [case]


def test_the_most_uncertain_of_those_that_wait_is_asked_about_next_and_audits_before_all() -> None:
    office = Office(places=1)
    for seq, doubt in ((1, 0.5), (2, 0.3), (3, 0.9), (4, 0.6)):
        office.bring(seq, uncertainty=doubt)
    office.bring(5, uncertainty=0.01, audit=True)
    for _ in range(5):
        office.answer(says("dog"))
    assert [seq for seq, _ in office.words()] == [1, 5, 3, 4, 2]


def test_an_urgent_camera_is_asked_about_only_where_the_answer_will_be_there_in_time() -> None:
    office = Office(escalation_config(urgent=("door",)))
    office.bring(1, camera="door")
    for _ in range(10):
        office.trips.add(1.5)
    office.bring(2, camera="door")
    office.bring(3, camera="front")
    assert office.words() == [(2, "declined urgent")]
    assert office.desk.in_flight == 2


def test_a_case_that_is_too_old_when_it_comes_is_not_asked_about() -> None:
    """Case 49: a frame too old by then keeps its local answer and is not sent late."""
    office = Office()
    case = case_of(1, captured_ns=START_NS)
    office.clock.advance_s(5)
    office.desk.take(case, office.model, lambda: frame_of(1))
    assert office.words() == [(1, "declined too_old")]


def test_what_may_not_leave_is_never_even_looked_at() -> None:
    def forbidden() -> Any:  # noqa: ANN401 - it gives none
        pytest.fail("the picture was looked at")

    office = Office(escalation_config(privacy=PrivacyConfig(deny=("cat",))))
    office.desk.take(case_of(1, captured_ns=START_NS, audit=True), office.model, forbidden)
    office.desk.take(case_of(2, captured_ns=START_NS), office.model, forbidden)
    assert office.words() == [(1, "declined privacy"), (2, "declined privacy")]
    assert (office.desk.audits, office.desk.censored) == (1, 1)  # what is measured speaks for the rest only


def test_a_model_of_which_nothing_is_known_and_a_broken_picture_are_unsupported() -> None:
    office = Office()
    office.desk.take(case_of(1, captured_ns=START_NS), None, lambda: frame_of(1))
    other = asked_model(sha256="c" * 64)
    office.desk.take(case_of(2, captured_ns=START_NS), other, lambda: frame_of(1))
    boxes = asked_model(task=Task.DETECT)
    office.desk.take(case_of(3, captured_ns=START_NS), boxes, lambda: frame_of(1))

    def broken() -> Any:  # noqa: ANN401 - it gives none
        raise FrameError("a plane is missing", kind="format")

    for seq in (4, 5):
        office.desk.take(case_of(seq, captured_ns=START_NS), office.model, broken)
    assert [word for _, word in office.words()] == ["declined unsupported"] * 5
    assert [word for word, _ in office.events] == ["unusable_picture"]


def test_one_picture_is_paid_for_once_and_an_audit_always_asks_for_itself() -> None:
    office = Office()
    office.bring(1, picture=7)
    office.answer(says("dog"))
    office.bring(2, picture=7)
    assert office.words() == [(1, "answered"), (2, "answered")]
    assert (office.desk.asked, office.cache.hits, len(office.learnt)) == (1, 1, 1)
    office.bring(3, picture=7, audit=True)
    assert office.desk.in_flight == 1


def test_one_parked_car_cannot_spend_more_than_the_budget() -> None:
    """Case 51: beyond the budget the local answer is given, and marked as not escalated."""
    office = Office(
        escalation_config(budget=BudgetConfig(per_day=48), audit=AuditConfig(per_day=2)), places=1
    )
    for seq in range(40):
        office.bring(seq)
        if office.pool.jobs:
            office.answer(says("dog"))
    assert office.desk.asked == 1  # half of an hour's two
    assert [word for _, word in office.words()][1:] == ["declined budget"] * 39
    for seq in range(40, 45):
        office.bring(seq, audit=True)
        if office.pool.jobs:
            office.answer(says("dog"))
    assert office.desk.asked == 3  # two audits have money of their own


def test_a_cloud_that_is_down_is_left_alone_and_cases_wait_on_the_disk(tmp_path: Path) -> None:
    office = Office(folder=tmp_path)
    for seq in range(5):
        office.bring(seq)
        office.answer(down())
    assert [word for _, word in office.words()] == ["failed connect"] * 5
    office.bring(9)
    assert office.words()[-1] == (9, "declined offline")
    assert office.desk.in_flight == 0
    assert len(office.backlog) == 6


def test_when_it_is_back_what_waited_is_asked_about_and_ends_nothing_again(tmp_path: Path) -> None:
    office = Office(escalation_config(offline=OfflineConfig(drain_per_minute=60.0)), tmp_path)
    for seq in range(5):
        office.bring(seq, audit=True)
        office.answer(down())
    ended = len(office.ended)
    for _ in range(30):
        office.wait_s(1.5)
        while office.pool.jobs:
            office.answer(says("dog"))
    assert len(office.backlog) == 0
    assert len(office.ended) == ended
    assert sorted(learnt[0].case.result.seq for learnt in office.learnt) == [0, 1, 2, 3, 4]


def test_a_wish_to_be_left_alone_holds_for_all_cameras() -> None:
    """Case 49: the pause is shared by all cameras of the device."""
    office = Office()
    office.bring(1, camera="a")
    office.answer(down(CloudFault.BUSY, retry_after_s=30.0))
    office.bring(2, camera="b")
    assert office.words() == [(1, "failed busy"), (2, "declined offline")]
    office.wait_s(31)
    office.bring(3, camera="c")
    assert office.desk.in_flight == 1


def test_a_spent_quota_stops_asking_and_is_told_once() -> None:
    office = Office()
    for seq in (1, 2):
        office.bring(seq)
    for _ in range(2):
        office.answer(down(CloudFault.QUOTA, final=True))
    office.bring(3)
    assert office.words()[-1] == (3, "declined offline")
    assert [word for word, _ in office.events] == ["quota"]
    office.wait_s(3601)
    office.bring(4)
    office.answer(says("dog"))
    office.bring(5)
    office.answer(down(CloudFault.QUOTA, final=True))
    assert [word for word, _ in office.events] == ["quota", "quota"]


def test_answers_that_are_of_no_use_are_no_fault_of_the_line() -> None:
    office = Office()
    for seq in range(12):
        office.bring(seq)
        office.answer(down(CloudFault.MALFORMED if seq % 2 else CloudFault.REFUSED))
    assert office.breaker.may_call(office.clock.monotonic_ns())
    assert office.desk.tally.counts == {"failed_malformed": 6, "failed_refused": 6}


def test_an_error_of_our_own_ends_the_case_and_is_told_once() -> None:
    office = Office()
    for seq in (1, 2):
        office.bring(seq)
        office.answer(down(CloudFault.BROKEN), crash="Traceback: ZeroDivisionError")
    assert office.words() == [(1, "failed broken"), (2, "failed broken")]
    assert [word for word, _ in office.events] == ["own_fault"]


def test_the_end_ends_every_case() -> None:
    office = Office()
    for seq in range(5):
        office.bring(seq)
    office.desk.stop()
    assert [word for _, word in office.words()] == ["declined stopped"] * 5
    office.answer(says("dog"))
    assert len(office.ended) == 5


steps = st.lists(
    st.one_of(
        st.tuples(st.just("bring"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("answer"), st.integers(0, 7), st.booleans()),
        st.tuples(st.just("wait"), st.sampled_from([1, 40, 300, 1500, 60_000]), st.booleans()),
    ),
    max_size=70,
)
FATES: list[CloudAnswer | CloudError] = [
    says("dog"),
    says("zebra"),
    down(CloudFault.CONNECT),
    down(CloudFault.BUSY, retry_after_s=0.5),
    down(CloudFault.QUOTA, final=True),
    down(CloudFault.MALFORMED),
    down(CloudFault.DEADLINE),
    down(CloudFault.BROKEN),
]


@given(steps, st.sampled_from([None, 3, 400_000]), st.integers(1, 3))
@settings(max_examples=120, deadline=None)
def test_whatever_happens_each_case_ends_exactly_once_and_in_time(
    tmp_path_factory: pytest.TempPathFactory,
    schedule: list[tuple[str, int, bool]],
    per_minute: int | None,
    places: int,
) -> None:
    office = Office(
        escalation_config(budget=BudgetConfig(per_minute=per_minute), urgent=("c0",)),
        tmp_path_factory.mktemp("desk"),
        places=places,
    )
    came: list[int] = []
    due_ns: dict[int, int] = {}
    for what, number, flag in schedule:
        if what == "bring":
            came.append(len(came))
            due_ns[came[-1]] = office.clock.monotonic_ns() + SECOND_NS
            office.bring(came[-1], picture=number, camera=f"c{number}", audit=flag, uncertainty=number / 4)
        elif what == "answer" and office.pool.jobs:
            jobs = list(office.pool.jobs)
            office.answer(FATES[number], jobs[-1 if flag else 0], "crash" if number == 7 and flag else "")
        elif what == "wait":
            office.wait_s(number / 1000)
        ended = [seq for seq, _ in office.words()]
        assert len(ended) == len(set(ended))
        now_ns = office.clock.monotonic_ns()
        assert all(seq in ended for seq in came if due_ns[seq] <= now_ns and what == "wait")
    office.desk.stop()
    assert sorted(seq for seq, _ in office.words()) == came
    assert sum(office.desk.tally.counts.values()) == len(came)
    assert office.desk.open == 0
