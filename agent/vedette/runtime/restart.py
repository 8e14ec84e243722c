"""When a dead child is started again: exponential backoff, full jitter, a budget. Pure but for its clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from vedette.clock import Clock
    from vedette.runtime.plan import RestartPolicy


def pause_text(delay_s: float) -> str:
    """A pause for people: `40 ms`, `1.2 s`."""
    return f"{delay_s * 1e3:.0f} ms" if delay_s < 0.95 else f"{delay_s:.1f} s"


class Restarts:
    """The deaths of one child, and what follows from them.

    Full jitter is the scheme of Brooker, "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015): the
    delay is uniform between zero and the capped exponential, so that many boxes never retry in step.
    """

    def __init__(self, policy: RestartPolicy, clock: Clock, rng: random.Random) -> None:
        self._policy = policy
        self._clock = clock
        self._rng = rng
        self._deaths_ns: deque[int] = deque(maxlen=max(1, policy.budget) + 1)
        self._in_a_row = 0
        self.total = 0

    @property
    def over_budget(self) -> bool:
        """More deaths within the window than the policy calls normal: the child is degraded."""
        since_ns = self._clock.monotonic_ns() - round(self._policy.window_s * 1e9)
        return sum(1 for death_ns in self._deaths_ns if death_ns >= since_ns) > self._policy.budget

    def died(self) -> float:
        """Note a death.

        Returns:
            Seconds to wait, from now, before the next start.
        """
        self.total += 1
        self._deaths_ns.append(self._clock.monotonic_ns())
        self._in_a_row += 1
        policy = self._policy
        if self.over_budget:
            return policy.backoff_max_s * (0.5 + 0.5 * self._rng.random())
        ceiling_s = min(policy.backoff_max_s, policy.backoff_min_s * 2.0 ** min(self._in_a_row, 32))
        return self._rng.uniform(0.0, ceiling_s)

    def proved_good(self) -> None:
        """The child works again: the next death starts from the shortest delay."""
        self._in_a_row = 0
