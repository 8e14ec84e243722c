"""Plain compression of one section: raw, LZMA or deflate; unpacked within stated sizes. Pure."""

from __future__ import annotations

import lzma
import zlib
from enum import IntEnum
from typing import Any

from vedette.delta.varint import damaged

LZMA_DICT_BYTES = 1 << 20  # also what a decoder allocates
PIECE_BYTES = 1 << 16


class Stage(IntEnum):
    """How a section is packed."""

    RAW = 0
    LZMA = 1
    DEFLATE = 2


def lzma_filters() -> list[dict[str, Any]]:
    """The one filter chain of the format: no header, no literal context, as tokens are no text."""
    return [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": LZMA_DICT_BYTES, "lc": 0, "lp": 0, "pb": 0}]


class SectionReader:
    """Reads a packed section front to back; memory is one piece and the decompressor's window."""

    def __init__(self, stage: Stage, packed: bytes, size_bytes: int) -> None:
        self._packed = packed
        self._fed = 0
        self._left = size_bytes
        self._stage = stage
        self._lzma = (
            lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=lzma_filters()) if stage is Stage.LZMA else None
        )
        self._deflate = zlib.decompressobj(-15) if stage is Stage.DEFLATE else None

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            BadInputError: The section is shorter, or its packing is damaged.
        """
        if size > self._left:
            raise damaged(f"a section ends {size - self._left} bytes early")
        self._left -= size
        if self._stage is Stage.RAW:
            self._fed += size
            piece = self._packed[self._fed - size : self._fed]
        else:
            piece = self._unpack(size)
        if len(piece) != size:
            raise damaged("a section is shorter than it says")
        return piece

    def finish(self) -> None:
        """Insist that the section was read to its end."""
        if self._left:
            raise damaged(f"{self._left} bytes of a section are left over")

    def _unpack(self, size: int) -> bytes:
        out = bytearray()
        try:
            while len(out) < size:
                piece = self._pull(size - len(out))
                if not piece:
                    break
                out += piece
        except (lzma.LZMAError, zlib.error, EOFError) as error:
            raise damaged(f"a section does not unpack: {error}") from error
        return bytes(out)

    def _pull(self, most: int) -> bytes:
        if self._lzma is not None:
            while not self._lzma.eof:
                piece = self._feed() if self._lzma.needs_input else b""
                starved = self._lzma.needs_input and not piece
                out = self._lzma.decompress(piece, most)
                if out or starved:
                    return out
        elif self._deflate is not None:
            while not self._deflate.eof:
                piece = self._deflate.unconsumed_tail or self._feed()
                out = self._deflate.decompress(piece, most)
                if out or not piece:
                    return out
        return b""

    def _feed(self) -> bytes:
        piece = self._packed[self._fed : self._fed + PIECE_BYTES]
        self._fed += len(piece)
        return piece


def unpack(stage: Stage, packed: bytes, size_bytes: int) -> bytes:
    """Unpack a whole section of a size that the caller has bounded.

    Raises:
        BadInputError: It does not unpack to exactly that size.
    """
    return SectionReader(stage, packed, size_bytes).read(size_bytes)


def stage_of(code: int) -> Stage:
    """The stage that a code names.

    Raises:
        BadInputError: None.
    """
    try:
        return Stage(code)
    except ValueError as error:
        raise damaged(f"packing {code} is unknown") from error
