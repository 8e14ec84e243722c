"""Which requests run together, by a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_cloud.batching import OVERHEAD_BYTES, Batcher, BatchLimits, QueueFullError

MS = 10**6
FAR = 10**12


def batcher(*, size: int = 4, wait_ms: float = 5, room: int = 100) -> Batcher[str]:
    return Batcher(BatchLimits(size, round(wait_ms * MS), room * (OVERHEAD_BYTES + 1)))


def offer(queue: Batcher[str], item: str, now_ns: int = 0, deadline_ns: int = FAR) -> int:
    return queue.offer(item, size_bytes=1, now_ns=now_ns, deadline_ns=deadline_ns)


def test_a_full_batch_goes_out_at_once_and_the_oldest_are_in_it() -> None:
    queue = batcher(size=3)
    for name in "abcd":
        offer(queue, name)
    assert queue.due_ns() == 0
    assert queue.take(0).batch == ("a", "b", "c")
    assert queue.take(0).batch == ()
    assert queue.waiting == 1


def test_one_alone_waits_for_others_and_no_longer_than_it_must() -> None:
    queue = batcher(wait_ms=5)
    offer(queue, "a", now_ns=10 * MS)
    offer(queue, "b", now_ns=12 * MS)
    assert queue.take(15 * MS - 1).batch == ()
    assert queue.due_ns() == 15 * MS
    assert queue.take(15 * MS).batch == ("a", "b")
    assert queue.due_ns() is None


def test_nobody_misses_a_deadline_by_waiting_for_company() -> None:
    queue = batcher(wait_ms=50)
    queue.ran(20 * MS)  # what a run takes
    offer(queue, "hurried", now_ns=0, deadline_ns=30 * MS)
    assert queue.due_ns() == 10 * MS
    assert queue.take(10 * MS).batch == ("hurried",)


def test_whose_time_is_over_is_not_run() -> None:
    queue = batcher(wait_ms=50)
    offer(queue, "late", deadline_ns=5 * MS)
    offer(queue, "patient")
    taken = queue.take(60 * MS)
    assert taken.expired == ("late",)
    assert taken.batch == ("patient",)


def test_a_full_queue_says_so_and_when_to_come_again() -> None:
    queue = batcher(size=2, room=3)
    queue.ran(500 * MS)
    for name in "abc":
        offer(queue, name)
    with pytest.raises(QueueFullError, match="3 requests") as caught:
        offer(queue, "d")
    assert caught.value.retry_after_s == pytest.approx(1.0)  # two batches of half a second
    assert queue.waiting == 3


def test_nobody_waits_for_company_that_the_model_does_not_take() -> None:
    queue = batcher(size=8)
    queue.fit(1)
    offer(queue, "a")
    assert queue.take(0).batch == ("a",)


def test_a_client_that_left_makes_room() -> None:
    queue = batcher(room=1)
    ticket = offer(queue, "a")
    assert queue.discard(ticket)
    assert not queue.discard(ticket)
    assert queue.waiting_bytes == 0
    offer(queue, "b")


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.integers(0, 20), st.integers(1, 60)),
        st.tuples(st.just("take"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 20), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 5))
def test_every_request_is_run_expired_left_or_still_there_once(
    steps: list[tuple[str, int, int]], size: int
) -> None:
    queue: Batcher[int] = Batcher(BatchLimits(size, 5 * MS, 10 * (OVERHEAD_BYTES + 1)))
    now_ns, left = 0, 0
    taken: list[int] = []
    tickets: dict[int, int] = {}
    for what, pause_ms, life_ms in steps:
        now_ns += pause_ms * MS
        if what == "offer":
            name = len(tickets)
            try:
                tickets[name] = queue.offer(
                    name, size_bytes=1, now_ns=now_ns, deadline_ns=now_ns + life_ms * MS
                )
            except QueueFullError:
                assert queue.waiting == 10
        elif what == "take":
            found = queue.take(now_ns)
            assert len(found.batch) <= size
            assert list(found.batch) == sorted(found.batch)  # oldest first
            taken += [*found.batch, *found.expired]
        elif tickets:
            left += queue.discard(tickets[max(tickets)])
    assert len(taken) == len(set(taken))
    assert len(taken) + left + queue.waiting == len(tickets)
    assert queue.waiting_bytes == queue.waiting * (OVERHEAD_BYTES + 1)
