"""What an outbox holds and what became of the rest, kept in step with its transactions. Pure."""

from __future__ import annotations

from vedette.link.entries import Kind


class Tally:
    """Rows by kind, those set aside apart; a transaction works on a copy that takes its place at the commit.

    `lost` events of the class NEWEST were dropped since the last one that was kept; `stored_lost` of them
    are on the disk. `dropped` and `damaged` count since the start.
    """

    def __init__(self) -> None:
        self.count = {(kind, aside): 0 for kind in Kind for aside in (False, True)}
        self.cost_bytes = 0
        self.lost = 0
        self.stored_lost = 0
        self.dropped = dict.fromkeys(Kind, 0)
        self.damaged = 0

    @property
    def set_aside(self) -> int:
        """Rows that were set aside."""
        return sum(count for (_, aside), count in self.count.items() if aside)

    def copy(self) -> Tally:
        """The same, to change."""
        other = Tally()
        other.count = dict(self.count)
        other.dropped = dict(self.dropped)
        other.cost_bytes, other.lost, other.stored_lost = self.cost_bytes, self.lost, self.stored_lost
        other.damaged = self.damaged
        return other

    def recounted(self) -> Tally:
        """Nothing in it yet, but what happened since the start is not forgotten."""
        other = Tally()
        other.dropped, other.damaged = dict(self.dropped), self.damaged
        return other

    def add(self, kind: Kind, cost_bytes: int, *, aside: bool = False, times: int = 1) -> None:
        """Rows that cost so much together came."""
        self.count[kind, aside] += times
        self.cost_bytes += cost_bytes

    def take(self, kind: Kind, cost_bytes: int, *, aside: bool) -> None:
        """A row went."""
        self.add(kind, -cost_bytes, aside=aside, times=-1)

    def drop(self, kind: Kind) -> None:
        """One was lost; of events, the next one that is kept says so."""
        self.dropped[kind] += 1
        self.lost += kind is Kind.EVENT
