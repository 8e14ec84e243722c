"""When a message that was set aside is tried again: a network that flaps looks like a poison message. Pure.

One at a time, and alone on its way. Each that ends the connection again, or is refused again, makes the next
try wait longer; one that arrives lets the next go at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_MIN_S = 600.0
AGAIN_MAX_S = 3600.0


class AsideRetry:
    """The time of the next try; times are monotonic nanoseconds."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        self._uniform = uniform
        self._failures = 0
        self._due_ns: int | None = None
        self.last_number = 0

    def set_aside(self, now_ns: int) -> None:
        """A message was set aside for the first time; a try that is planned already stays."""
        if self._due_ns is None:
            self._plan(now_ns)

    def failed(self, now_ns: int) -> None:
        """A message was tried again in vain, or there was none to try."""
        self._failures += 1
        self._plan(now_ns)

    def arrived(self, now_ns: int) -> None:
        """A message that was tried again has arrived."""
        self._failures = 0
        self._due_ns = now_ns

    def wait_s(self, now_ns: int) -> float | None:
        """Seconds until the next try; None while none is planned."""
        return None if self._due_ns is None else max(0.0, (self._due_ns - now_ns) / 1e9)

    def tried_all(self) -> None:
        """Nothing is set aside any more."""
        self._failures = 0
        self._due_ns = None

    def _plan(self, now_ns: int) -> None:
        shortest_s = min(AGAIN_MAX_S, AGAIN_MIN_S * 2.0 ** min(self._failures, 8))
        wait_s = shortest_s + self._uniform(0.0, shortest_s / 2)
        self._due_ns = now_ns + round(wait_s * 1e9)
