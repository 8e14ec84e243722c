"""Which blocks of a blob are on the disk, and what they should read as. Pure."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Container


class BlockRecord(msgspec.Struct, frozen=True):
    """What the disk keeps of a map: one byte a block, 1 for there; four bytes of CRC-32 a block."""

    sha256: str
    size_bytes: int
    block_bytes: int
    have: bytes
    crc32: bytes


class BlockMap:
    """The blocks of one blob; the last one may be short."""

    def __init__(self, sha256: str, size_bytes: int, block_bytes: int) -> None:
        self.sha256 = sha256
        self.size_bytes = size_bytes
        self.block_bytes = block_bytes
        self.blocks = -(-size_bytes // block_bytes)
        self._have = bytearray(self.blocks)
        self._crc32 = bytearray(4 * self.blocks)

    @property
    def record_bytes(self) -> int:
        """Bytes that a record of this map needs at most, as JSON."""
        return 512 + 4 * (5 * self.blocks // 3 + 4)

    def record(self) -> BlockRecord:
        """What is to be kept."""
        return BlockRecord(
            self.sha256, self.size_bytes, self.block_bytes, bytes(self._have), bytes(self._crc32)
        )

    def restore(self, found: BlockRecord) -> bool:
        """Take over what was kept; false, and nothing taken, when it is about another blob or block size."""
        same = (found.sha256, found.size_bytes, found.block_bytes, len(found.have), len(found.crc32)) == (
            self.sha256,
            self.size_bytes,
            self.block_bytes,
            self.blocks,
            4 * self.blocks,
        )
        if same:
            self._have[:] = found.have
            self._crc32[:] = found.crc32
        return same

    def clear(self) -> None:
        """No block is there."""
        self._have[:] = bytes(self.blocks)

    def has(self, block: int) -> bool:
        """Whether a block is there."""
        return self._have[block] == 1

    def add(self, block: int, crc32: int) -> None:
        """A block is there, with this checksum."""
        self._have[block] = 1
        self._crc32[4 * block : 4 * block + 4] = crc32.to_bytes(4, "big")

    def drop(self, block: int) -> None:
        """A block is not there after all."""
        self._have[block] = 0

    def matches(self, block: int, content: bytes) -> bool:
        """Whether this is what the block should read as."""
        start, end = self.span(block)
        expected = int.from_bytes(self._crc32[4 * block : 4 * block + 4], "big")
        return len(content) == end - start and zlib.crc32(content) == expected

    def span(self, block: int) -> tuple[int, int]:
        """The bytes [start, end) of a block."""
        start = block * self.block_bytes
        return start, min(start + self.block_bytes, self.size_bytes)

    def missing(self, coming: Container[int] = ()) -> list[tuple[int, int]]:
        """The ranges [start, end) of bytes that are neither there nor `coming`, in order."""
        ranges: list[tuple[int, int]] = []
        for block, there in enumerate(self._have):
            if there or block in coming:
                continue
            start, end = self.span(block)
            if ranges and ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
        return ranges

    def tail(self, length_bytes: int) -> range:
        """The blocks of the last stretch of `length_bytes` that is there but not whole; none when all are."""
        last = self._have.rfind(1)
        if last < 0 or all(self._have):
            return range(0)
        start = self.span(last)[0] // length_bytes * length_bytes
        return range(start // self.block_bytes, last + 1)
