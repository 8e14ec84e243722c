"""How long to look before going to sleep: only as long as looking has paid lately. Pure.

Waking a process costs 25 to 100 us on a virtual machine, and its caches are cold then. Two processes that
answer each other within a few such times do better to look first; everybody else wastes a CPU by it. So
looking is earned by sleeps that turned out short, and forfeited quickly when nothing came: spin-then-block
with a learned limit (Karlin, Li, Manasse, Owicki, "Empirical Studies of Competitive Spinning for a
Shared-Memory Multiprocessor", SOSP 1991).
"""

from __future__ import annotations

MOST_NS = 400_000
EARNED_AFTER = 4
MOST_CREDIT = 16
FORFEIT = 6


class Linger:
    """The credit of one waiter."""

    def __init__(self, *, usable_cpus: int, most_ns: int = MOST_NS) -> None:
        """On a single CPU nothing can come while one looks, so nothing is ever granted."""
        self._most_ns = most_ns if usable_cpus > 1 else 0
        self._credit = 0

    @property
    def budget_ns(self) -> int:
        """How long to look this time; 0 is: sleep at once."""
        return self._most_ns if self._credit >= EARNED_AFTER else 0

    def slept(self, elapsed_ns: int) -> None:
        """A sleep ended because something came, after `elapsed_ns`."""
        if elapsed_ns < self._most_ns:
            self._credit = min(MOST_CREDIT, self._credit + 1)
        else:
            self._credit = 0

    def looked(self, *, found: bool) -> None:
        """Looking ended: something came within the budget, or not."""
        self._credit = min(MOST_CREDIT, self._credit + 1) if found else self._credit - FORFEIT
