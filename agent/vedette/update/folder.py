"""Fetch from a folder, such as a stick that somebody plugs in; the stick is not trusted with anything."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from vedette.bundle.names import name_fault
from vedette.errors import NotFoundError, TruncatedError, UnavailableError
from vedette.update.interruption import Interruption

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE_BYTES = 65536
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
_COPY_CURE = "copy the whole repository onto the stick: metadata, targets and blobs"


class FolderFetcher:
    """Implements `ports.Fetcher` on a copy of the repository.

    `interruption` ends a read between two pieces; a stick that does not answer at all is the kernel's to end.
    """

    def __init__(self, folder: Path, *, interruption: Interruption | None = None) -> None:
        self._folder = folder
        self._interruption = interruption or Interruption()

    def reachable(self) -> bool:
        """Whether the folder is there now."""
        try:
            return (self._folder / "metadata").is_dir()
        except OSError:
            return False

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """Pieces of a small file; at most one byte more than `max_bytes`.

        Raises:
            NotFoundError: It is not there.
            UnavailableError: It cannot be read.
        """
        yield from self._read(path, 0, max_bytes + 1, exact=False)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """Pieces of bytes [start, end) of a blob.

        Raises:
            NotFoundError: It is not there.
            TruncatedError: It ends before `end`.
            UnavailableError: It cannot be read.
        """
        yield from self._read(f"blobs/{sha256}", start, end, exact=True)

    def _read(self, path: str, start: int, end: int, *, exact: bool) -> Iterator[bytes]:
        descriptor = self._open(path)
        try:
            offset = start
            while offset < end:
                self._interruption.check(f"{self._folder / path}")
                piece = os.pread(descriptor, min(PIECE_BYTES, end - offset), offset)
                if not piece:
                    break
                offset += len(piece)
                yield piece
        except OSError as error:
            raise UnavailableError(
                f"{self._folder / path}: {error.strerror}", cure="plug the stick in again, or try another"
            ) from error
        finally:
            os.close(descriptor)
        if exact and offset < end:
            raise TruncatedError(f"{self._folder / path}: ends at byte {offset} of {end}", cure=_COPY_CURE)

    def _open(self, path: str) -> int:
        """A descriptor of a plain file below the folder; no part of its path is followed through a link."""
        fault = name_fault(path)
        if fault is not None:
            raise NotFoundError(f"{path!r} {fault}", cure=_COPY_CURE)
        *parents, name = path.split("/")
        folder_flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        opened: list[int] = []
        try:
            opened.append(os.open(self._folder, folder_flags & ~os.O_NOFOLLOW))
            for parent in parents:
                opened.append(os.open(parent, folder_flags, dir_fd=opened[-1]))
            # Without O_NONBLOCK, a FIFO of that name would be waited for.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=opened[-1])
        except OSError as error:
            family = NotFoundError if error.errno in _ABSENT else UnavailableError
            raise family(f"{self._folder / path}: {_reason(error)}", cure=_COPY_CURE) from error
        finally:
            for parent_descriptor in opened:
                os.close(parent_descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotFoundError(f"{self._folder / path}: is no plain file", cure=_COPY_CURE)
        return descriptor


def _reason(error: OSError) -> str:
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return "is or goes through a link, which is not followed out of the stick"
    return error.strerror or type(error).__name__
