"""Whether the update server can still be reached in a trial, asked seldom. Pure but for the clock.

A model that starves the box of what its network needs must not be confirmed: nothing could repair it from
afar. Whether the server answers is asked once before the switch, so that nobody is blamed who never could.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.update.health import Contact

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock

FIRST_WITHIN_S = 5.0
ASK_EVERY_S = 60.0


class Reach:
    """One trial's tries; `ask` may block for some seconds, `draw` gives numbers in [0, 1)."""

    def __init__(self, ask: Callable[[], bool], clock: Clock, draw: Callable[[], float]) -> None:
        self.ask = ask
        self._clock = clock
        self._draw = draw
        self.begin()

    def begin(self) -> None:
        """A trial begins: what was so before does not count."""
        now_ns = self._clock.monotonic_ns()
        self._contact_ns = now_ns
        self._reached = False
        self._failures = 0
        self._due_ns = now_ns + round(FIRST_WITHIN_S * self._draw() * 1e9)

    def look(self) -> Contact:
        """How it stands; asks when it is time to."""
        if self._clock.monotonic_ns() >= self._due_ns:
            self._reached = self.ask()
            now_ns = self._clock.monotonic_ns()
            self._failures = 0 if self._reached else self._failures + 1
            if self._reached:
                self._contact_ns = now_ns
            # Around the interval: boxes that went on trial together must not ask together for ever.
            self._due_ns = now_ns + round(ASK_EVERY_S * (0.5 + self._draw()) * 1e9)
        lost_s = 0.0 if self._reached else (self._clock.monotonic_ns() - self._contact_ns) / 1e9
        return Contact(self._reached, self._failures, lost_s)
