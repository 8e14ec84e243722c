"""Full encodings: the file itself, or one zstd frame of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.delta.varint import damaged
from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from vedette.fsops import DurableFile
    from vedette.update.codecs.input_file import InputFile

WINDOW_LOG = 23  # 8 MiB: what zstd -19 uses, and the most that a frame can make us allocate
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
    """Unpack a file that is one zstd frame.

    Raises:
        BadInputError: Damaged, cut, longer, of another size, or with a window above 2 ** WINDOW_LOG.
        UnavailableError: backports.zstd is not installed.
        OSError: The disk.
    """
    try:
        from backports import zstd  # noqa: PLC0415 - a package of the extra [update]
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "zstd needs the Python package backports.zstd", cure="pip install 'vedette[update]'"
        ) from error
    frame = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG})
    made = fed = 0
    while not frame.eof:
        packed = b""
        if frame.needs_input:
            packed = blob.read_at(fed, min(BLOCK_BYTES, blob.size_bytes - fed))
            fed += len(packed)
            if not packed:
                raise damaged(f"its zstd frame ends early, after {made} bytes of {size_bytes}")
        try:
            piece = frame.decompress(packed, BLOCK_BYTES)
        except zstd.ZstdError as error:
            raise damaged(f"not a zstd frame: {error}") from error
        if made + len(piece) > size_bytes:
            raise damaged(f"it unpacks to more than {size_bytes} bytes")
        out.write_at(piece, made)
        made += len(piece)
    if made != size_bytes or frame.unused_data or fed != blob.size_bytes:
        raise damaged(f"one zstd frame of {made} bytes; the manifest says {size_bytes}, and nothing after it")
