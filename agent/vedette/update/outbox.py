"""Results and notices that wait to be delivered: one small file each, in order, bounded in bytes.

Results are never dropped for notices: when space runs out the oldest notices go. With a link to a fleet, a
result that still does not fit is refused, and its update waits. Without one nobody ever acknowledges: the
oldest results make room, but the newest `KEPT_RESULTS` stay; log and status have told them. A piece of the
disk is held back so that a full disk can be reported.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from typing import TYPE_CHECKING

import msgspec

from vedette import fsops
from vedette.errors import StorageError, storage_fault
from vedette.fsops import DurableFile, Point
from vedette.update.causes import Cause
from vedette.update.record import Mark, Report

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_MAX_BYTES = 256 << 10
MAX_ENTRY_BYTES = 8192
RESERVE_BYTES = 16384
KEPT_RESULTS = 64
_RESERVE = ".reserve"
_NAME = re.compile(r"[0-9]{8}\.json")


class Notice(msgspec.Struct, frozen=True):
    """Something worth knowing that is no result."""

    cause: Cause
    detail: str
    mark: Mark


class OutboxEntry(msgspec.Struct, frozen=True):
    """One file; `number` is its place in the order, and one of `result` and `notice` is there.

    Numbers begin anew when nothing waits; `tag` tells a notice from all others that say the same.
    """

    number: int
    result: Report | None = None
    notice: Notice | None = None
    schema: int = 1
    tag: str = ""

    @property
    def event_id(self) -> str:
        """Its name for good: the same in each delivery, and of no other entry."""
        if self.result is not None:
            return f"update:{self.result.update_id}:{self.result.seq}"
        return f"notice:{self.tag or self.number}"


class Outbox:
    """The folder; one thread puts entries in, another may take them out, anybody may look.

    `linked`: somebody acknowledges.
    """

    def __init__(self, folder: Path, *, max_bytes: int = DEFAULT_MAX_BYTES, linked: bool = True) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._linked = linked
        self.dropped_notices = 0
        self._lock = threading.Lock()
        self.dropped_results = 0

    def open(self) -> None:
        """Make the folder, drop what a power cut left half-made, set the reserve aside.

        Raises:
            StorageError: The disk refuses.
        """
        try:
            fsops.make_folder(self._folder, Point.OUTBOX)
            for path in self._folder.iterdir():
                if path.name.endswith(".tmp"):
                    fsops.unlink(path, Point.OUTBOX)
        except OSError as error:
            raise storage_fault(error, f"{self._folder} cannot be made") from error
        self._set_aside()

    def put_report(self, report: Report) -> None:
        """Keep a result; again is the same as once.

        Raises:
            StorageError: No room for it, or the disk refuses.
        """
        with self._lock:
            entries = self.entries()
            key = (report.update_id, report.seq)
            if any(entry.result and (entry.result.update_id, entry.result.seq) == key for entry in entries):
                return self._sync()
            return self._put(OutboxEntry(_next(entries), result=report), entries)

    def put_notice(self, notice: Notice) -> None:
        """Keep a notice, unless the same one waits already.

        Raises:
            StorageError: No room for it, or the disk refuses.
        """
        with self._lock:
            entries = self.entries()
            if all(entry.notice != notice for entry in entries):
                tag = secrets.token_hex(8)
                self._put(OutboxEntry(_next(entries), notice=notice, tag=tag), entries)

    def entries(self) -> tuple[OutboxEntry, ...]:
        """What waits, oldest first; a file that is damaged is passed over."""
        try:
            names = sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise storage_fault(error, f"{self._folder} cannot be read") from error
        found = [_read(path) for path in names]
        return tuple(entry for entry in found if entry is not None)

    def acknowledge(self, entry: OutboxEntry) -> None:
        """Forget an entry that was delivered, unless another one has its place by now.

        Raises:
            StorageError: The disk refuses; it will be delivered again.
        """
        with self._lock:
            if _read(self._path(entry.number)) == entry:
                self._remove(entry.number)
            self._sync()

    def _put(self, entry: OutboxEntry, entries: tuple[OutboxEntry, ...]) -> None:
        content = msgspec.json.encode(entry)
        if len(content) > MAX_ENTRY_BYTES:
            raise StorageError(
                f"an event of {len(content)} bytes; {MAX_ENTRY_BYTES} is the limit", kind="no_space"
            )
        self._make_room(len(content), entries)
        path = self._path(entry.number)
        try:
            self._write(path, content)
        except OSError as error:
            raise storage_fault(error, f"{path} cannot be written") from error

    def _write(self, path: Path, content: bytes) -> None:
        reserve = self._folder / _RESERVE
        try:
            fsops.write_durable(path, content, Point.OUTBOX)
        except OSError as error:
            if storage_fault(error, "").kind != "no_space" or not reserve.exists():
                raise
            fsops.unlink(reserve, Point.OUTBOX)
            fsops.write_durable(path, content, Point.OUTBOX)

    def _make_room(self, need_bytes: int, entries: tuple[OutboxEntry, ...]) -> None:
        sizes = {entry.number: len(msgspec.json.encode(entry)) for entry in entries}
        over = sum(sizes.values()) + need_bytes - self._max_bytes
        for entry in self._may_go(entries):
            if over <= 0:
                return
            self._remove(entry.number)
            self.dropped_notices += entry.notice is not None
            self.dropped_results += entry.result is not None
            over -= sizes[entry.number]
        if over > 0:
            raise StorageError(
                f"the outbox is full: {len(entries)} results wait, {self._max_bytes} bytes are the limit",
                kind="no_space",
                cure="connect the box to its fleet; results are never dropped",
            )

    def _may_go(self, entries: tuple[OutboxEntry, ...]) -> list[OutboxEntry]:
        """What may make room, in this order."""
        notices = [entry for entry in entries if entry.notice is not None]
        results = [entry for entry in entries if entry.result is not None]
        return notices if self._linked else [*notices, *results[:-KEPT_RESULTS]]

    def _set_aside(self) -> None:
        reserve = self._folder / _RESERVE
        if reserve.exists():
            return
        with contextlib.suppress(OSError), DurableFile.create(reserve, Point.OUTBOX) as file:
            file.allocate(RESERVE_BYTES)

    def _remove(self, number: int) -> None:
        path = self._path(number)
        try:
            fsops.unlink(path, Point.OUTBOX)
        except OSError as error:
            raise storage_fault(error, f"{path} cannot be removed") from error

    def _sync(self) -> None:
        try:
            fsops.sync_folder(self._folder, Point.OUTBOX)
        except OSError as error:
            raise storage_fault(error, f"{self._folder} cannot be synced") from error

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.json"


def _next(entries: tuple[OutboxEntry, ...]) -> int:
    return 1 + max((entry.number for entry in entries), default=0)


def _read(path: Path) -> OutboxEntry | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=OutboxEntry)
    except (OSError, msgspec.DecodeError):
        return None
