"""Whether the update server can still be reached in a trial, asked seldom. Pure but for the clock.

A model that starves the box of what its network needs must not be confirmed: nothing could repair it from
afar. Whether the server answers is asked once before the switch, so that nobody is blamed who never could.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.update.background import inline
from vedette.update.health import Contact

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from vedette.clock import Clock
    from vedette.update.ports import Background

FIRST_WITHIN_S = 5.0
ASK_EVERY_S = 60.0


class Reach:
    """One trial's tries; `ask` may block for some seconds, so it is asked in the background.

    `draw` gives numbers in [0, 1).
    """

    def __init__(
        self,
        ask: Callable[[], bool],
        clock: Clock,
        draw: Callable[[], float],
        *,
        background: Background = inline,
    ) -> None:
        self._ask = ask
        self._background = background
        self._asking: Future[bool] | None = None
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

    def asked(self) -> bool | None:
        """Whether the server answers; None until it is known, to be called again. Begins to ask."""
        if self._asking is None:
            self._asking = self._background(self._ask, "update-reach")
        if not self._asking.done():
            return None
        asking, self._asking = self._asking, None
        return asking.result(timeout=0)

    def look(self) -> Contact:
        """How it stands; asks when it is time to."""
        reached = self.asked() if self._clock.monotonic_ns() >= self._due_ns else None
        if reached is not None:
            self._reached = reached
            now_ns = self._clock.monotonic_ns()
            self._failures = 0 if self._reached else self._failures + 1
            if self._reached:
                self._contact_ns = now_ns
            # Around the interval: boxes that went on trial together must not ask together for ever.
            self._due_ns = now_ns + round(ASK_EVERY_S * (0.5 + self._draw()) * 1e9)
        lost_s = 0.0 if self._reached else (self._clock.monotonic_ns() - self._contact_ns) / 1e9
        return Contact(self._reached, self._failures, lost_s)
