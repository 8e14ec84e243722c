"""Every durable step of the product on the file system, each named by the reason it must be durable.

The order of steps is what survives a power cut, so it is kept in one place where a test can see it: a `Trace`
that was put in with `traced` sees each primitive step before it happens, and may raise an errno in its stead
or kill the process there. Without one, a step costs a comparison more than the system call.

The rules of the file system that are relied upon, and no more: what `fsync` of a file returned for can be
read back; a name is durable when `fsync` of its folder returned; a rename is atomic. Errors are `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType


class Point(Enum):
    """Why a step must be durable before what follows it; F1 to F10 are those of the update machine."""

    BLOCK = "F1"  # a fetched block, before the map says that it is there
    RECORD = "F2"  # a copy of a two-copy record, before its content is acted on
    MAP = "F2m"  # the map of a part file: also a two-copy record
    ADOPT = "F3"  # a finished bundle, before and while it moves from staging into the store
    META = "F4"  # the manifest beside it, before that move
    SWITCH = "F5"  # the record that names the candidate, before the old model is let go
    TRIES = "F6"  # one try less, before the candidate is loaded
    CONFIRM = "F7"  # the marker, before the record says confirmed
    COLLECT = "F8"  # the end of what no copy of the record names
    OUTBOX = "F9"  # an event, before it is published; its end, after it was acknowledged
    TRUST = "F10"  # what was seen signed, before anything is installed on its word
    STAGE = "S1"  # the folder of an update; may be thrown away
    OUTPUT = "S2"  # a file that is being decoded; may be thrown away
    SEAL = "S3"  # the list of checksums of a bundle
    SPENT = "E1"  # what asking has cost, before more is spent
    AUDITS = "E2"  # an audit's answer, before a threshold rests on it
    BACKLOG = "E3"  # a picture that waits for a way to the large model; may be thrown away
    SAMPLES = "E4"  # a shard of training samples
    INSTALL = "I1"  # a file of the service, before the next boot reads it
    KEY = "P1"  # a signing key, before anything is signed with it
    PUBLISH = "P2"  # a blob, target or metadata file, before metadata that names it; timestamp last


class Kind(str, Enum):
    """The primitive steps."""

    CREATE = "create"
    WRITE = "write"
    RESIZE = "resize"
    SYNC = "sync"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_FOLDER = "mkdir"
    REMOVE_FOLDER = "rmdir"
    SYNC_FOLDER = "sync-folder"


class Operation(NamedTuple):
    """One step that is about to happen; `target` is the new name of a rename, `size_bytes` of a resize."""

    kind: Kind
    point: Point
    path: str
    target: str = ""
    offset: int = 0
    data: bytes = b""
    size_bytes: int = 0


class Trace(Protocol):
    """Sees each step before it happens; what it raises happens instead of the step."""

    def before(self, operation: Operation) -> None:
        """Look on, raise an `OSError`, or end the process."""
        ...


class FileLostError(OSError):
    """A sync failed: the kernel may have dropped the data, and a second sync would wrongly succeed.

    The file must be deleted or replaced, and its content made anew.
    """


class _Hook:
    """Holds the one trace of the process."""

    trace: Trace | None = None


@contextlib.contextmanager
def traced(trace: Trace) -> Iterator[None]:
    """Show every step of this process to `trace`; for tests."""
    before, _Hook.trace = _Hook.trace, trace
    try:
        yield
    finally:
        _Hook.trace = before


@final
class DurableFile:
    """An open file; its content is durable when `sync` returned, its name when its folder is synced."""

    def __init__(self, path: Path, descriptor: int, point: Point) -> None:
        self.path = path
        self.descriptor = descriptor
        self._point = point

    @classmethod
    def create(cls, path: Path, point: Point) -> DurableFile:
        """Make a new, empty file; a leftover of that name is thrown away first.

        Raises:
            OSError: It cannot be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        if path.is_symlink() or path.exists():
            unlink(path, point)
        if _Hook.trace is not None:
            _Hook.trace.before(Operation(Kind.CREATE, point, str(path)))
        return cls(path, os.open(path, flags, 0o644), point)

    @classmethod
    def open(cls, path: Path, point: Point) -> DurableFile:
        """Open a file that is there, for reading and writing in place.

        Raises:
            OSError: It is not there, or is a link.
        """
        return cls(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW), point)

    def __enter__(self) -> DurableFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write_at(
        self, content: bytes | bytearray | memoryview, offset: int, *, point: Point | None = None
    ) -> None:
        """Write all of `content` at a byte offset.

        Raises:
            OSError: No space, a quota, a broken disk; a part may have been written.
        """
        if _Hook.trace is not None:
            step = Operation(
                Kind.WRITE, point or self._point, str(self.path), offset=offset, data=bytes(content)
            )
            _Hook.trace.before(step)
        left = memoryview(content)
        while left.nbytes:
            written = os.pwrite(self.descriptor, left, offset)
            if written == 0:
                raise OSError(errno.ENOSPC, "nothing was written", str(self.path))
            left = left[written:]
            offset += written

    def allocate(self, size_bytes: int) -> None:
        """Make the file that long, with its blocks set aside where the file system can.

        Raises:
            OSError: No space for it.
        """
        self._announce_size(size_bytes)
        os.ftruncate(self.descriptor, size_bytes)
        if size_bytes == 0:
            return
        try:
            os.posix_fallocate(self.descriptor, 0, size_bytes)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                raise

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to a length.

        Raises:
            OSError: The disk refuses.
        """
        self._announce_size(size_bytes)
        os.ftruncate(self.descriptor, size_bytes)

    def sync(self, *, data_only: bool = False, point: Point | None = None) -> None:
        """Return when all that was written can be read back after a power cut.

        Raises:
            FileLostError: It cannot; never try again on the same file.
        """
        try:
            if _Hook.trace is not None:
                _Hook.trace.before(Operation(Kind.SYNC, point or self._point, str(self.path)))
            if data_only:
                os.fdatasync(self.descriptor)
            else:
                os.fsync(self.descriptor)
        except OSError as error:
            raise FileLostError(error.errno, error.strerror, str(self.path)) from error

    def close(self) -> None:
        """Give the descriptor back; syncs nothing."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _announce_size(self, size_bytes: int) -> None:
        if _Hook.trace is not None:
            step = Operation(Kind.RESIZE, self._point, str(self.path), size_bytes=size_bytes)
            _Hook.trace.before(step)


