"""Shards of training samples as tar files, byte by byte. Pure.

WebDataset's layout: files with one name up to the first dot belong together, here `ID.jpg` and then
`ID.json`. Tar needs no library to read, can be appended to, and a power cut costs its last sample only, which
a Parquet file, whose index stands at its end, would not survive; nor does it need 40 MB of pyarrow here.
"""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK_BYTES = 512
END = bytes(2 * BLOCK_BYTES)
MAX_MEMBER_BYTES = 64 << 20


def pack_sample(name: str, files: Mapping[str, bytes], utc_s: int) -> bytes:
    """One sample as it stands in a shard.

    Args:
        name: Of the sample; ASCII without dots or slashes.
        files: Content by ending, in order.
        utc_s: When it was made.
    """
    parts: list[bytes] = []
    for ending, content in files.items():
        member = tarfile.TarInfo(f"{name}.{ending}")
        member.size, member.mtime, member.mode = len(content), utc_s, 0o644
        parts += [member.tobuf(tarfile.USTAR_FORMAT), content, bytes(-len(content) % BLOCK_BYTES)]
    return b"".join(parts)


def whole_bytes(content: bytes, last_ending: str = "json") -> tuple[int, int]:
    """How many bytes of a shard whose writer was killed are whole samples, and how many samples those are."""
    at, whole, samples = 0, 0, 0
    while at + BLOCK_BYTES <= len(content):
        try:
            member = tarfile.TarInfo.frombuf(content[at : at + BLOCK_BYTES], "ascii", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError):
            break
        if not 0 <= member.size <= MAX_MEMBER_BYTES:
            break
        at += BLOCK_BYTES + member.size + -member.size % BLOCK_BYTES
        if at > len(content):
            break
        if member.name.endswith(f".{last_ending}"):
            whole, samples = at, samples + 1
    return whole, samples


def read_shard(content: bytes) -> dict[str, bytes]:
    """All files of a shard by name, as anybody's tar would read them.

    Raises:
        tarfile.TarError: It is none.
    """
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as shard:
        for member in shard:
            file = shard.extractfile(member)
            if file is not None:
                found[member.name] = file.read()
    return found
