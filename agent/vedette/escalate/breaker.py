"""Stops asking a large model that fails: a windowed circuit breaker, shared by all cameras. Pure.

Breakers that count failures in a row never open on a link that fails every other time; this one counts the
failures among the last calls. After a rest that doubles with each failed probe, with full jitter, one single
call tries whether it is better.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class BreakerState(str, Enum):
    """What happens to a call."""

    CLOSED = "closed"  # it is made
    OPEN = "open"  # it is not made
    HALF_OPEN = "half_open"  # one is made, to see


class Limits(NamedTuple):
    """`failures` among the last `window` calls open it; it rests between `rest_min_s` and `rest_max_s`."""

    failures: int = 5
    window: int = 10
    rest_min_s: float = 2.0
    rest_max_s: float = 120.0


class Breaker:
    """One thread at a time; `draw` gives a random number in [0, 1), times are CLOCK_MONOTONIC."""

    def __init__(self, draw: Callable[[], float], limits: Limits = Limits()) -> None:  # noqa: B008 - immutable
        self._draw = draw
        self._limits = limits
        self._last: deque[bool] = deque(maxlen=limits.window)
        self._opens = 0
        self._rests_until_ns = 0
        self._pause_until_ns = 0
        self._probing = False
        self._open = False

    def state(self, now_ns: int) -> BreakerState:
        """What a call would meet now."""
        if not self._open:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_ns < self._rests_until_ns else BreakerState.HALF_OPEN

    def pause_s(self, now_ns: int) -> float:
        """How long the server wished not to be asked, from now."""
        return max(0.0, (self._pause_until_ns - now_ns) / 1e9)

    def may_call(self, now_ns: int) -> bool:
        """Whether to make a call now; whoever is told yes must tell how it ended."""
        if now_ns < self._pause_until_ns:
            return False
        state = self.state(now_ns)
        if state is BreakerState.HALF_OPEN:
            if self._probing:
                return False
            self._probing = True
            return True
        return state is BreakerState.CLOSED

    def succeeded(self) -> None:
        """A call came back with an answer, or with an error that is the question's own fault."""
        if self._open:
            self._last.clear()
            self._open, self._probing, self._opens = False, False, 0
        self._last.append(True)

    def failed(self, now_ns: int) -> None:
        """A call did not; those that were under way when it opened count for nothing more."""
        if self._open:
            if self._probing:
                self._probing = False
                self._rest(now_ns)
            return
        self._last.append(False)
        if self._last.count(False) >= self._limits.failures:
            self._open = True
            self._rest(now_ns)

    def abandoned(self) -> None:
        """A call that was allowed was not made, or says nothing about the server."""
        self._probing = False

    def wait(self, seconds: float, now_ns: int) -> None:
        """The server wishes not to be asked for so long, whatever the camera."""
        self._pause_until_ns = max(self._pause_until_ns, now_ns + round(seconds * 1e9))

    def _rest(self, now_ns: int) -> None:
        ceiling_s = min(self._limits.rest_max_s, self._limits.rest_min_s * 2.0 ** min(self._opens, 30))
        self._opens += 1
        # Full jitter, above a floor: a rest of nothing would be none.
        floor_s = min(self._limits.rest_min_s / 2, ceiling_s)
        rest_s = floor_s + (ceiling_s - floor_s) * self._draw()
        self._rests_until_ns = now_ns + round(rest_s * 1e9)
