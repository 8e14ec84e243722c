"""Threads that ask the large model; whoever owns the cases never waits for one of them."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import traceback
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from vedette.escalate.port import CloudAnswer, CloudError
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.escalate.port import Question


class Job(NamedTuple):
    """One question; `number` is given back with its reply, `deadline_s` is CLOCK_MONOTONIC."""

    number: int
    question: Question
    deadline_s: float
    audit: bool


class Reply(NamedTuple):
    """What became of a job; `crash` is the text of an error of our own, empty for none."""

    number: int
    answer: CloudAnswer | CloudError
    crash: str = ""


class AskerPool(Protocol):
    """Takes jobs while one of its places is free, and gives one reply for each."""

    @property
    def free(self) -> int:
        """How many jobs it would take now."""
        ...

    def start(self, job: Job) -> None:
        """Begin a job; only where a place is free."""
        ...

    def replies(self) -> list[Reply]:
        """All that came since; never waits."""
        ...


class ThreadedPool:
    """`places` threads; `doorbell` becomes readable when a reply is there. One thread owns it.

    A thread that fails in a way nobody thought of still replies: its case ends like any other.
    """

    def __init__(self, ask: Callable[[Job], CloudAnswer], places: int) -> None:
        self._ask = ask
        self.doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # never more than there are places
        self._replies: deque[Reply] = deque()
        self._places = places
        self._busy = 0
        self._threads = [
            threading.Thread(target=self._serve, name=f"ask-{number}", daemon=True)
            for number in range(places)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def free(self) -> int:
        """See `AskerPool`."""
        return self._places - self._busy

    def start(self, job: Job) -> None:
        """See `AskerPool`."""
        self._busy += 1
        self._jobs.put(job)

    def replies(self) -> list[Reply]:
        """See `AskerPool`."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.doorbell)
        found: list[Reply] = []
        while self._replies:
            found.append(self._replies.popleft())
        self._busy -= len(found)
        return found

    def close(self, timeout_s: float) -> bool:
        """End the threads; False where one still waits for its network: the process's end ends it."""
        for _ in self._threads:
            self._jobs.put(None)
        each_s = timeout_s / len(self._threads)
        for thread in self._threads:
            thread.join(each_s)
        ended = not any(thread.is_alive() for thread in self._threads)
        if ended:
            os.close(self.doorbell)
        return ended

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._replies.append(self._reply(job))
            os.eventfd_write(self.doorbell, 1)

    def _reply(self, job: Job) -> Reply:
        try:
            return Reply(job.number, self._ask(job))
        except CloudError as error:
            return Reply(job.number, error)
        except Exception as error:  # noqa: BLE001 - a case must end, whatever its thread meets
            crash = traceback.format_exc(limit=-3)
            return Reply(job.number, CloudError(CloudFault.BROKEN, f"our own fault: {error}"), crash)
