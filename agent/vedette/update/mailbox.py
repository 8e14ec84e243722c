"""What other threads tell the update: a bounded queue in which news of one kind take one place."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import UnavailableError
from vedette.update import events as ev
from vedette.update.interruption import Interruption

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update.looking import Road

MAX_REQUESTS = 16


class Taken(NamedTuple):
    """An event from outside; `answer` is for whoever asked, `road` where to look instead of as usual."""

    event: ev.Event
    answer: Future[str] | None = None
    road: Road | None = None


class Mailbox:
    """Holds one announcement and MAX_REQUESTS requests; any thread may put, one takes.

    While a request to abort waits, `interruption` is set: whoever should take it may be waiting for a server.
    """

    def __init__(self, interruption: Interruption | None = None) -> None:
        self._interruption = interruption or Interruption()
        self.wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._announced: ev.Announced | None = None
        self._requests: list[Taken] = []
        self._closed = False

    def announce(self, announced: ev.Announced) -> None:
        """Say that there may be something new; the newest mark is kept, one without a mark always looks."""
        with self._lock:
            before = self._announced
            if before is None or (
                before.mark is not None and (announced.mark is None or announced.mark > before.mark)
            ):
                self._announced = announced
        self.wake()

    def abort(self) -> Future[str]:
        """Ask to stop the update; the future will hold the machine's word for it."""
        return self._request(ev.Aborted(), None)

    def take_road(self, road: Road) -> Future[str]:
        """Ask to look somewhere else, once."""
        return self._request(ev.Announced(), road)

    def waiting(self) -> bool:
        """Whether there is something to take."""
        with self._lock:
            return bool(self._requests) or self._announced is not None

    def take(self) -> Taken | None:
        """The next event, requests first; None when there is none."""
        with self._lock:
            if self._requests:
                taken = self._requests.pop(0)
                if not any(isinstance(request.event, ev.Aborted) for request in self._requests):
                    self._interruption.clear()
                return taken
            announced, self._announced = self._announced, None
        return None if announced is None else Taken(announced)

    def close(self) -> None:
        """Nobody takes any more: whoever waits for an answer is told so."""
        with self._lock:
            self._closed, left, self._requests = True, self._requests, []
        for request in left:
            _refuse(request.answer)

    def _request(self, event: ev.Event, road: Road | None) -> Future[str]:
        answer: Future[str] = Future()
        with self._lock:
            taken = not self._closed and len(self._requests) < MAX_REQUESTS
            if taken:
                self._requests.append(Taken(event, answer, road))
                if isinstance(event, ev.Aborted):
                    self._interruption.set()
        if not taken:
            _refuse(answer)
        self.wake()
        return answer


def _refuse(answer: Future[str] | None) -> None:
    if answer is not None:
        answer.set_exception(
            UnavailableError("updates are stopping, or too many requests wait", cure="ask again later")
        )
