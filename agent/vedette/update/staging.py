"""The folder of one update: blobs on their way, and the bundle that is being put together.

`staging/<update_id>/` may be thrown away at any time. `entry/` in it becomes the entry of the store in one
rename: `entry/bundle/` holds the bundle, `entry/META.json` the release manifest and its digest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.bundle import disk
from vedette.bundle.checksums import SUMS_NAME, bundle_digest, format_checksums
from vedette.bundle.names import name_fault
from vedette.errors import BundleError, storage_fault
from vedette.fsops import DurableFile, Point
from vedette.update.entry import BUNDLE_NAME, META_NAME, encode_meta
from vedette.update.part_file import BLOCK_BYTES, PartFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.wire.release import ReleaseManifest

_COPY_BYTES = 1 << 20


class Staging:
    """One update's folder; made by `Store.stage`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entry = folder / "entry"
        self.bundle = self.entry / BUNDLE_NAME

    def make(self) -> None:
        """Make the folders that are not there yet.

        Raises:
            StorageError: The disk refuses.
        """
        try:
            for folder in (self.folder, self.entry, self.bundle):
                fsops.make_folder(folder, Point.STAGE)
        except OSError as error:
            raise storage_fault(error, f"{self.folder} cannot be made") from error

    def part(self, sha256: str, size_bytes: int, *, block_bytes: int = BLOCK_BYTES) -> PartFile:
        """The part file of a blob, to be opened with `with`."""
        return PartFile(self.folder, sha256, size_bytes, block_bytes=block_bytes)

    def output(self, name: str) -> Path:
        """Where a file of the bundle is to be written; the folders above it are made.

        Raises:
            BundleError: No name for a file inside a bundle.
            StorageError: The disk refuses.
        """
        fault = name_fault(name)
        if fault is not None:
            raise BundleError(f"release file {name!r} {fault}", cure="the owner must publish it correctly")
        path = self.bundle / name
        try:
            for parent in reversed(path.relative_to(self.bundle).parents[:-1]):
                fsops.make_folder(self.bundle / parent, Point.STAGE)
        except OSError as error:
            raise storage_fault(error, f"{path.parent} cannot be made") from error
        return path

    def copy_in(self, source: Path, name: str) -> None:
        """Put a file that the box already has into the bundle; a copy, so that damage is not shared.

        Raises:
            BundleError: No name for a file inside a bundle.
            StorageError: The disk refuses.
        """
        path = self.output(name)
        try:
            with source.open("rb") as old, DurableFile.create(path, Point.OUTPUT) as new:
                offset = 0
                while block := old.read(_COPY_BYTES):
                    new.write_at(block, offset)
                    offset += len(block)
        except OSError as error:
            raise storage_fault(error, f"{source} cannot be copied to {path}") from error

    def seal(self, manifest: ReleaseManifest) -> None:
        """Make the bundle durable, read it back against the manifest, and put the manifest beside it.

        Raises:
            BundleError: A file is missing, too much, or not what was signed.
            StorageError: The disk refuses.
        """
        listed = {file.path: file.sha256 for file in manifest.files}
        try:
            if SUMS_NAME not in listed:
                fsops.write_durable(self.bundle / SUMS_NAME, format_checksums(listed).encode(), Point.ADOPT)
            for folder, names in _bottom_up(self.bundle):
                for name in names:
                    _sync_file(folder / name)
                fsops.sync_folder(folder, Point.ADOPT)
            check_bundle(self.bundle, manifest)
            fsops.write_durable(self.entry / META_NAME, encode_meta(manifest), Point.META)
        except OSError as error:
            raise storage_fault(error, f"{self.entry} cannot be made durable") from error


def check_bundle(folder: Path, manifest: ReleaseManifest) -> None:
    """Hold every file against the signed manifest, in full.

    Raises:
        BundleError: What differs.
    """
    listed = {file.path: file for file in manifest.files}
    present = disk.list_files(folder)
    problems = [f"{name!r} is missing" for name in sorted(listed.keys() - present)]
    problems += [f"{name!r} was not signed" for name in sorted(present - listed.keys() - {SUMS_NAME})]
    for name in sorted(listed.keys() & present):
        size_bytes = disk.size_bytes(folder, name)
        if size_bytes != listed[name].size_bytes:
            problems.append(f"{name!r} has {size_bytes} bytes, {listed[name].size_bytes} were signed")
        elif disk.hash_file(folder, name) != listed[name].sha256:
            problems.append(f"{name!r} is not what was signed")
    digests = {file.path: file.sha256 for file in manifest.files if file.path != SUMS_NAME}
    if SUMS_NAME not in listed and not problems:
        sums = format_checksums(digests).encode()
        if SUMS_NAME not in present or disk.read_file(folder, SUMS_NAME, len(sums) + 1) != sums:
            problems.append(f"{SUMS_NAME} does not list the signed files")
    if bundle_digest(digests) != manifest.bundle_sha256:
        problems.append("the release names another bundle than its files make")
    if problems:
        raise BundleError(
            f"bundle {manifest.name} {manifest.version}: {'; '.join(problems)}", cure="it is not used"
        )


def _bottom_up(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    for at, _folders, names in os.walk(folder, topdown=False):
        yield folder / os.path.relpath(at, folder), sorted(names)


def _sync_file(path: Path) -> None:
    """Sync a file whoever wrote it, and let the kernel forget it, so that the check reads the disk."""
    with DurableFile.open(path, Point.ADOPT) as file:
        file.sync()
        fsops.drop_cached(file.descriptor)
