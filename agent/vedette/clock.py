"""The clock as a port, so that tests drive time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time; wall time never measures a duration here."""

    def monotonic_ns(self) -> int:
        """Nanoseconds that never go back; the origin means nothing."""
        ...


class SystemClock:
    """The machine's CLOCK_MONOTONIC."""

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary origin, shared by all processes of this boot."""
        return time.monotonic_ns()


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, now_ns: int = 0) -> None:
        self._now_ns = now_ns

    def monotonic_ns(self) -> int:
        """The time last set."""
        return self._now_ns

    def advance_s(self, seconds: float) -> None:
        """Move forward; going back is refused, as a monotonic clock would."""
        if seconds < 0:
            raise ValueError("a monotonic clock cannot go back")
        self._now_ns += round(seconds * 1e9)
