"""Bounded reading and durable writing inside one folder; nothing outside of it is ever opened."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.bundle.checksums import MAX_FILES
from vedette.bundle.names import name_fault
from vedette.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_DEPTH = 8
_BLOCK_BYTES = 1 << 20


def resolve_folder(root: Path) -> Path:
    """The real path of a folder.

    Raises:
        BundleError: There is no folder there.
    """
    try:
        folder = root.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise BundleError(
            f"no bundle at {root}: {_reason(error)}", cure="give the path of a bundle's folder"
        ) from error
    if not folder.is_dir():
        raise BundleError(
            f"{root} is a file, not a bundle's folder", cure="give the folder that holds model.yaml"
        )
    return folder


def list_files(folder: Path) -> set[str]:
    """Relative names of every file below a folder.

    Raises:
        BundleError: Something may not stand in a bundle: a link that leaves it, a device, a strange name.
    """
    found: set[str] = set()
    try:
        _collect(folder, "", 0, found)
    except OSError as error:
        raise BundleError(
            f"{folder}: cannot be read: {_reason(error)}", cure="check owner and mode"
        ) from error
    return found


def _collect(folder: Path, prefix: str, depth: int, found: set[str]) -> None:
    if depth > MAX_DEPTH:
        raise BundleError(f"{prefix!r}: folders nested more than {MAX_DEPTH} deep", cure="flatten the bundle")
    with os.scandir(folder / prefix) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            fault = name_fault(name) or _kind_fault(folder, name, entry)
            if fault is not None:
                raise BundleError(f"file {name!r} {fault}", cure="a bundle holds plain files; copy it again")
            if entry.is_dir(follow_symlinks=False):
                _collect(folder, f"{name}/", depth + 1, found)
                continue
            found.add(name)
            if len(found) > MAX_FILES + 1:
                raise BundleError(f"{folder}: more than {MAX_FILES} files", cure="a bundle holds one model")


def _kind_fault(folder: Path, name: str, entry: os.DirEntry[str]) -> str | None:
    if entry.is_symlink():
        target = os.path.realpath(folder / name)
        if not target.startswith(f"{folder}{os.sep}"):
            return "is a link that leaves the bundle's folder"
        return None if entry.is_file() else "is a link to something that is no file"
    if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
        return None
    return "is neither a file nor a folder"


@contextlib.contextmanager
def _opened(folder: Path, name: str) -> Iterator[int]:
    """A descriptor of a regular file inside the folder, checked after opening."""
    path = os.path.realpath(folder / name)
    if name_fault(name) is not None or not path.startswith(f"{folder}{os.sep}"):
        raise BundleError(f"file {name!r} lies outside the bundle's folder", cure="copy the bundle again")
    try:
        # Without O_NONBLOCK, opening a FIFO that was put there would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BundleError(f"{name}: cannot be read: {_reason(error)}", cure="check owner and mode") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BundleError(f"{name}: is not a plain file", cure="copy the bundle again")
        yield descriptor
    except OSError as error:
        raise BundleError(f"{name}: cannot be read: {_reason(error)}", cure="check the disk") from error
    finally:
        os.close(descriptor)


def hash_file(folder: Path, name: str) -> str:
    """SHA-256 of a file, as lower-case hex.

    Raises:
        BundleError: It cannot be read.
    """
    digest = hashlib.sha256()
    with _opened(folder, name) as descriptor:
        while block := os.read(descriptor, _BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def size_bytes(folder: Path, name: str) -> int:
    """Size of a file.

    Raises:
        BundleError: It cannot be read.
    """
    with _opened(folder, name) as descriptor:
        return os.fstat(descriptor).st_size


def head(folder: Path, name: str) -> bytes:
    """The first bytes of a file, enough to tell its format.

    Raises:
        BundleError: It cannot be read.
    """
    with _opened(folder, name) as descriptor:
        return os.read(descriptor, 16)


def read_file(folder: Path, name: str, max_bytes: int) -> bytes:
    """A small file whole.

    Raises:
        BundleError: It cannot be read, or is larger than `max_bytes`.
    """
    with _opened(folder, name) as descriptor:
        found = os.fstat(descriptor).st_size
        if found > max_bytes:
            raise BundleError(
                f"{name}: {found} bytes, more than {max_bytes}", cure="this file has to be smaller"
            )
        blocks = []
        left = max_bytes
        while left and (block := os.read(descriptor, min(left, _BLOCK_BYTES))):
            blocks.append(block)
            left -= len(block)
        return b"".join(blocks)


@contextlib.contextmanager
def mapped(folder: Path, name: str) -> Iterator[mmap.mmap]:
    """A read-only memory map of a file that is not empty.

    Raises:
        BundleError: It cannot be mapped.
    """
    with _opened(folder, name) as descriptor:
        if os.fstat(descriptor).st_size == 0:
            raise BundleError(f"{name}: is empty", cure="copy the file again")
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
            yield data


def write_durably(folder: Path, name: str, content: bytes) -> None:
    """Replace a file so that after a power cut either the old or the new one is there, whole (casebook 35).

    Raises:
        BundleError: The folder cannot be written.
    """
    try:
        fsops.write_durable(folder / name, content, fsops.Point.SEAL, mode=0o644)
    except OSError as error:
        raise BundleError(
            f"{folder / name}: cannot be written: {_reason(error)}", cure="check space and mode"
        ) from error


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(
        error
    ).__name__
