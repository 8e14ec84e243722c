"""A blob that arrives in pieces, over restarts and power cuts, and its map of what is on the disk.

Blocks are written where they belong; every `SYNC_BYTES` the data is synced, and only then the map says that
they are there (F1). The map is a two-copy record. It keeps a CRC-32 of each block, so that the disk can be
told from the sender when the whole does not have the signed hash: damaged blocks are fetched again, alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.errors import (
    BadInputError,
    InternalError,
    RecordSchemaError,
    StateLostError,
    StorageError,
    UnavailableError,
    storage_fault,
)
from vedette.fsops import DurableFile, FileLostError, Point
from vedette.journal import OVERHEAD_BYTES, Journal
from vedette.update.block_map import BlockMap, BlockRecord

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

BLOCK_BYTES = 65536
SYNC_BYTES = 8 << 20  # OSTree measured 401 s with a sync per block, 10.6 s with one per phase
RECHECK_BYTES = 1 << 20
_READ_BYTES = 1 << 20


class PartFile:
    """One blob on its way, bounded by its signed size; one thread at a time."""

    def __init__(
        self,
        folder: Path,
        sha256: str,
        size_bytes: int,
        *,
        block_bytes: int = BLOCK_BYTES,
        sync_bytes: int = SYNC_BYTES,
    ) -> None:
        self.path = folder / f"{sha256}.part"
        self.sha256 = sha256
        self.size_bytes = size_bytes
        self.block_bytes = block_bytes
        self._sync_bytes = sync_bytes
        self._map = BlockMap(sha256, size_bytes, block_bytes)
        self._unsynced: dict[int, int] = {}  # block -> CRC-32
        self._buffer = bytearray()
        self._buffer_block = -1
        self._file: DurableFile | None = None
        self._journal = Journal(
            folder,
            f"{sha256}.map",
            BlockRecord,
            point=Point.MAP,
            capacity_bytes=OVERHEAD_BYTES + self._map.record_bytes,
        )

    def __enter__(self) -> PartFile:  # noqa: PYI034 - Self needs Python 3.11
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Take up what is there from before, or begin.

        Raises:
            StorageError: The disk refuses, or has no room for the whole blob.
        """
        try:
            if self._read_map() and self.path.is_file() and self.path.stat().st_size == self.size_bytes:
                self._file = DurableFile.open(self.path, Point.BLOCK)
                self._recheck_tail()
            else:
                self._begin()
        except OSError as error:
            self.close()
            raise storage_fault(error, f"{self.path} cannot be made or opened") from error

    def write(self, offset: int, piece: bytes) -> None:
        """Take bytes that arrived; what is already there is not written again.

        A run of pieces begins at the start of a block; a block cut short is forgotten when another begins.

        Raises:
            BadInputError: More bytes than the signed size.
            StorageError: The disk refuses. After a failed sync everything of this blob is forgotten.
        """
        if offset < 0 or offset + len(piece) > self.size_bytes:
            end = offset + len(piece)
            raise BadInputError(
                f"blob {self.sha256[:16]}…: bytes up to {end} came, {self.size_bytes} are signed",
                cure="the server sends something else; it is not used",
            )
        left = memoryview(piece)
        while left.nbytes:
            taken = self._take(offset, left)
            left = left[taken:]
            offset += taken

    def flush(self) -> None:
        """Make the whole blocks that arrived durable, then the map.

        Raises:
            StorageError: The disk refuses. After a failed sync everything of this blob is forgotten.
        """
        if not self._unsynced:
            return
        try:
            self._opened().sync(data_only=True)
        except FileLostError as error:
            self._forget()
            raise storage_fault(error, f"{self.path} is lost and must be fetched again") from error
        for block, crc32 in self._unsynced.items():
            self._map.add(block, crc32)
        self._unsynced.clear()
        self._journal.write(self._map.record())

    def missing(self) -> list[tuple[int, int]]:
        """The ranges [start, end) of bytes that have yet to come, in order."""
        return self._map.missing(self._unsynced)

    def held_bytes(self) -> int:
        """Bytes that are on the disk by the word of the map; nothing is opened, made or hashed."""
        seen = BlockMap(self.sha256, self.size_bytes, self.block_bytes)
        with contextlib.suppress(BadInputError, StorageError):
            found = self._journal.read()
            if found is not None and seen.restore(found):
                return self.size_bytes - sum(end - start for start, end in seen.missing({}))
        return 0

    @property
    def received_bytes(self) -> int:
        """Bytes of whole blocks that arrived."""
        return self.size_bytes - sum(end - start for start, end in self.missing())

    def verify(self) -> Path:
        """Read the whole blob back from the disk and hold it against its signed hash.

        Raises:
            UnavailableError: The disk damaged blocks; they are `missing` again.
            BadInputError: The sender sent something else; `remove` it.
            StorageError: The disk refuses.
        """
        self.flush()
        if self.missing():
            raise InternalError(f"blob {self.sha256[:16]}… is verified before it is complete")
        try:
            fsops.drop_cached(self._opened().descriptor)
            if self._digest() == self.sha256:
                return self.path
            damaged = self._drop_damaged(range(self._map.blocks))
        except OSError as error:
            raise storage_fault(error, f"{self.path} cannot be read back") from error
        if damaged:
            raise UnavailableError(
                f"blob {self.sha256[:16]}…: the disk damaged {damaged} blocks", cure="they are fetched again"
            )
        raise BadInputError(
            f"blob {self.sha256[:16]}…: what was sent has another SHA-256", cure="it is deleted"
        )

    def close(self) -> None:
        """Let go of the file; blocks that were not flushed will be missing again."""
        self._unsynced.clear()
        self._buffer.clear()
        self._buffer_block = -1
        if self._file is not None:
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Delete the blob and its map.

        Raises:
            StorageError: The disk refuses.
        """
        self.close()
        try:
            fsops.unlink(self.path, Point.STAGE)
            self._journal.remove(Point.STAGE)
        except OSError as error:
            raise storage_fault(error, f"{self.path} cannot be removed") from error

    def _read_map(self) -> bool:
        """Whether a map of this very blob was found."""
        with contextlib.suppress(StateLostError, RecordSchemaError):
            found = self._journal.read()
            return found is not None and self._map.restore(found)
        return False

    def _begin(self) -> None:
        """The map says "nothing" before the file is made: it must never speak of another file's blocks."""
        self._map.clear()
        self._journal.reset(self._map.record(), keep_bad=False)
        self._file = DurableFile.create(self.path, Point.BLOCK)
        self._file.allocate(self.size_bytes)
        self._file.sync()
        fsops.sync_folder(self.path.parent, Point.BLOCK)

    def _recheck_tail(self) -> None:
        """Hash the last incomplete MiB again: it is where a disk that lies about syncs loses data."""
        self._drop_damaged(self._map.tail(RECHECK_BYTES))

    def _drop_damaged(self, blocks: Iterable[int]) -> int:
        """Mark blocks as missing whose content is not what was written; the number of them."""
        damaged = [block for block in blocks if self._map.has(block) and not self._is_whole(block)]
        for block in damaged:
            self._map.drop(block)
        if damaged:
            self._journal.write(self._map.record())
        return len(damaged)

    def _is_whole(self, block: int) -> bool:
        start, end = self._map.span(block)
        return self._map.matches(block, os.pread(self._opened().descriptor, end - start, start))

    def _digest(self) -> str:
        digest = hashlib.sha256()
        offset = 0
        while block := os.pread(self._opened().descriptor, _READ_BYTES, offset):
            digest.update(block)
            offset += len(block)
        return digest.hexdigest()

    def _take(self, offset: int, left: memoryview) -> int:
        """Bytes used of what is left: at most up to the end of a block."""
        block = offset // self.block_bytes
        start, end = self._map.span(block)
        piece = left[: end - offset]
        if self._map.has(block) or block in self._unsynced:
            return piece.nbytes
        if offset == start:
            self._buffer = bytearray()
            self._buffer_block = block
        elif self._buffer_block != block or start + len(self._buffer) != offset:
            raise InternalError(f"blob {self.sha256[:16]}…: byte {offset} continues no block")
        self._buffer += piece
        if start + len(self._buffer) == end:
            self._store_block(block, start)
        return piece.nbytes

    def _store_block(self, block: int, start: int) -> None:
        content, self._buffer, self._buffer_block = bytes(self._buffer), bytearray(), -1
        try:
            self._opened().write_at(content, start)
        except OSError as error:
            raise storage_fault(error, f"{self.path} cannot be written") from error
        self._unsynced[block] = zlib.crc32(content)
        if len(self._unsynced) * self.block_bytes >= self._sync_bytes:
            self.flush()

    def _forget(self) -> None:
        """After a failed sync: nothing of this file is believed, and a new one is made at the next open."""
        self.close()
        self._map.clear()
        with contextlib.suppress(OSError):
            fsops.unlink(self.path, Point.BLOCK)
            fsops.sync_folder(self.path.parent, Point.BLOCK)

    def _opened(self) -> DurableFile:
        if self._file is None:
            raise InternalError(f"blob {self.sha256[:16]}…: used while it is not open")
        return self._file
