"""The audits of one model file, on the disk: append-only, bounded, whole after a power cut.

A book is bound to the model's SHA-256: a model that comes back finds its own book. What is appended is
synced together, at most once a second; a power cut costs the last second's audits and nothing else.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.errors import storage_fault
from vedette.escalate.audit_record import (
    MAGIC,
    AuditSample,
    Drifted,
    Looked,
    Record,
    pack_record,
    parse_records,
)
from vedette.fsops import DurableFile, Point

if TYPE_CHECKING:
    from pathlib import Path

# Of 1,000 classes a sample takes 4 KB: 16 MB in memory, and twice that on the disk before it is written anew.
MAX_SAMPLES = 4000
MAX_BYTES = 32 << 20
MAX_BOOKS = 8
_NAME = re.compile(r"[0-9a-f]{64}\.book")


class AuditBook:
    """Samples since the world changed last, and the last calibration; one thread owns it.

    `path` None keeps nothing. `damage` says what was lost when it was opened, `fault` why the disk refuses;
    what could not be written counts in memory all the same.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: DurableFile | None = None
        self._end = 0
        self._unsynced = False
        self.samples: list[AuditSample] = []
        self.looked: Looked | None = None
        self.looks = 0
        self.damage = ""
        self.fault = ""

    def open(self) -> None:
        """Read what there is, and cut off what is damaged.

        Raises:
            StorageError: The disk refuses.
        """
        if self._path is None:
            return
        try:
            self._open(self._path)
        except OSError as error:
            raise storage_fault(error, f"the book of audits {self._path.name} cannot be opened") from error

    def append(self, record: Record) -> None:
        """Add a record; it is durable after the next `sync`."""
        self._remember(record)
        if self._file is None:
            return
        packed = pack_record(record)
        try:
            self._file.write_at(packed, self._end)
            self._end += len(packed)
            self._unsynced = True
            if self._end > MAX_BYTES:
                self._write_anew()
            self.fault = ""
        except OSError as error:
            self._refused(error)

    def sync(self) -> None:
        """Make what was appended durable; where that fails the file is written anew at once."""
        if self._file is None or not self._unsynced:
            return
        try:
            self._file.sync(data_only=True)
            self._unsynced = False
        except OSError:
            try:
                self._write_anew()
            except OSError as error:
                self._refused(error)

    def close(self) -> None:
        """Sync and close."""
        self.sync()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = b""
        parsed = parse_records(content)
        self.damage = parsed.damage
        for record in parsed.records:
            self._remember(record)
        if not parsed.whole_bytes:
            fsops.write_durable(path, MAGIC, Point.AUDITS)
        self._file = DurableFile.open(path, Point.AUDITS)
        self._end = parsed.whole_bytes or len(MAGIC)
        if parsed.whole_bytes and parsed.damage:
            self._file.truncate(self._end)
            self._file.sync()
        if parsed.whole_bytes > MAX_BYTES:
            self._write_anew()

    def _remember(self, record: Record) -> None:
        if isinstance(record, AuditSample):
            self.samples.append(record)
            if len(self.samples) >= MAX_SAMPLES + MAX_SAMPLES // 4:
                del self.samples[:-MAX_SAMPLES]
        elif isinstance(record, Looked):
            self.looked = record
            self.looks = max(self.looks, record.number)
        else:
            self.samples.clear()
            self.looked = None
            self.looks = max(self.looks, record.looks)

    def _write_anew(self) -> None:
        """A book of what is still of use takes the place of the old one."""
        if self._path is None:
            return
        kept: list[Record] = []
        if self.looks:  # each of them has spent a part of delta, and none may be forgotten
            kept.append(Drifted(0.0, "", self.looks))
        kept += self.samples[-MAX_SAMPLES // 2 :]
        if self.looked is not None:
            kept.append(self.looked)
        content = MAGIC + b"".join(pack_record(record) for record in kept)
        fsops.write_durable(self._path, content, Point.AUDITS)
        if self._file is not None:
            self._file.close()
        self._file = DurableFile.open(self._path, Point.AUDITS)
        self._end, self._unsynced = len(content), False

    def _refused(self, error: OSError) -> None:
        self.fault = f"an audit cannot be written down: {error.strerror}"


def book_path(folder: Path, model_sha256: str) -> Path:
    """Where a model's book lies; the oldest of too many books are removed.

    Raises:
        OSError: The disk refuses.
    """
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    mine = folder / f"{model_sha256}.book"
    others = sorted((path for path in found if path != mine), key=lambda path: path.stat().st_mtime)
    for path in others[: max(0, len(others) - MAX_BOOKS + 1)]:
        fsops.unlink(path, Point.AUDITS)
    return mine
