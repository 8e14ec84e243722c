"""A database whose file was deleted, moved or replaced while it is open: noticed, and written anew.

What an open database holds stays readable through its handle until that is closed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.fsops import DurableFile, Point

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

RESCUED_NAME = "outbox.rescued.sqlite3"
LOG_SUFFIX = "-wal"
_SIDE_FILES = ("", LOG_SUFFIX, "-journal")


class FileIdentity:
    """Which files an open database has: by device and inode, as both names may come to name others."""

    def __init__(self, path: Path) -> None:
        self._found = {name: _identity(name) for name in (path, path.with_name(path.name + LOG_SUFFIX))}

    def lost(self) -> str:
        """Why what is written would be gone with the next close; empty when all is well."""
        for path, found in self._found.items():
            now = _identity(path)
            if found is not None and now != found:
                return f"{path.name} was {'deleted' if now is None else 'replaced'} while it was in use"
        return ""


def copy_out(database: sqlite3.Connection, folder: Path) -> Path:
    """Write all that an open database holds into a durable file beside it.

    Raises:
        sqlite3.Error: It cannot be read whole, or there is no room.
        OSError: The disk refuses.
    """
    fsops.make_folder(folder, Point.OUTBOX)
    target = folder / RESCUED_NAME
    drop(target)
    try:
        database.execute("VACUUM INTO ?", (str(target),))
        with DurableFile.open(target, Point.OUTBOX) as file:
            file.sync()
    except BaseException:
        with contextlib.suppress(OSError):
            drop(target)
        raise
    return target


def drop(path: Path) -> None:
    """Remove a database and what lies beside it."""
    for suffix in _SIDE_FILES:
        fsops.unlink(path.with_name(path.name + suffix), Point.OUTBOX)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_dev, found.st_ino) if found.st_nlink else None
