"""The rows of the outbox: each statement of SQL, and the tally kept in step with it.

These run within a transaction of `SqliteFile.run`, on the tally's copy.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from vedette.link.entries import Entry, Kind, Moment
from vedette.link.port import Keep

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from vedette.link.tally import Tally

_READ = (
    "SELECT number, event_id, keep, kind, payload, content_type, boot_id, monotonic_s, utc_s, utc_trusted, "
    "crc32 FROM entries WHERE number = ?"
)
_NUMBERS = {
    False: "SELECT number FROM entries WHERE keep = ? AND aside = '' ORDER BY number LIMIT ?",
    True: "SELECT number FROM entries WHERE keep = ? AND aside = '' ORDER BY number DESC LIMIT ?",
}
_INSERT = (
    "INSERT INTO entries (number, event_id, keep, kind, payload, content_type, boot_id, monotonic_s, utc_s, "
    "utc_trusted, crc32, cost_bytes, lost, aside) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '')"
)
_NEXT_NUMBER = "SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'entries'), 0) + 1"
# What may go to make room, of the class NEWEST alone: first what was set aside, then the oldest.
_DISPENSABLE = (
    "SELECT number FROM entries WHERE keep = 'newest' AND aside != '' ORDER BY number",
    "SELECT number FROM entries WHERE keep = 'newest' AND aside = '' ORDER BY number",
)
_TOTALS = "SELECT kind, aside != '', COUNT(*), SUM(cost_bytes) FROM entries GROUP BY kind, aside != ''"
_ASIDE = "SELECT number FROM entries WHERE aside = ? AND (? IS NULL OR cost_bytes <= ?)"
# The next one after a number, then from the beginning.
_NEXT_ASIDE = (
    "SELECT number FROM entries WHERE aside IN ('ended_link', 'refused') ORDER BY number <= ?, number LIMIT 1"
)
_ROW = "SELECT kind, cost_bytes, aside != '', lost FROM entries WHERE number = ?"
_KNOWN = "SELECT 1 FROM entries WHERE event_id = ?"
_EPOCH = "SELECT fact FROM facts WHERE name = 'epoch'"
_LOST = "SELECT fact FROM facts WHERE name = 'lost_events'"
_STORE_LOST = "INSERT OR REPLACE INTO facts VALUES ('lost_events', ?)"


def next_number(database: sqlite3.Connection) -> int:
    """The number of the next row; it is never given twice."""
    return int(database.execute(_NEXT_NUMBER).fetchone()[0])


def name_of(database: sqlite3.Connection, number: int) -> str:
    """An id for an event that brought none: no other, in this file or any other, has it."""
    return f"{database.execute(_EPOCH).fetchone()[0]}-{number}"


def is_known(database: sqlite3.Connection, event_id: str) -> bool:
    """Whether an event of that id is there."""
    return database.execute(_KNOWN, (event_id,)).fetchone() is not None


def find(database: sqlite3.Connection, keep: Keep, *, newest: bool, excluded: Collection[int]) -> int | None:
    """The oldest or newest row of a class that is not set aside and not `excluded`."""
    rows = database.execute(_NUMBERS[newest], (keep.value, len(excluded) + 1))
    return next((number for (number,) in rows if number not in excluded), None)


def read(database: sqlite3.Connection, tally: Tally, number: int) -> Entry | None:
    """One row; None when it has gone, or is damaged, which is counted."""
    row = database.execute(_READ, (number,)).fetchone()
    if row is None:
        return None
    if zlib.crc32(row[4]) != row[10]:
        delete(database, tally, number)
        tally.damaged += 1
        return None
    kept_at = Moment(row[6], row[7], row[8], bool(row[9]))
    return Entry(row[0], row[1], Keep(row[2]), Kind(row[3]), row[4], row[5], kept_at)


def make_room(database: sqlite3.Connection, tally: Tally, allowed_bytes: int) -> bool:
    """Drop dispensable rows until no more than `allowed_bytes` are held; False when that is not enough."""
    if tally.cost_bytes <= allowed_bytes:
        return True
    # Rows that were set aside have no index, so they are looked for only when there are any.
    for query in _DISPENSABLE[0 if tally.set_aside else 1 :]:
        for (number,) in database.execute(query):
            drop(database, tally, number)
            if tally.cost_bytes <= allowed_bytes:
                return True
    return False


def take_back(database: sqlite3.Connection, tally: Tally, why: str, max_bytes: int | None) -> None:
    """Let rows that were set aside for `why`, and cost no more than `max_bytes`, wait again."""
    found = database.execute(_ASIDE, (why, max_bytes, max_bytes)) if tally.set_aside else ()
    for (number,) in list(found):
        mark(database, tally, number, "")


def take_back_one(database: sqlite3.Connection, tally: Tally, after: int) -> int | None:
    """Let the next row after that number wait again that a broker ended or refused; None without one."""
    row = database.execute(_NEXT_ASIDE, (after,)).fetchone() if tally.set_aside else None
    if row is None:
        return None
    mark(database, tally, int(row[0]), "")
    return int(row[0])


def store_lost(database: sqlite3.Connection, tally: Tally) -> None:
    """Write down how many were lost, if that changed."""
    if tally.lost != tally.stored_lost:
        database.execute(_STORE_LOST, (str(tally.lost),))
        tally.stored_lost = tally.lost


def recount(database: sqlite3.Connection, before: Tally) -> Tally:
    """The tally of what is there; what was lost and is not written down yet stays known."""
    tally = before.recounted()
    for kind, aside, count, cost in database.execute(_TOTALS):
        tally.add(Kind(kind), cost, aside=bool(aside), times=count)
    row = database.execute(_LOST).fetchone()
    tally.stored_lost = int(row[0]) if row is not None else 0
    tally.lost = tally.stored_lost + before.lost - before.stored_lost
    return tally


def insert(database: sqlite3.Connection, tally: Tally, entry: Entry, *, lost: int = 0) -> None:
    """Add a row, which tells of so many that were lost."""
    moment = entry.kept_at
    database.execute(
        _INSERT,
        (
            entry.number,
            entry.event_id,
            entry.keep.value,
            entry.kind.value,
            entry.payload,
            entry.content_type,
            moment.boot_id,
            moment.monotonic_s,
            moment.utc_s,
            moment.utc_trusted,
            zlib.crc32(entry.payload),
            entry.cost_bytes,
            lost,
        ),
    )
    tally.add(entry.kind, entry.cost_bytes)


def delete(database: sqlite3.Connection, tally: Tally, number: int) -> None:
    """Remove a row, if it is still there."""
    row = database.execute(_ROW, (number,)).fetchone()
    if row is not None:
        database.execute("DELETE FROM entries WHERE number = ?", (number,))
        tally.take(Kind(row[0]), int(row[1]), aside=bool(row[2]))


def drop(database: sqlite3.Connection, tally: Tally, number: int) -> None:
    """Lose a row, and with it what it would have told of others that were lost."""
    row = database.execute(_ROW, (number,)).fetchone()
    if row is not None:
        delete(database, tally, number)
        tally.drop(Kind(row[0]))
        tally.lost += int(row[3])


def mark(database: sqlite3.Connection, tally: Tally, number: int, why: str) -> bool:
    """Set a row aside, or back where `why` is empty; False when it has gone."""
    row = database.execute(_ROW, (number,)).fetchone()
    if row is None:
        return False
    kind, cost, aside = Kind(row[0]), int(row[1]), bool(row[2])
    database.execute("UPDATE entries SET aside = ? WHERE number = ?", (why, number))
    tally.take(kind, cost, aside=aside)
    tally.add(kind, cost, aside=bool(why))
    return True
