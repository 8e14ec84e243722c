"""zstd as releases use it: frames that a device can unpack within its memory."""

from __future__ import annotations

from backports import zstd

LEVEL = 19
WINDOW_LOG = 23  # the device allocates no larger window


def pack_zstd(content: bytes) -> bytes:
    """One frame."""
    window_log = min(WINDOW_LOG, max(10, len(content).bit_length()))
    return zstd.compress(
        content,
        options={
            zstd.CompressionParameter.compression_level: LEVEL,
            zstd.CompressionParameter.window_log: window_log,
        },
    )


def unpack_zstd(packed: bytes, most_bytes: int) -> bytes:
    """At most so many bytes of a frame; none where it is damaged, which whoever hashes them will see."""
    try:
        content: bytes = zstd.ZstdDecompressor().decompress(packed, most_bytes)
    except zstd.ZstdError:
        return b""
    return content
