"""Full encodings: the file itself, or a zstd stream of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vedette.delta.varint import damaged
from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from vedette.fsops import DurableFile
    from vedette.update.codecs.input_file import InputFile

WINDOW_BYTES = 8 << 20  # what zstd -19 uses, and the most that a stream can make us allocate
BLOCK_BYTES = 1 << 16


def decode_raw(blob: InputFile, out: DurableFile, size_bytes: int) -> None:
    """Copy a file.

    Raises:
        BadInputError: It has another size.
        OSError: The disk.
    """
    if blob.size_bytes != size_bytes:
        raise damaged(f"{blob.size_bytes} bytes for a file of {size_bytes}")
    for offset in range(0, size_bytes, BLOCK_BYTES):
        out.write_at(blob.read_at(offset, min(BLOCK_BYTES, size_bytes - offset)), offset)


def decode_zstd(blob: InputFile, out: DurableFile, size_bytes: int) -> None:
    """Unpack a zstd stream.

    Raises:
        BadInputError: Damaged, cut, of another size, or with a window above WINDOW_BYTES.
        UnavailableError: zstandard is not installed.
        OSError: The disk.
    """
    try:
        import zstandard  # noqa: PLC0415 - a package of the extra [update]
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "zstd needs the Python package zstandard", cure="pip install 'vedette[update]'"
        ) from error
    made = 0
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
    with os.fdopen(os.dup(blob.descriptor), "rb", buffering=0) as source:
        stream = decompressor.stream_reader(source, read_size=BLOCK_BYTES, read_across_frames=True)
        try:
            while piece := stream.read(BLOCK_BYTES):
                if made + len(piece) > size_bytes:
                    raise damaged(f"it unpacks to more than {size_bytes} bytes")
                out.write_at(piece, made)
                made += len(piece)
        except zstandard.ZstdError as error:
            raise damaged(f"not a zstd stream: {error}") from error
    if made != size_bytes:
        raise damaged(f"it unpacks to {made} bytes instead of {size_bytes}")
