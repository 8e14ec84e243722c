"""Which message ends the connection: a suspect is sent alone, and twice is proof (casebook 30). Pure.

When a connection ends just after several messages were sent, any of them may be the cause, so each becomes a
suspect. A suspect travels alone in a connection that has already carried the birth; if that connection ends
too, it was this message. One message that meets a network cut by chance twice is set aside wrongly, which is
why nothing that was set aside is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

KINDS = frozenset({"closed", "packet_too_large"})
JUST_AFTER_S = 5.0
PROOF = 2


class Flight(NamedTuple):
    """A message on its way; `sent_ns` is monotonic."""

    item: Hashable
    sent_ns: int


class Suspects:
    """Messages under suspicion, in the order in which they came under it."""

    def __init__(self) -> None:
        self._strikes: dict[Hashable, int] = {}

    @property
    def first(self) -> Hashable | None:
        """Who is to be sent next, alone; None when nobody is suspected."""
        return next(iter(self._strikes), None)

    def accuse(self, item: Hashable) -> None:
        """It was proven before and is tried once more: it travels alone, and one end is proof."""
        self._strikes[item] = PROOF - 1

    def ended(self, kind: str, flights: Sequence[Flight], now_ns: int) -> Hashable | None:
        """A connection ended while these were on their way; the one that is proven to be the cause."""
        recent = [
            flight
            for flight in flights
            if kind == "packet_too_large" or now_ns - flight.sent_ns <= JUST_AFTER_S * 1e9
        ]
        if kind not in KINDS or not recent:
            return None
        if len(flights) > 1:
            for flight in recent:
                self._strikes.setdefault(flight.item, 0)
            return None
        item = recent[0].item
        self._strikes[item] = self._strikes.get(item, 0) + 1
        if self._strikes[item] < PROOF:
            return None
        self.clear(item)
        return item

    def clear(self, item: Hashable) -> None:
        """It arrived, or is gone."""
        self._strikes.pop(item, None)
