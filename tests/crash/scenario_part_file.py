"""A blob arrives in pieces over many lives: what was flushed is not fetched again, what is there is true."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from vedette.errors import StorageError
from vedette.update.part_file import PartFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

BLOCK_BYTES = 4096
BLOB = random.Random(40).randbytes(9 * BLOCK_BYTES + 1234)  # noqa: S311 - a blob that is the same each time
SHA256 = hashlib.sha256(BLOB).hexdigest()


def _part(root: Path) -> PartFile:
    return PartFile(root, SHA256, len(BLOB), block_bytes=BLOCK_BYTES, sync_bytes=3 * BLOCK_BYTES)


class PartFileScenario:
    """Fetches one blob from its beginning to its verified end."""

    name = "part file"
    counts_kills = False

    def prepare(self, root: Path) -> None:
        """Nothing is there yet."""

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Fetch what is missing, in pieces that keep to no border of blocks."""
        try:
            with _part(root) as part:
                for start, end in part.missing():
                    for offset in range(start, end, 3000):
                        part.write(offset, BLOB[offset : min(offset + 3000, end)])
                        if offset // 3000 % 5 == 4:
                            part.flush()
                            promise(str(part.received_bytes))
                part.verify()
                promise(str(len(BLOB)))
        except StorageError:
            promise("0")  # after a failed sync all of it is fetched again
            raise

    def check(self, root: Path, promises: Sequence[str], *, ended: bool) -> Iterable[str]:
        """Every block that is not missing is right, and nothing that was flushed is missing."""
        promised = int(promises[-1]) if promises else 0
        with _part(root) as part:
            received_bytes = part.received_bytes
            content = part.path.read_bytes()
            holes = [byte for start, end in part.missing() for byte in range(start, end)]
        if received_bytes < promised:
            yield f"{received_bytes} bytes are there; {promised} were promised"
        filled = bytearray(content)
        for byte in holes:
            filled[byte] = BLOB[byte]
        if bytes(filled) != BLOB:
            yield "a block that is not missing is wrong"
        if ended and (holes or content != BLOB):
            yield "it ended without the whole blob"
