"""When an announcement is passed on: once, and at this device's own moment in the spread. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.wire.plane import Announcement

EVERY_S = 1.0


class AnnouncementDelay:
    """Holds the newest announcement until it is due; times are monotonic nanoseconds."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        self._uniform = uniform
        self._waiting: Announcement | None = None
        self._due_ns = 0
        self._passed_on: tuple[int, int] | None = None
        self._not_before_ns = 0

    def heard(self, announcement: Announcement, now_ns: int) -> None:
        """One came; what was passed on already comes again in each connection, and is nothing new.

        A newer one takes the place of one that waits, at the earlier of their moments: a stream of them must
        not put it off for ever.
        """
        if _versions(announcement) == self._passed_on:
            return
        due_ns = now_ns + round(self._uniform(0.0, announcement.spread_s) * 1e9)
        self._due_ns = due_ns if self._waiting is None else min(self._due_ns, due_ns)
        self._due_ns = max(self._due_ns, self._not_before_ns)
        self._waiting = announcement

    def due(self, now_ns: int) -> Announcement | None:
        """The one to pass on now."""
        waiting = self._waiting
        if waiting is None or now_ns < self._due_ns:
            return None
        self._waiting = None
        self._passed_on = _versions(waiting)
        self._not_before_ns = now_ns + round(EVERY_S * 1e9)
        return waiting

    def wait_s(self, now_ns: int) -> float:
        """Seconds until one is due; infinite when none waits."""
        return math.inf if self._waiting is None else max(0.0, (self._due_ns - now_ns) / 1e9)


def _versions(announcement: Announcement) -> tuple[int, int]:
    return announcement.timestamp_version, announcement.rollouts_version
