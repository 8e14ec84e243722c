"""Which cases wait on the disk while there is no way to the large model. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One file; `rank` as of `Ticket.rank`, `model` the beginning of its model file's SHA-256."""

    name: str
    rank: tuple[int, float]
    size_bytes: int
    utc_s: float
    model: str


class Backlog:
    """Bounded in bytes; the least uncertain gives way, nothing stays longer than `max_age_s`."""

    def __init__(self, max_bytes: int, max_age_s: float, drain_per_minute: float) -> None:
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._gap_s = 60.0 / drain_per_minute
        self._next_s = 0.0
        self.entries: dict[str, Entry] = {}

    @property
    def size_bytes(self) -> int:
        """What they take on the disk."""
        return sum(entry.size_bytes for entry in self.entries.values())

    def victims(self, rank: tuple[int, float], size_bytes: int) -> list[Entry] | None:
        """Who has to go so that one more has room; None where it is the one that has none."""
        missing = self.size_bytes + size_bytes - self._max_bytes
        found: list[Entry] = []
        for entry in sorted(self.entries.values(), key=lambda one: (one.rank, one.utc_s)):
            if missing <= 0:
                break
            if entry.rank >= rank:
                return None
            found.append(entry)
            missing -= entry.size_bytes
        return found if missing <= 0 else None

    def too_old(self, utc_s: float) -> list[Entry]:
        """Whose answers would be of no use to anybody."""
        return [entry for entry in self.entries.values() if utc_s - entry.utc_s > self._max_age_s]

    def next_due(self, now_s: float, model: str, under_way: frozenset[str]) -> Entry | None:
        """The one to ask about now, at the limited rate.

        Args:
            now_s: CLOCK_MONOTONIC.
            model: The beginning of the serving model file's SHA-256; of others nobody knows the words.
            under_way: Names of those that are being asked about.
        """
        if now_s < self._next_s:
            return None
        mine = [
            entry for entry in self.entries.values() if entry.model == model and entry.name not in under_way
        ]
        if not mine:
            return None
        self._next_s = now_s + self._gap_s
        return max(mine, key=lambda entry: (entry.rank, -entry.utc_s))
