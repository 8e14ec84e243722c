"""A BSDIFF40 file applied as a stream: three bzip2 streams, the old file read at offsets.

The format is that of C. Percival's bsdiff 4: magic, length of the packed control and diff, size of the new
file, then control, diff and extra. Source: `bspatch.c`, and the layout described in its manual page.
"""

from __future__ import annotations

import bz2
from typing import TYPE_CHECKING

from vedette.delta.bsdiff import apply_steps, offtin
from vedette.delta.varint import damaged

if TYPE_CHECKING:
    from vedette.fsops import DurableFile
    from vedette.update.codecs.input_file import InputFile

MAGIC = b"BSDIFF40"
HEADER_BYTES = 32
PIECE_BYTES = 1 << 14


def bsdiff4_size_bytes(blob: InputFile) -> int:
    """The size of the new file, as the header says.

    Raises:
        BadInputError: No BSDIFF40 file.
    """
    header = blob.read_at(0, min(HEADER_BYTES, blob.size_bytes))
    if len(header) < HEADER_BYTES or header[:8] != MAGIC:
        raise damaged("it is no BSDIFF40 file")
    return offtin(header[24:32])


def decode_bsdiff4(blob: InputFile, old: InputFile, out: DurableFile, size_bytes: int) -> None:
    """Apply a BSDIFF40 file; memory is three bzip2 decompressors and one block.

    Raises:
        BadInputError: Damaged, or its header says another size than the manifest.
        OSError: The disk.
    """
    claimed = bsdiff4_size_bytes(blob)
    if claimed != size_bytes:
        raise damaged(f"it makes {claimed} bytes; the manifest says {size_bytes}")
    header = blob.read_at(0, HEADER_BYTES)
    control_bytes, diff_bytes = offtin(header[8:16]), offtin(header[16:24])
    if control_bytes < 0 or diff_bytes < 0 or HEADER_BYTES + control_bytes + diff_bytes > blob.size_bytes:
        raise damaged("its streams do not fit into it")
    starts = (HEADER_BYTES, HEADER_BYTES + control_bytes, HEADER_BYTES + control_bytes + diff_bytes)
    ends = (*starts[1:], blob.size_bytes)
    streams = [_Bzip2Stream(blob, start, end) for start, end in zip(starts, ends, strict=True)]
    made = 0

    def write(piece: bytes) -> None:
        nonlocal made
        out.write_at(piece, made)
        made += len(piece)

    apply_steps(
        *(stream.read for stream in streams),
        old=old.read_at,
        old_bytes=old.size_bytes,
        write=write,
        new_bytes=size_bytes,
    )
    for stream in streams:
        stream.finish()


class _Bzip2Stream:
    """Part of a file, unpacked only as far as it is read."""

    def __init__(self, blob: InputFile, start: int, end: int) -> None:
        self._blob = blob
        self._at, self._end = start, end
        self._bz2 = bz2.BZ2Decompressor()

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            BadInputError: The stream ends before, or is damaged.
        """
        out = bytearray()
        while len(out) < size and not self._bz2.eof:
            fed = self._feed() if self._bz2.needs_input else b""
            if self._bz2.needs_input and not fed:
                break
            out += self._unpack(fed, size - len(out))
        if len(out) != size:
            raise damaged("a bzip2 stream ends early")
        return bytes(out)

    def finish(self) -> None:
        """Go on to the end of the stream, so that its own checksum is looked at.

        Raises:
            BadInputError: There is more in it, or its end is missing.
        """
        while not self._bz2.eof:
            fed = self._feed() if self._bz2.needs_input else b""
            if self._bz2.needs_input and not fed:
                raise damaged("the end of a bzip2 stream is missing")
            if self._unpack(fed, 1):
                raise damaged("a bzip2 stream holds more than its steps use")

    def _feed(self) -> bytes:
        piece = self._blob.read_at(self._at, min(PIECE_BYTES, self._end - self._at))
        self._at += len(piece)
        return piece

    def _unpack(self, fed: bytes, most: int) -> bytes:
        try:
            return self._bz2.decompress(fed, most)
        except (OSError, EOFError, ValueError) as error:
            raise damaged(f"not a bzip2 stream: {error}") from error
