"""Which camera is served next. Pure: facts in, a choice out.

Strict priority between tiers, least recently served within a tier. Strict priority alone would let a busy
camera silence the rest for ever: one that was not served for longer than the starvation bound is promoted.
Promotions never follow each other: many starving cameras take at most every second turn. With n cameras and
turns of at most t, a camera that always has a fresh frame therefore waits no longer than the bound + 2nt.

Frames are dropped by facts (their age now), never by an estimated rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_STARVATION_NS = 1_000_000_000
_NEVER_NS = -(1 << 63)


class Candidate(msgspec.Struct):
    """What is known of one camera now; may be updated in place and passed again.

    `priority`: higher goes first. `pending_age_ns`: time since its newest frame arrived, None if it has none.
    `max_age_ns`: the age budget, None for none. `last_served_ns`: None if it never was.
    """

    key: str
    priority: int = 1
    pending_age_ns: int | None = None
    max_age_ns: int | None = None
    last_served_ns: int | None = None


class Choice(msgspec.Struct, frozen=True):
    """`key` is the camera to serve, None if there is none; frames of `stale` are to be dropped."""

    key: str | None
    stale: tuple[str, ...] = ()
    promoted: bool = False


class Scheduler:
    """Chooses the next camera; remembers only whether the last turn was a promotion."""

    def __init__(self, starvation_ns: int = DEFAULT_STARVATION_NS) -> None:
        if starvation_ns <= 0:
            raise ValueError(f"a starvation bound of {starvation_ns} ns is none")
        self._starvation_ns = starvation_ns
        self._promoted_last = False

    def choose(self, now_ns: int, candidates: Sequence[Candidate]) -> Choice:
        """Choose by the facts of this moment; ties go to the one listed first.

        Args:
            now_ns: Monotonic time, the same clock as `last_served_ns`.
            candidates: Every camera, also those without a frame, in a stable order.

        Returns:
            The choice. Its cameras are told apart by `key`; none is both served and stale.
        """
        first: Candidate | None = None  # highest tier, in it the least recently served
        first_served_ns = 0
        longest: Candidate | None = None  # least recently served of all
        longest_served_ns = 0
        stale: list[str] = []
        for candidate in candidates:
            age_ns = candidate.pending_age_ns
            if age_ns is None:
                continue
            if candidate.max_age_ns is not None and age_ns > candidate.max_age_ns:
                stale.append(candidate.key)
                continue
            served_ns = candidate.last_served_ns
            if served_ns is None:
                served_ns = _NEVER_NS
            if (
                first is None
                or candidate.priority > first.priority
                or (candidate.priority == first.priority and served_ns < first_served_ns)
            ):
                first, first_served_ns = candidate, served_ns
            if longest is None or served_ns < longest_served_ns:
                longest, longest_served_ns = candidate, served_ns
        if first is None or longest is None:
            return Choice(None, tuple(stale))
        promoted = (
            not self._promoted_last
            and longest.priority < first.priority
            and now_ns - longest_served_ns > self._starvation_ns
        )
        self._promoted_last = promoted
        return Choice(longest.key if promoted else first.key, tuple(stale), promoted)
