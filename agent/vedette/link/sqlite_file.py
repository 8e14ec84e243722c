"""The SQLite file below the outbox: durable in one sync, replaced when damaged, with room held back.

WAL with `synchronous=FULL` syncs once a transaction; `locking_mode=EXCLUSIVE` needs no shared memory file and
keeps a second agent out. SQLite does not sync the folder of a new database, so that is done here.
"""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import threading
import zlib
from typing import TYPE_CHECKING, TypeVar

import msgspec

from vedette import fsops
from vedette.errors import StorageError, storage_fault
from vedette.fsops import DurableFile, Point
from vedette.link.sqlite_rescue import FileIdentity, copy_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    T = TypeVar("T")

DATABASE_NAME = "outbox.sqlite3"
ASIDE_NAME = "outbox.damaged.sqlite3"
RESERVE_NAME = ".reserve"
RESERVE_BYTES = 256 << 10  # an event takes about 30 KB of log and file where these must grow
SCHEMA = 1  # stands in _CREATE too
_PAGE_BYTES = 4096
_LOCKED_FOR_S = 0.5
_SIDE_FILES = ("", "-wal", "-journal")

_CREATE = """
BEGIN IMMEDIATE;
CREATE TABLE entries (
  number INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT NOT NULL, keep TEXT NOT NULL, kind TEXT NOT NULL,
  aside TEXT NOT NULL, content_type TEXT NOT NULL, boot_id TEXT NOT NULL, monotonic_s REAL NOT NULL,
  utc_s REAL NOT NULL, utc_trusted INTEGER NOT NULL, cost_bytes INTEGER NOT NULL, crc32 INTEGER NOT NULL,
  lost INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE INDEX by_order ON entries (keep, aside, number);
CREATE UNIQUE INDEX by_event ON entries (event_id) WHERE event_id != '';
CREATE TABLE replies (
  name TEXT NOT NULL, id TEXT NOT NULL, number INTEGER NOT NULL, boot_id TEXT NOT NULL,
  monotonic_s REAL NOT NULL, utc_s REAL NOT NULL, utc_trusted INTEGER NOT NULL, reply BLOB,
  PRIMARY KEY (name, id));
CREATE TABLE facts (name TEXT PRIMARY KEY, fact TEXT NOT NULL);
-- Ids begin with a word that no other database has, so that they never repeat.
INSERT INTO facts VALUES ('epoch', lower(hex(randomblob(6))));
PRAGMA user_version=1;
COMMIT;
"""
# Of a damaged file we take what can be read, from both ends, since a bad page stops a scan.
_SALVAGE = ("SELECT * FROM entries ORDER BY number", "SELECT * FROM entries ORDER BY number DESC")
_TAKE_BACK = "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SALVAGE_REPLIES = "SELECT * FROM replies"
_TAKE_BACK_REPLY = "INSERT OR IGNORE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


class Replaced(msgspec.Struct, frozen=True):
    """A database that could not be used any more; it lies beside the new one under `moved_to`, if at all."""

    reason: str
    saved_entries: int
    moved_to: str


