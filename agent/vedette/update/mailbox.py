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

    def look(self, road: Road | None = None) -> Future[str]:
        """Ask to look now, once, as usual or by another road; the future will hold what came of it."""
        return self._request(ev.Announced(), road)

    def poke(self) -> None:
        """Wake whoever takes, for something that lies elsewhere."""
        self.wake()

    def waiting(self, *, looks: bool = True) -> bool:
        """Whether there is something to take; `looks`: requests to look as well."""
        with self._lock:
            return self._announced is not None or self._first(looks=looks) is not None

    def take(self, *, looks: bool = True) -> Taken | None:
        """The next event, requests first; None when there is none."""
        with self._lock:
            first = self._first(looks=looks)
            if first is not None:
                taken = self._requests.pop(first)
                if not any(isinstance(request.event, ev.Aborted) for request in self._requests):
                    self._interruption.clear()
                return taken
            announced, self._announced = self._announced, None
        return None if announced is None else Taken(announced)

    def take_announced(self) -> ev.Announced | None:
        """The announcement, if there is one; requests stay."""
        with self._lock:
            announced, self._announced = self._announced, None
        return announced

    def _first(self, *, looks: bool) -> int | None:
        """Where the first request is that may be taken."""
        may = (
            n for n, request in enumerate(self._requests) if looks or isinstance(request.event, ev.Aborted)
        )
        return next(may, None)

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
