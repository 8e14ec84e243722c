"""A record that survives a power cut at any instant: two copies, overwritten in turn.

`<name>.rec.0` and `<name>.rec.1` are made once, at their full size. A write overwrites the older copy in
place and syncs it; so the newer copy is never touched, no name changes, and a full disk does not matter. A
reader takes the valid copy with the highest sequence number. A copy is, big-endian::

    magic "VREC" | format u16 | schema u16 | seq u64 | length u32 | SHA-256 of all but itself | JSON payload
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from vedette import fsops
from vedette.errors import InternalError, RecordSchemaError, StateLostError, storage_fault
from vedette.fsops import DurableFile, FileLostError, Point

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T", bound=msgspec.Struct)

DEFAULT_CAPACITY_BYTES = 65536
MAX_CAPACITY_BYTES = 1 << 24
_MAGIC = b"VREC"
_FORMAT = 1
_HEAD = struct.Struct(">4sHHQI")
_DIGEST_BYTES = 32
OVERHEAD_BYTES = _HEAD.size + _DIGEST_BYTES


class Copy(NamedTuple):
    """A copy whose checksum is right."""

    seq: int
    schema: int
    payload: bytes


def encode_copy(copy: Copy) -> bytes:
    """The bytes of a copy, without padding."""
    head = _HEAD.pack(_MAGIC, _FORMAT, copy.schema, copy.seq, len(copy.payload))
    return head + hashlib.sha256(head + copy.payload).digest() + copy.payload


def decode_copy(raw: bytes) -> Copy | str:
    """The copy in the bytes of a file, or what is wrong with it; whatever follows the payload is ignored."""
    if len(raw) < OVERHEAD_BYTES:
        return f"only {len(raw)} bytes long"
    magic, layout, schema, seq, length = _HEAD.unpack_from(raw)
    if magic != _MAGIC or layout != _FORMAT:
        return "all zeros" if not any(raw) else "not a record"
    if OVERHEAD_BYTES + length > len(raw):
        return "cut short"
    payload = raw[OVERHEAD_BYTES : OVERHEAD_BYTES + length]
    if hashlib.sha256(raw[: _HEAD.size] + payload).digest() != raw[_HEAD.size : OVERHEAD_BYTES]:
        return "its checksum is wrong"
    return Copy(seq, schema, payload)


class Journal(Generic[T]):
    """Reads and writes one record; one process and one thread at a time.

    `schema` is the number of the payload's layout: raise it when an older agent would misread a new payload.
    A new field with a default needs no new number.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        kind: type[T],
        *,
        schema: int = 1,
        point: Point = Point.RECORD,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
    ) -> None:
        if not OVERHEAD_BYTES < capacity_bytes <= MAX_CAPACITY_BYTES:
            raise InternalError(f"record {name}: a capacity of {capacity_bytes} bytes")
        self.folder = folder
        self.name = name
        self._paths = (folder / f"{name}.rec.0", folder / f"{name}.rec.1")
        self._kind = kind
        self._schema = schema
        self._point = point
        self._capacity_bytes = capacity_bytes
        self._seq = 0
        self._newest: int | None = None  # the copy that is known to be whole, and is not to be touched
        self._known = False  # whether `read` found out what there is
        self.damage: tuple[str, ...] = ()  # what was wrong with copies when they were last read

    def read(self) -> T | None:
        """The newest record, made durable before it is acted on; None when none was ever written.

        Raises:
            StateLostError: Copies are there, and none is valid.
            RecordSchemaError: The newest is of a newer agent, or holds a word that this one does not know.
            StorageError: The disk does not let us read.
        """
        self._known = False
        copies = self._read_copies()
        if copies is None:
            self._known = True
            return None
        found = [(copy.seq, slot, copy) for slot, copy in enumerate(copies) if isinstance(copy, Copy)]
        if not found:
            raise StateLostError(
                f"record {self.name} in {self.folder}: {'; '.join(self.damage)}",
                cure="the agent recovers by itself from what else it knows; check the disk",
            )
        seq, newest, copy = max(found)
        payload = self._decode(copy)
        self._settle(newest, encode_copy(copy))
        self._seq, self._newest, self._known = seq, newest, True
        return payload

    def references(self) -> tuple[T, ...]:
        """The payload of every valid copy, newest first: what either names must not be collected (F8).

        Raises:
            RecordSchemaError: A copy is of a newer agent, so that nobody knows what it names.
            StorageError: The disk does not let us read.
        """
        copies = self._read_copies() or ()
        valid = sorted((copy for copy in copies if isinstance(copy, Copy)), reverse=True)
        return tuple(self._decode(copy) for copy in valid)

    def write(self, payload: T, *, point: Point | None = None) -> None:
        """Put the next record in the place of the older copy; it is durable when this returns.

        Raises:
            StorageError: It may or may not be on the disk; the record before it is whole.
            InternalError: It is larger than the capacity, or `read` did not succeed before.
        """
        if not self._known:
            raise InternalError(f"record {self.name} is written before it was read or reset")
        content = self._encode(payload, self._seq + 1)
        self._seq += 1  # also when the write fails: a torn copy must never share a number with a later one
        try:
            if self._newest is None:
                self._create(content, point or self._point)
            else:
                self._overwrite(self._paths[1 - self._newest], content, point or self._point)
        except OSError as error:
            raise storage_fault(error, f"record {self.name} cannot be written to {self.folder}") from error
        self._newest = 0 if self._newest is None else 1 - self._newest

    def reset(self, payload: T, *, keep_bad: bool = True) -> None:
        """Begin anew after the record was lost or not understood; what was there is kept aside as `*.bad`.

        Raises:
            StorageError: The disk refuses; `read` will still say that the record is lost.
        """
        copies = self._read_copies() or ()
        self._seq = max((copy.seq for copy in copies if isinstance(copy, Copy)), default=0) + 1
        content = self._encode(payload, self._seq)
        try:
            for path in self._paths if keep_bad else ():
                self._keep_aside(path)
            self._create(content, self._point)
        except OSError as error:
            raise storage_fault(error, f"record {self.name} cannot be written to {self.folder}") from error
        self._newest, self._known = 0, True

    def remove(self, point: Point | None = None) -> None:
        """Delete both copies, for a record that is not needed any more.

        Raises:
            OSError: The disk refuses.
        """
        for path in self._paths:
            for name in (path, fsops.temporary_path(path), path.with_name(f"{path.name}.bad")):
                fsops.unlink(name, point or self._point)
        self._seq, self._newest, self._known = 0, None, False

    def _encode(self, payload: T, seq: int) -> bytes:
        content = encode_copy(Copy(seq, self._schema, msgspec.json.encode(payload)))
        if len(content) > self._capacity_bytes:
            raise InternalError(
                f"record {self.name} needs {len(content)} bytes; {self._capacity_bytes} were set aside"
            )
        return content

    def _decode(self, copy: Copy) -> T:
        cure = "install the agent that wrote it, or let this one begin anew"
        if copy.schema > self._schema:
            raise RecordSchemaError(
                f"record {self.name} has schema {copy.schema}; this agent reads up to {self._schema}",
                payload=copy.payload,
                cure=cure,
            )
        try:
            return msgspec.json.decode(copy.payload, type=self._kind)
        except msgspec.DecodeError as error:
            raise RecordSchemaError(
                f"record {self.name} is whole but not understood: {error}", payload=copy.payload, cure=cure
            ) from error

    def _read_copies(self) -> tuple[Copy | str, ...] | None:
        """Both copies, or what is wrong with them; None when neither exists."""
        found = [_read_copy(path) for path in self._paths]
        self.damage = tuple(
            f"{path.name}: {copy or 'missing'}"
            for path, copy in zip(self._paths, found, strict=True)
            if not isinstance(copy, Copy)
        )
        return tuple(copy or "missing" for copy in found) if any(found) else None

    def _settle(self, slot: int, content: bytes) -> None:
        """Sync what was read: a process killed before its sync left it readable but not durable.

        A disk that refuses does not keep us from reading; it will refuse the next write with an error.
        """
        path = self._paths[slot]
        try:
            with DurableFile.open(path, self._point) as file:
                file.sync(data_only=True)
            fsops.sync_folder(self.folder, self._point)
        except FileLostError:
            with contextlib.suppress(OSError):
                self._replace(path, content, self._point)
        except OSError as error:
            self.damage = (*self.damage, f"{path.name}: cannot be synced ({error.strerror})")

    def _create(self, content: bytes, point: Point) -> None:
        for path in self._paths:
            self._replace(path, content, point)

    def _overwrite(self, path: Path, content: bytes, point: Point) -> None:
        try:
            with DurableFile.open(path, point) as file:
                if os.fstat(file.descriptor).st_size >= self._capacity_bytes:
                    file.write_at(content, 0)
                    file.sync(data_only=True)
                    return
        except FileLostError:
            pass  # its pages cannot be trusted any more: a new file takes its place
        except FileNotFoundError:
            pass
        self._replace(path, content, point)

    def _replace(self, path: Path, content: bytes, point: Point) -> None:
        fsops.write_durable(path, content, point, size_bytes=self._capacity_bytes)

    def _keep_aside(self, path: Path) -> None:
        try:
            raw = _read(path)
        except OSError:
            return
        fsops.write_durable(path.with_name(f"{path.name}.bad"), raw, self._point)


def _read_copy(path: Path) -> Copy | str | None:
    """A copy, or what is wrong with it, or None where there is no file."""
    try:
        return decode_copy(_read(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EIO:
            raise storage_fault(error, f"{path} cannot be read") from error
        return "unreadable (input/output error)"


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_CAPACITY_BYTES)
