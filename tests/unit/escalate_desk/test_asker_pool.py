"""Whoever asks in the background gives exactly one reply for each job: the threads, and the tests' own."""

from __future__ import annotations

import select
import threading
from typing import TYPE_CHECKING

import pytest
from tests.stubs.asked_cases import HandPool, says

from vedette.escalate.asker_pool import Job, ThreadedPool
from vedette.escalate.port import CloudError, Question
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vedette.escalate.asker_pool import Reply
    from vedette.escalate.port import CloudAnswer

PATIENCE_S = 10.0


def job(number: int) -> Job:
    return Job(number, Question("r", Task.CLASSIFY, b"", 1, 1, ("cat",), ""), 0.0, audit=False)


def wait_for(pool: ThreadedPool, count: int) -> list[Reply]:
    found: list[Reply] = []
    poll = select.poll()
    poll.register(pool.doorbell, select.POLLIN)
    while len(found) < count:
        assert poll.poll(PATIENCE_S * 1000), "no reply came"
        found += pool.replies()
    return found


@pytest.fixture
def threaded() -> Iterator[Callable[[Callable[[Job], CloudAnswer], int], ThreadedPool]]:
    made: list[ThreadedPool] = []

    def make(ask: Callable[[Job], CloudAnswer], places: int) -> ThreadedPool:
        made.append(ThreadedPool(ask, places))
        return made[-1]

    yield make
    for pool in made:
        assert pool.close(PATIENCE_S)


def test_places_are_taken_until_the_reply_is_read(
    threaded: Callable[[Callable[[Job], CloudAnswer], int], ThreadedPool],
) -> None:
    """The contract, of both pools."""
    pool = threaded(lambda _: says("cat"), 2)
    hand = HandPool(2)
    for number in (1, 2):
        pool.start(job(number))
        hand.start(job(number))
    assert (pool.free, hand.free) == (0, 0)
    hand.reply(says("cat"))
    hand.reply(says("cat"))
    assert hand.free == 0
    for replies in (wait_for(pool, 2), hand.replies()):
        assert sorted(reply.number for reply in replies) == [1, 2]
        assert all(reply.answer == says("cat") for reply in replies)
    assert (pool.free, hand.free) == (2, 2)
    assert (pool.replies(), hand.replies()) == ([], [])


def test_a_thread_that_meets_what_nobody_thought_of_replies_and_goes_on(
    threaded: Callable[[Callable[[Job], CloudAnswer], int], ThreadedPool],
) -> None:
    def ask(asked: Job) -> CloudAnswer:
        if asked.number == 1:
            raise ZeroDivisionError("an error of our own")
        if asked.number == 2:
            raise CloudError(CloudFault.BUSY, "busy")
        return says("cat")

    pool = threaded(ask, 1)
    replies = []
    for number in (1, 2, 3):
        pool.start(job(number))
        replies += wait_for(pool, 1)
    first, second, third = replies
    assert isinstance(first.answer, CloudError)
    assert first.answer.fault is CloudFault.BROKEN
    assert "ZeroDivisionError" in first.crash
    assert isinstance(second.answer, CloudError)
    assert (second.answer.fault, second.crash) == (CloudFault.BUSY, "")
    assert third.answer == says("cat")


def test_the_end_waits_no_longer_than_it_may() -> None:
    over = threading.Event()

    def ask(_: Job) -> CloudAnswer:
        over.wait(PATIENCE_S)
        return says("cat")

    pool = ThreadedPool(ask, 1)
    pool.start(job(1))
    assert not pool.close(0.01)
    over.set()
    assert pool.close(PATIENCE_S)
