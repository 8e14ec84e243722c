"""Ends another thread's waiting for a network at once: no abort, and no end, waits for a slow server."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Interruption:
    """A flag that any thread may set, and what is to be done at that moment.

    While it is set, fetchers refuse to begin anything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._for_good = False
        self.times = 0  # how often it was set
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_set(self) -> bool:
        """Whether whoever waits for a network is to stop."""
        return self._is_set

    def set(self, *, for_good: bool = False) -> None:
        """Interrupt; until `clear`, or for good."""
        with self._lock:
            self._is_set = True
            self.times += 1
            self._for_good |= for_good
            for listener in self._listeners:
                listener()

    def clear(self) -> None:
        """Let things go on."""
        with self._lock:
            self._is_set = self._for_good

    def check(self, what: str) -> None:
        """Refuse to begin or to go on with something.

        Raises:
            UnavailableError: It is set.
        """
        if self._is_set:
            raise interrupted(what)

    @contextlib.contextmanager
    def told(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener`, which must not wait, when it is set meanwhile, or is already; on any thread."""
        with self._lock:
            self._listeners.append(listener)
            if self._is_set:
                listener()
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)


def interrupted(what: str) -> UnavailableError:
    """The error of something that was given up on demand."""
    return UnavailableError(
        f"{what}: given up, because the update was to stop", cure="it is tried again at the next look"
    )