class SqliteFile:
    """The database; any thread, one at a time. It is opened when needed, and again after a fault."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = folder
        # A backstop only: what fits is counted by rows, and large rows fill their last page in part.
        self._max_pages = (2 * max_bytes + (1 << 20)) // _PAGE_BYTES
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._identity: FileIdentity | None = None
        self._replaced: list[Replaced] = []
        self.opened = 0

    def run(self, work: Callable[[sqlite3.Connection], T], *, urgent: bool = False) -> T:
        """Do `work` in one durable transaction; it may be done again, so it changes nothing else.

        `urgent` work takes the room that is held back when the disk is full.

        Raises:
            StorageError: The disk refuses; nothing was changed.
        """
        with self._lock:
            try:
                try:
                    return self._attempt(work)
                except (sqlite3.Error, OSError) as error:
                    if not self._repaired(error, urgent=urgent):
                        raise
                    return self._attempt(work)
            except (sqlite3.Error, OSError) as error:
                if not _is_full(error):
                    self.close()  # the handle may be of no use any more
                raise self._fault(error) from error

    def take_replaced(self) -> Replaced | None:
        """The oldest damage that nobody was told of."""
        if not self._replaced:  # looked at in each turn, so without waiting for the disk
            return None
        with self._lock:
            return self._replaced.pop(0)

    def hold_room(self) -> None:
        """Set room aside for urgent work again, where there is some."""
        reserve = self._folder / RESERVE_NAME
        if reserve.exists():
            return
        try:
            with DurableFile.create(reserve, Point.OUTBOX) as file:
                file.allocate(RESERVE_BYTES)
        except OSError:
            with contextlib.suppress(OSError):
                fsops.unlink(reserve, Point.OUTBOX)

    def close(self) -> None:
        """Give the file back; it is opened again by the next `run`."""
        with self._lock:
            database, self._database = self._database, None
            if database is not None:
                with contextlib.suppress(sqlite3.Error):
                    database.close()

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        reason = "" if self._database is None or self._identity is None else self._identity.lost()
        if reason:
            self._rescue(reason)
        database = self._open()
        database.execute("BEGIN IMMEDIATE")
        try:
            outcome = work(database)
            database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                if database.in_transaction:
                    database.execute("ROLLBACK")
            raise
        return outcome

    def _repaired(self, error: Exception, *, urgent: bool) -> bool:
        """Whether something was done about it, so that a second attempt makes sense."""
        if _is_damage(error):
            self._replace(str(error))
            return True
        reserve = self._folder / RESERVE_NAME
        if urgent and _is_full(error) and reserve.exists():
            fsops.unlink(reserve, Point.OUTBOX)
            return True
        return False

    def _rescue(self, reason: str) -> None:
        """Make the file anew from what the open one, which has no name any more, still holds.

        Without room for that the open one stays in use, and the caller is refused.
        """
        old, path = self._database, self._folder / DATABASE_NAME
        if old is None:
            return
        try:
            (saved,) = old.execute("SELECT COUNT(*) FROM entries").fetchone()
            rescued = copy_out(old, self._folder)
        except (sqlite3.Error, OSError) as error:
            if _is_full(error) or isinstance(error, OSError):
                raise
            saved, rescued, reason = 0, None, f"{reason}; what it held cannot be read: {error}"
        self.close()  # before its name is given again, since closing removes its log by name
        self._move_aside()
        if rescued is not None:
            fsops.rename(rescued, path, Point.OUTBOX)
            fsops.sync_folder(self._folder, Point.OUTBOX)
        self._replaced.append(Replaced(reason, int(saved), ""))

    def _open(self) -> sqlite3.Connection:
        if self._database is not None:
            return self._database
        fsops.make_folder(self._folder, Point.OUTBOX)
        try:
            self._database = self._connect(self._folder / DATABASE_NAME)
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise
            self._replace(str(error))
        self.hold_room()
        self.opened += 1
        if self._database is None:
            raise sqlite3.OperationalError("the database was not opened")
        self._identity = FileIdentity(self._folder / DATABASE_NAME)
        return self._database

    def _connect(self, path: Path) -> sqlite3.Connection:
        database = sqlite3.connect(
            path, timeout=_LOCKED_FOR_S, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        try:
            self._configure(database)
            self._prepare(database)
        except BaseException:
            database.close()
            raise
        return database

    def _configure(self, database: sqlite3.Connection) -> None:
        for pragma in (
            "locking_mode=EXCLUSIVE",
            "journal_mode=WAL",
            "synchronous=FULL",
            "wal_autocheckpoint=128",
            "journal_size_limit=1048576",
            "cache_size=-512",
            "temp_store=MEMORY",
            f"max_page_count={self._max_pages}",
        ):
            database.execute(f"PRAGMA {pragma}")

    def _prepare(self, database: sqlite3.Connection) -> None:
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"malformed: {found}")
        (schema,) = database.execute("PRAGMA user_version").fetchone()
        if schema not in {0, SCHEMA}:
            raise sqlite3.DatabaseError(f"malformed: its schema is {schema}, this agent knows {SCHEMA}")
        if schema == 0:
            database.executescript(_CREATE)
            fsops.sync_folder(self._folder, Point.OUTBOX)

    def _replace(self, reason: str) -> None:
        """Move the damaged file aside, begin a new one, and take over what can still be read."""
        self.close()
        self._move_aside()
        database = self._connect(self._folder / DATABASE_NAME)
        saved = _salvage(self._folder / ASIDE_NAME, database)
        self._database = database
        self._identity = FileIdentity(self._folder / DATABASE_NAME)
        self.opened += 1
        self._replaced.append(Replaced(reason, saved, ASIDE_NAME))

    def _move_aside(self) -> None:
        for suffix in _SIDE_FILES:
            source, target = self._folder / f"{DATABASE_NAME}{suffix}", self._folder / f"{ASIDE_NAME}{suffix}"
            fsops.unlink(target, Point.OUTBOX)
            if source.exists():
                fsops.rename(source, target, Point.OUTBOX)
        fsops.sync_folder(self._folder, Point.OUTBOX)

    def _fault(self, error: Exception) -> StorageError:
        what = f"{self._folder / DATABASE_NAME} cannot be used"
        if isinstance(error, OSError):
            return storage_fault(error, what)
        if _is_full(error):
            return storage_fault(OSError(errno.ENOSPC, "no space left"), what)
        return StorageError(
            f"{what}: {error}", kind="io_error", cure="check the disk, its mount and its owner"
        )


def _salvage(path: Path, database: sqlite3.Connection) -> int:
    """Copy whole rows; the reader is a connection of its own, so that its faults stay there."""
    database.execute("BEGIN IMMEDIATE")
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as damaged:
        for query in _SALVAGE:
            with contextlib.suppress(sqlite3.Error):
                for row in damaged.execute(query):
                    if isinstance(row[13], bytes) and zlib.crc32(row[13]) == row[11]:
                        _take_back(database, _TAKE_BACK, row)
        with contextlib.suppress(sqlite3.Error):
            for row in damaged.execute(_SALVAGE_REPLIES):
                _take_back(database, _TAKE_BACK_REPLY, row)
    (saved,) = database.execute("SELECT COUNT(*) FROM entries").fetchone()
    database.execute("COMMIT")
    return int(saved)


def _take_back(database: sqlite3.Connection, statement: str, row: tuple[object, ...]) -> None:
    """Keep one row; a column of the wrong type, or one that is absent, is what damage looks like."""
    with contextlib.suppress(sqlite3.IntegrityError, sqlite3.InterfaceError):
        database.execute(statement, row)


def _is_damage(error: Exception) -> bool:
    """Whether the content is at fault; by its words, as Python 3.10 does not give the code."""
    text = str(error)
    return isinstance(error, sqlite3.DatabaseError) and ("malformed" in text or "not a database" in text)


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return isinstance(error, sqlite3.OperationalError) and "is full" in str(error)
