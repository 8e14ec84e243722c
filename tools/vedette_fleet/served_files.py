"""Opens the files of a repository that anybody may read."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EISDIR, errno.ENXIO}


def open_below(root: Path, name: str) -> int | None:
    """A descriptor of a plain file, reached folder by folder through no link; None when there is none.

    Raises:
        OSError: There is one, or may be, and it cannot be opened now.
    """
    *folders, last = name.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in folders:
                below = os.open(part, flags | os.O_DIRECTORY, dir_fd=folder)
                os.close(folder)
                folder = below
            descriptor = os.open(last, flags | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
    except ValueError:
        return None
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
