"""The files that a block server sends from: opened once, looked at again before every block, read-only."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from vedette_fleet.served_files import open_below
from vedette_fleet.served_names import may_be_served
from vedette_fleet.tuf_repository import BLOBS, SERVED

if TYPE_CHECKING:
    from pathlib import Path

MOST_OPEN = 64
_READ_BYTES = 1 << 20


class ServedFile(NamedTuple):
    """A file as it is now; `tag` is one of its content, the same on every server, and 0 for blobs."""

    descriptor: int
    size_bytes: int
    tag: int
    identity: tuple[int, int, int, int]


class BlockFiles:
    """The repository in `root`; the least used of many files are closed. One thread."""

    def __init__(self, root: Path, *, most_open: int = MOST_OPEN) -> None:
        self._root = root.resolve()
        self._most_open = most_open
        self._open: OrderedDict[str, ServedFile] = OrderedDict()

    def find(self, path: str) -> ServedFile | None:
        """The file, or None when there is none that may be served.

        Raises:
            OSError: It cannot be read now.
        """
        if not may_be_served(path, SERVED):
            return None
        known = self._open.get(path)
        if known is not None:
            if known.identity == self._identity(path):
                self._open.move_to_end(path)
                return known
            self._close(path)
        return self._open_new(path)

    def read(self, file: ServedFile, offset: int, size_bytes: int) -> bytes:
        """Bytes of a file; fewer when it ends before.

        Raises:
            OSError: It cannot be read now.
        """
        return os.pread(file.descriptor, size_bytes, offset)

    def close(self) -> None:
        """Close all of them."""
        for path in list(self._open):
            self._close(path)

    def _open_new(self, path: str) -> ServedFile | None:
        descriptor = open_below(self._root, path)
        if descriptor is None:
            return None
        try:
            tag = 0 if path.startswith(f"{BLOBS}/") else _tag(descriptor)
            status = os.fstat(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        file = ServedFile(descriptor, status.st_size, tag, _identity_of(status))
        self._open[path] = file
        while len(self._open) > self._most_open:
            self._close(next(iter(self._open)))
        return file

    def _identity(self, path: str) -> tuple[int, int, int, int] | None:
        """That of whatever has the name now; what is served comes from the descriptor all the same."""
        try:
            return _identity_of((self._root / path).lstat())
        except OSError:
            return None

    def _close(self, path: str) -> None:
        os.close(self._open.pop(path).descriptor)


def _identity_of(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _tag(descriptor: int) -> int:
    """The first 64 bits of the content's SHA-256, and never 0."""
    digest, offset = hashlib.sha256(), 0
    while piece := os.pread(descriptor, _READ_BYTES, offset):
        digest.update(piece)
        offset += len(piece)
    return int.from_bytes(digest.digest()[:8], "little") or 1
