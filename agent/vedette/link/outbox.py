"""Events and reports that wait on the disk until the broker has them: bounded in bytes, in two classes.

An event is kept when `put_event` returned, under an id that never repeats; it leaves when the broker
acknowledged it. When there is no room, the oldest of the class NEWEST go; an event of the class ALWAYS that
still finds none is refused, and whoever brought it waits.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import msgspec

from vedette.errors import StorageError
from vedette.link import outbox_rows as rows
from vedette.link.entries import Entry, Kind, cost_bytes
from vedette.link.port import Keep
from vedette.link.tally import Tally
from vedette.wire.plane import JSON_TYPE

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable

    from vedette.link.entries import Moment
    from vedette.link.sqlite_file import SqliteFile

    T = TypeVar("T")
    # Makes an event's payload from its id and the number of events that were dropped before it.
    Compose = Callable[[str, int], bytes]


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
            number = rows.next_number(database)
            entry = Entry(number, "", Keep.NEWEST, Kind.REPORT, payload, content_type, self._now())
            rows.insert(database, tally, entry)

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
            return rows.find(database, keep, newest=newest, excluded=excluded)

        while (number := self._change(find)) is not None:
            entry = self.read(number)
            if entry is not None:
                return entry
        return None

    def read(self, number: int) -> Entry | None:
        """One entry; None when it has gone, or is damaged, which is counted.

        Raises:
            StorageError: The disk refuses.
        """
        return self._change(lambda database, tally: rows.read(database, tally, number))

    def remove(self, numbers: Iterable[int], *, expired: bool = False) -> None:
        """Let entries go: they were acknowledged, or are too old to be of use, which is counted.

        Raises:
            StorageError: The disk refuses; they will be delivered again.
        """
        wanted = tuple(numbers)

        def delete(database: sqlite3.Connection, tally: Tally) -> None:
            for number in wanted:
                if expired:
                    rows.drop(database, tally, number)
                else:
                    rows.delete(database, tally, number)

        self._change(delete)
        self._file.hold_room()

    def set_aside(self, number: int, why: str) -> Entry | None:
        """Keep an entry, but send it no more; the entry, or None when it has gone.

        Raises:
            StorageError: The disk refuses.
        """
        entry = self.read(number)
        marked = self._change(lambda database, tally: rows.mark(database, tally, number, why))
        return entry if marked else None

    def take_back(self, why: str, max_bytes: int | None = None) -> None:
        """Send again what was set aside for `why`, or those of it that cost no more than `max_bytes`.

        Raises:
            StorageError: The disk refuses.
        """
        self._change(lambda database, tally: rows.take_back(database, tally, why, max_bytes))

    def take_back_one(self, after: int) -> Entry | None:
        """Let one entry that ended the link or was refused wait again, the next one after that number.

        Raises:
            StorageError: The disk refuses.
        """
        number = self._change(lambda database, tally: rows.take_back_one(database, tally, after))
        return None if number is None else self.read(number)

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
                tally = self._tally.copy() if current else rows.recount(database, self._tally)
                outcome = work(database, tally)
                rows.store_lost(database, tally)
                return outcome, tally

            outcome, self._tally = self._file.run(counted, urgent=urgent)
            self._counted = self._file.opened
            return outcome

    def _insert_event(
        self, database: sqlite3.Connection, tally: Tally, compose: Compose, keep: Keep, event_id: str
    ) -> str:
        if event_id and rows.is_known(database, event_id):
            return event_id
        number = rows.next_number(database)
        event_id = event_id or rows.name_of(database, number)
        # Making room may drop events, which the payload then tells: 20 digits are kept for that.
        self._make_room(database, tally, cost_bytes(compose(event_id, 0)) + 20)
        told = tally.lost if keep is Keep.NEWEST else 0
        payload = compose(event_id, told)
        tally.lost -= told
        entry = Entry(number, event_id, keep, Kind.EVENT, payload, JSON_TYPE, self._now())
        rows.insert(database, tally, entry, lost=told)
        return event_id

    def _make_room(self, database: sqlite3.Connection, tally: Tally, need_bytes: int) -> None:
        if not rows.make_room(database, tally, self._max_bytes - need_bytes):
            raise _NoRoomError

    def _full(self) -> StorageError:
        return StorageError(
            f"the outbox is full: {self._tally.cost_bytes} bytes wait, {self._max_bytes} are the limit",
            kind="no_space",
            cure="connect the box to its broker, or give it a larger `mqtt.outbox`",
        )
