"""A record is written time after time: what was written stays written, and nothing is ever lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.errors import VedetteError
from vedette.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

LAST = 8


class Count(msgspec.Struct, frozen=True):
    """A number, with ballast that makes the records of different lengths."""

    number: int
    ballast: str


def _count(number: int) -> Count:
    return Count(number, str(number) * (number * 397 % 3000))


class JournalScenario:
    """Counts to LAST in a record."""

    name = "journal"
    counts_kills = False

    def prepare(self, root: Path) -> None:
        """Nothing: the first record is a part of the story."""

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Read how far it is, and count on."""
        journal = Journal(root, "count", Count, capacity_bytes=16384)
        found = journal.read()
        if found is not None:
            promise(str(found.number))  # what a run acts on stays, also if the run before was killed over it
        for number in range(0 if found is None else found.number + 1, LAST + 1):
            journal.write(_count(number))
            promise(str(number))

    def check(self, root: Path, promises: Sequence[str], *, ended: bool) -> Iterable[str]:
        """The record is there, at least as new as promised, and at most one step further."""
        promised = int(promises[-1]) if promises else -1
        try:
            found = Journal(root, "count", Count, capacity_bytes=16384).read()
        except VedetteError as error:
            yield f"the record cannot be read: {error}"
            return
        number = -1 if found is None else found.number
        if not promised <= number <= promised + 1:
            yield f"the record says {number}; {promised} was promised"
        if found is not None and found != _count(number):
            yield f"record {number} is not what was written"
        if ended and number != LAST:
            yield f"it ended with {number}"