def temporary_path(path: Path) -> Path:
    """Where `write_durable` prepares a file; a leftover there is of no use to anybody."""
    return path.with_name(f".{path.name}.tmp")


def write_durable(
    path: Path, content: bytes, point: Point, *, mode: int | None = None, size_bytes: int = 0
) -> None:
    """Replace a file so that after a power cut the old or the new one is there, whole (casebook 35).

    One writer at a time. `size_bytes` pads with zeros, for files that are later overwritten in place.

    Raises:
        FileLostError: A sync failed; the file or its name may be either of the two.
        OSError: The old file is still there.
    """
    temporary = temporary_path(path)
    try:
        with DurableFile.create(temporary, point) as file:
            if mode is not None:
                os.fchmod(file.descriptor, mode)
            file.write_at(content.ljust(size_bytes, b"\0"), 0)
            file.sync()
        rename(temporary, path, point)
    except OSError:
        with contextlib.suppress(OSError):
            unlink(temporary, point)
        raise
    sync_folder(path.parent, point)


def rename(source: Path, target: Path, point: Point) -> None:
    """Move a file or folder within one file system, atomically; durable when both folders are synced.

    Raises:
        OSError: Nothing was moved.
    """
    if _Hook.trace is not None:
        _Hook.trace.before(Operation(Kind.RENAME, point, str(source), target=str(target)))
    source.rename(target)


def sync_folder(folder: Path, point: Point) -> None:
    """Make the names in a folder durable.

    Raises:
        FileLostError: They may not be.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _Hook.trace is not None:
            _Hook.trace.before(Operation(Kind.SYNC_FOLDER, point, str(folder)))
        os.fsync(descriptor)
    except OSError as error:
        raise FileLostError(error.errno, error.strerror, str(folder)) from error
    finally:
        os.close(descriptor)


def drop_cached(descriptor: int) -> None:
    """Ask the kernel to forget its clean pages of a file, so that the next read comes from the disk."""
    with contextlib.suppress(OSError):  # advice; some file systems know none
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def make_folder(folder: Path, point: Point) -> None:
    """Make a folder, and durably so, also when a process that was killed made it.

    Raises:
        OSError: It cannot be made.
    """
    if not folder.is_dir():
        if _Hook.trace is not None:
            _Hook.trace.before(Operation(Kind.MAKE_FOLDER, point, str(folder)))
        folder.mkdir()
    sync_folder(folder.parent, point)


def unlink(path: Path, point: Point) -> None:
    """Remove a file's name; nothing happens when it is gone.

    Raises:
        OSError: It cannot be removed.
    """
    if _Hook.trace is not None:
        _Hook.trace.before(Operation(Kind.UNLINK, point, str(path)))
    path.unlink(missing_ok=True)


def remove_tree(folder: Path, point: Point) -> None:
    """Remove a folder and all below it, following no link; nothing happens when it is gone.

    Raises:
        OSError: Something cannot be removed.
    """
    if folder.is_symlink() or not folder.is_dir():
        if folder.is_symlink() or folder.exists():
            unlink(folder, point)
        return
    with os.scandir(folder) as entries:
        below = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for name, is_folder in below:
        if is_folder:
            remove_tree(folder / name, point)
        else:
            unlink(folder / name, point)
    if _Hook.trace is not None:
        _Hook.trace.before(Operation(Kind.REMOVE_FOLDER, point, str(folder)))
    folder.rmdir()
