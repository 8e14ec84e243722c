"""Events and reports that wait on the disk until the broker has them: bounded in bytes, in two classes.

An event is kept when `put_event` returned, under an id that never repeats; it leaves when the broker
acknowledged it. When there is no room, the oldest of the class NEWEST go; an event of the class ALWAYS that
still finds none is refused, and whoever brought it waits.
"""

from __future__ import annotations

import threading
import zlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from vedette.errors import StorageError
from vedette.link.entries import Entry, Kind, Moment, cost_bytes
from vedette.link.port import Keep
from vedette.link.tally import Tally
from vedette.wire.plane import JSON_TYPE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable

    from vedette.link.sqlite_file import SqliteFile

    T = TypeVar("T")
    # Makes an event's payload from its id and the number of events that were dropped before it.
    Compose = Callable[[str, int], bytes]

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
# What may go to make room: first what was set aside, then the oldest.
_DISPENSABLE = (
    "SELECT number FROM entries WHERE aside != '' ORDER BY number",
    "SELECT number FROM entries WHERE keep = 'newest' AND aside = '' ORDER BY number",
)
_TOTALS = "SELECT kind, aside != '', COUNT(*), SUM(cost_bytes) FROM entries GROUP BY kind, aside != ''"
_ASIDE = "SELECT number FROM entries WHERE aside = ? AND (? IS NULL OR cost_bytes <= ?)"
_ROW = "SELECT kind, cost_bytes, aside != '', lost FROM entries WHERE number = ?"
_KNOWN = "SELECT 1 FROM entries WHERE event_id = ?"
_EPOCH = "SELECT fact FROM facts WHERE name = 'epoch'"
_LOST = "SELECT fact FROM facts WHERE name = 'lost_events'"
_STORE_LOST = "INSERT OR REPLACE INTO facts VALUES ('lost_events', ?)"


class OutboxCounts(msgspec.Struct, frozen=True):
    """What waits now, and what became of the rest since the start."""

    events: int
    reports: int
    waiting_bytes: int
    set_aside: int
    dropped_reports: int
    dropped_events: int
    damaged: int


class _NoRoomError(Exception):
    """Nothing dispensable is left."""


