"""When a connection is tried again: full jitter under a growing ceiling. Pure but for its clock.

Source: Brooker, "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015). The pause is drawn anew from
zero to the ceiling, so that a fleet never comes back in step; it is counted from the end of an attempt, since
an attempt may itself hang for longer than the pause (casebook 28).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from vedette.clock import Clock

PROVEN_S = 60.0


class Backoff:
    """The pauses of one broker; only a connection that lasted `proven_s` makes them short again."""

    def __init__(
        self, *, min_s: float, max_s: float, clock: Clock, rng: random.Random, proven_s: float = PROVEN_S
    ) -> None:
        self._min_s = min_s
        self._max_s = max_s
        self._clock = clock
        self._rng = rng
        self._proven_s = proven_s
        self._in_a_row = 0
        self._due_ns = clock.monotonic_ns()

    def ended(self, up_s: float) -> float:
        """An attempt ends now; its connection was up for `up_s`, 0 when it never was.

        Returns:
            Seconds from now until the next attempt.
        """
        if up_s >= self._proven_s:
            self._in_a_row = 0
        ceiling_s = min(self._max_s, self._min_s * 2.0 ** min(self._in_a_row, 32))
        self._in_a_row += 1
        pause_s = self._rng.uniform(0.0, ceiling_s)
        self._due_ns = self._clock.monotonic_ns() + round(pause_s * 1e9)
        return pause_s

    def remaining_s(self) -> float:
        """Seconds until the next attempt is due; 0 when it is."""
        return max(0.0, (self._due_ns - self._clock.monotonic_ns()) / 1e9)
