"""Escalations of one window: what was counted since the report before. Pure."""

from __future__ import annotations

import msgspec

from vedette.wire.telemetry import NOTHING, Count, EscalationFigures

_COUNTS = ("escalated", "calls", "audits", "sent_bytes", "cache_hits", "cache_misses")


class EscalationCounts(msgspec.Struct, frozen=True):
    """One camera since the start.

    `escalated` and `audited` frames were handed over, and `under_way` of them have no outcome yet. `outcomes`
    counts by word, with `_` and the cause where there is one; those that the gate declined are among them.
    `held` results wait for their outcome.
    """

    escalated: int = 0
    audited: int = 0
    under_way: int = 0
    held: int = 0
    outcomes: dict[str, int] = {}


def since(now: EscalationFigures, before: EscalationFigures | None) -> EscalationFigures:
    """The same with the increments of the window; both have totals in the second place of their counts.

    A total that went back is that of a new beginning: all of it is the increment.
    """
    old = EscalationFigures() if before is None else before
    return msgspec.structs.replace(
        now,
        outcomes={
            word: _grown(total, old.outcomes.get(word, NOTHING)) for word, total in now.outcomes.items()
        },
        **{name: _grown(getattr(now, name), getattr(old, name)) for name in _COUNTS},
    )


def total(count: int) -> Count:
    """A total, before it is known what of it is this window's."""
    return (count, count) if count else NOTHING


def _grown(now: Count, before: Count) -> Count:
    grown = now[1] - before[1]
    count = (grown if grown >= 0 else now[1], now[1])
    return count if any(count) else NOTHING  # the constant itself is left out of a message