class Outbox:
    """The entries; any thread."""

    def __init__(self, file: SqliteFile, *, max_bytes: int, now: Callable[[], Moment]) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._now = now
        self._lock = threading.RLock()
        self._tally = Tally()
        self._counted = 0

    def open(self) -> None:
        """Open the file, and count what waits in it.

        Raises:
            StorageError: The disk refuses; later calls try again.
        """
        self._change(lambda _database, _tally: None)

    def put_event(self, compose: Compose, keep: Keep, event_id: str = "") -> str:
        """Keep an event; one whose id waits already is there, and is not kept twice.

        Returns:
            Its id; empty when an event of the class NEWEST had none yet and was dropped.

        Raises:
            StorageError: No room for one of the class ALWAYS, or the disk refuses it.
        """
        always = keep is Keep.ALWAYS
        with self._lock:
            try:
                return self._change(
                    lambda database, tally: self._insert_event(database, tally, compose, keep, event_id),
                    urgent=always,
                )
            except _NoRoomError:
                if always:
                    raise self._full() from None
            except StorageError:
                if always:
                    raise
            self._tally.drop(Kind.EVENT)
            return event_id

    def put_report(self, payload: bytes, content_type: str) -> None:
        """Keep a report of telemetry; it is dropped and counted where events have taken all the room.

        Raises:
            StorageError: The disk refuses; it was not kept.
        """

        def insert(database: sqlite3.Connection, tally: Tally) -> None:
            self._make_room(database, tally, cost_bytes(payload))
            (number,) = database.execute(_NEXT_NUMBER).fetchone()
            entry = Entry(number, "", Keep.NEWEST, Kind.REPORT, payload, content_type, self._now())
            _insert(database, tally, entry)

        with self._lock:
            try:
                self._change(insert)
            except _NoRoomError:
                self._tally.drop(Kind.REPORT)

    def next(self, keep: Keep, *, newest: bool, excluded: Collection[int]) -> Entry | None:
        """The oldest or the newest entry of a class, passing over those set aside and those `excluded`.

        Raises:
            StorageError: The disk refuses.
        """

        def find(database: sqlite3.Connection, _tally: Tally) -> int | None:
            rows = database.execute(_NUMBERS[newest], (keep.value, len(excluded) + 1))
            return next((number for (number,) in rows if number not in excluded), None)

        while (number := self._change(find)) is not None:
            entry = self.read(number)
            if entry is not None:
                return entry
        return None

    def read(self, number: int) -> Entry | None:
        """One entry; None when it has gone, was set aside, or is damaged, which is counted.

        Raises:
            StorageError: The disk refuses.
        """

        def find(database: sqlite3.Connection, tally: Tally) -> Entry | None:
            row = database.execute(_READ, (number,)).fetchone()
            if row is None:
                return None
            if zlib.crc32(row[4]) != row[10]:
                _delete(database, tally, number)
                tally.damaged += 1
                return None
            kept_at = Moment(row[6], row[7], row[8], bool(row[9]))
            return Entry(row[0], row[1], Keep(row[2]), Kind(row[3]), row[4], row[5], kept_at)

        return self._change(find)

    def remove(self, numbers: Iterable[int], *, expired: bool = False) -> None:
        """Let entries go: they were acknowledged, or are too old to be of use, which is counted.

        Raises:
            StorageError: The disk refuses; they will be delivered again.
        """
        wanted = tuple(numbers)

        def delete(database: sqlite3.Connection, tally: Tally) -> None:
            for number in wanted:
                if expired:
                    _drop(database, tally, number)
                else:
                    _delete(database, tally, number)

        self._change(delete)
        self._file.hold_room()

    def set_aside(self, number: int, why: str) -> Entry | None:
        """Keep an entry, but send it no more; the entry, or None when it has gone.

        Raises:
            StorageError: The disk refuses.
        """
        entry = self.read(number)
        marked = self._change(lambda database, tally: _mark(database, tally, number, why))
        return entry if marked else None

    def take_back(self, why: str, max_bytes: int | None = None) -> None:
        """Send again what was set aside for `why`, or those of it that cost no more than `max_bytes`.

        Raises:
            StorageError: The disk refuses.
        """

        def unmark(database: sqlite3.Connection, tally: Tally) -> None:
            found = database.execute(_ASIDE, (why, max_bytes, max_bytes)) if tally.set_aside else ()
            for (number,) in list(found):
                _mark(database, tally, number, "")

        self._change(unmark)

    def counts(self) -> OutboxCounts:
        """How it stands."""
        tally = self._tally
        return OutboxCounts(
            events=tally.count[Kind.EVENT, False],
            reports=tally.count[Kind.REPORT, False],
            waiting_bytes=tally.cost_bytes,
            set_aside=tally.set_aside,
            dropped_reports=tally.dropped[Kind.REPORT],
            dropped_events=tally.dropped[Kind.EVENT],
            damaged=tally.damaged,
        )

    def _change(self, work: Callable[[sqlite3.Connection, Tally], T], *, urgent: bool = False) -> T:
        """One transaction, and the tally with it."""
        with self._lock:

            def counted(database: sqlite3.Connection) -> tuple[T, Tally]:
                current = self._counted == self._file.opened
                tally = self._tally.copy() if current else _recount(database, self._tally)
                outcome = work(database, tally)
                if tally.lost != tally.stored_lost:
                    database.execute(_STORE_LOST, (str(tally.lost),))
                    tally.stored_lost = tally.lost
                return outcome, tally

            outcome, self._tally = self._file.run(counted, urgent=urgent)
            self._counted = self._file.opened
            return outcome

    def _insert_event(
        self, database: sqlite3.Connection, tally: Tally, compose: Compose, keep: Keep, event_id: str
    ) -> str:
        if event_id and database.execute(_KNOWN, (event_id,)).fetchone() is not None:
            return event_id
        (number,) = database.execute(_NEXT_NUMBER).fetchone()
        (epoch,) = database.execute(_EPOCH).fetchone()
        event_id = event_id or f"{epoch}-{number}"
        # Making room may drop events, which the payload then tells: 20 digits are kept for that.
        self._make_room(database, tally, cost_bytes(compose(event_id, 0)) + 20)
        told = tally.lost if keep is Keep.NEWEST else 0
        payload = compose(event_id, told)
        tally.lost -= told
        entry = Entry(number, event_id, keep, Kind.EVENT, payload, JSON_TYPE, self._now())
        _insert(database, tally, entry, lost=told)
        return event_id

    def _make_room(self, database: sqlite3.Connection, tally: Tally, need_bytes: int) -> None:
        if tally.cost_bytes + need_bytes <= self._max_bytes:
            return
        # Rows that were set aside have no index, so they are looked for only when there are any.
        for query in _DISPENSABLE[0 if tally.set_aside else 1 :]:
            for (number,) in database.execute(query):
                _drop(database, tally, number)
                if tally.cost_bytes + need_bytes <= self._max_bytes:
                    return
        raise _NoRoomError

    def _full(self) -> StorageError:
        return StorageError(
            f"the outbox is full: {self._tally.cost_bytes} bytes wait, {self._max_bytes} are the limit",
            kind="no_space",
            cure="connect the box to its broker, or give it a larger `mqtt.outbox`",
        )


def _recount(database: sqlite3.Connection, before: Tally) -> Tally:
    tally = before.recounted()
    for kind, aside, count, cost in database.execute(_TOTALS):
        tally.add(Kind(kind), cost, aside=bool(aside), times=count)
    row = database.execute(_LOST).fetchone()
    tally.stored_lost = int(row[0]) if row is not None else 0
    tally.lost = tally.stored_lost
    return tally


def _insert(database: sqlite3.Connection, tally: Tally, entry: Entry, *, lost: int = 0) -> None:
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


def _delete(database: sqlite3.Connection, tally: Tally, number: int) -> None:
    """Remove a row, if it is still there."""
    row = database.execute(_ROW, (number,)).fetchone()
    if row is not None:
        database.execute("DELETE FROM entries WHERE number = ?", (number,))
        tally.take(Kind(row[0]), int(row[1]), aside=bool(row[2]))


def _drop(database: sqlite3.Connection, tally: Tally, number: int) -> None:
    """Lose a row, and with it what it would have told of others that were lost."""
    row = database.execute(_ROW, (number,)).fetchone()
    if row is not None:
        _delete(database, tally, number)
        tally.drop(Kind(row[0]))
        tally.lost += int(row[3])


def _mark(database: sqlite3.Connection, tally: Tally, number: int, why: str) -> bool:
    """Set a row aside, or back where `why` is empty; False when it has gone."""
    row = database.execute(_ROW, (number,)).fetchone()
    if row is None:
        return False
    kind, cost, aside = Kind(row[0]), int(row[1]), bool(row[2])
    database.execute("UPDATE entries SET aside = ? WHERE number = ?", (why, number))
    tally.take(kind, cost, aside=aside)
    tally.add(kind, cost, aside=bool(why))
    return True
