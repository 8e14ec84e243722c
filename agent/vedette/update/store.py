"""The store of whole bundles, named by their content.

::

    store/<bundle sha256>/bundle/       the bundle; never changed again
    store/<bundle sha256>/META.json     its release manifest and the digest of that
    store/<bundle sha256>/CONFIRMED     there once it proved itself; holds the order of confirmations
    store/.dead-<sha256>/               on its way out
    staging/<update_id>/                see `staging`

An entry appears and vanishes in one rename. What the serving process loads was hashed since this process
started; as long as inode, size and times of its files stay, the hash is not computed again.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.errors import BundleError, InternalError, StorageError, storage_fault
from vedette.fsops import Point
from vedette.update.entry import CONFIRMED_NAME, Entry, FileStamp, encode_marker, read_entry
from vedette.update.staging import Staging, check_bundle

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from vedette.wire.release import ReleaseManifest

_DEAD = ".dead-"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UPDATE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class Store:
    """Keeps bundles below one folder; one process and one thread at a time changes it."""

    def __init__(self, root: Path, *, factory: Path | None = None) -> None:
        self.root = root
        self.factory = factory
        self._store = root / "store"
        self._staging = root / "staging"
        self._hashed: dict[str, tuple[FileStamp, ...]] = {}

    def open(self, *, keep_staging: Collection[str] = ()) -> tuple[str, ...]:
        """Make the folders, and remove what a cut-short update left behind; the names of what went.

        Raises:
            StorageError: The disk refuses; what is in the store can still be read.
        """
        try:
            for folder in (self._store, self._staging):
                fsops.make_folder(folder, Point.STAGE)
            gone = [name for name in _names(self._store) if not _SHA256.fullmatch(name)]
            for name in gone:
                fsops.remove_tree(self._store / name, Point.COLLECT)
            for name in set(_names(self._store)).difference(gone):
                marker = fsops.temporary_path(self._store / name / CONFIRMED_NAME)
                if marker.exists():
                    fsops.unlink(marker, Point.COLLECT)
            stale = [name for name in _names(self._staging) if name not in keep_staging]
            for name in stale:
                fsops.remove_tree(self._staging / name, Point.STAGE)
            for folder in (self._store, self._staging):
                fsops.sync_folder(folder, Point.STAGE)
        except OSError as error:
            raise storage_fault(error, f"{self.root} cannot be put in order") from error
        return (*gone, *stale)

    def stage(self, update_id: str) -> Staging:
        """The folder of an update, made when it is not there.

        Raises:
            StorageError: The disk refuses.
        """
        staging = Staging(self._staging / _checked_id(update_id))
        staging.make()
        return staging

    def drop_stage(self, update_id: str) -> None:
        """Remove the folder of an update.

        Raises:
            StorageError: The disk refuses.
        """
        try:
            fsops.remove_tree(self._staging / _checked_id(update_id), Point.STAGE)
            fsops.sync_folder(self._staging, Point.STAGE)
        except OSError as error:
            raise storage_fault(error, f"staging of {update_id} cannot be removed") from error

    def adopt(self, staging: Staging, manifest: ReleaseManifest) -> Entry:
        """Move a finished bundle into the store, verified; done again after a power cut, it ends the same.

        Raises:
            BundleError: A file is not what was signed.
            StorageError: The disk refuses.
        """
        sha256 = manifest.bundle_sha256
        target = self._store / sha256
        try:
            if self._verified_or_none(sha256) is None:
                staging.seal(manifest)  # first, so that nothing is discarded that cannot be replaced
                if target.exists():
                    self._discard(sha256)
                fsops.rename(staging.entry, target, Point.ADOPT)
            fsops.sync_folder(self._store, Point.ADOPT)
            if staging.folder.is_dir():
                fsops.sync_folder(staging.folder, Point.ADOPT)
        except OSError as error:
            raise storage_fault(error, f"bundle {sha256[:16]}… cannot be stored") from error
        return self.find(sha256)

    def find(self, sha256: str) -> Entry:
        """An entry by its name; its files are not looked at.

        Raises:
            BundleError: It is not there, or its manifest is damaged.
        """
        return read_entry(self._store / _checked_sha256(sha256))

    def scan(self) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """The entries, and one line about each that is damaged.

        Raises:
            StorageError: The store cannot be read.
        """
        entries: list[Entry] = []
        damaged: list[str] = []
        try:
            names = [name for name in _names(self._store) if _SHA256.fullmatch(name)]
        except FileNotFoundError:
            return (), ()
        except OSError as error:
            raise storage_fault(error, f"{self._store} cannot be read") from error
        for name in names:
            found = self._find_or_say(name)
            if isinstance(found, Entry):
                entries.append(found)
            else:
                damaged.append(found)
        return tuple(entries), tuple(damaged)

    def verify(self, sha256: str, *, full: bool = False) -> Entry:
        """An entry whose every file is what was signed; `full` reads them all, whatever was seen before.

        Raises:
            BundleError: It is not there, or something differs.
        """
        entry = self.find(sha256)
        stamps = entry.stamps()
        if full or self._hashed.get(sha256) != stamps:
            self._hashed.pop(sha256, None)
            check_bundle(entry.bundle, entry.manifest)
            self._hashed[sha256] = stamps
        return entry

    def fallbacks(self, name: str, *, without: Collection[str] = ()) -> Iterator[Path]:
        """Bundles of a model to fall back to, each verified in full: newest confirmation first, factory last.

        Raises:
            StorageError: The store cannot be read; the factory's bundle is then given first.
        """
        try:
            entries, _damaged = self.scan()
        except StorageError:
            if self.factory is not None:
                yield self.factory
            raise
        confirmed = [
            (entry.confirmed_order, entry.sha256)
            for entry in entries
            if entry.confirmed_order is not None
            and entry.manifest.name == name
            and entry.sha256 not in without
        ]
        for _order, sha256 in sorted(confirmed, reverse=True):
            entry = self._verified_or_none(sha256)
            if entry is not None:
                yield entry.bundle
        if self.factory is not None:
            yield self.factory

    def confirm(self, sha256: str) -> None:
        """Mark an entry as proven; durable when this returns.

        Raises:
            BundleError: It is not there, or its manifest is damaged.
            StorageError: The disk refuses.
        """
        entry = self.find(sha256)
        orders = [other.confirmed_order or 0 for other in self.scan()[0]]
        newest = entry.confirmed_order is not None and entry.confirmed_order == max(orders)
        content = encode_marker(max(orders) + (not newest))
        try:
            fsops.write_durable(entry.folder / CONFIRMED_NAME, content, Point.CONFIRM)
        except OSError as error:
            raise storage_fault(error, f"bundle {sha256[:16]}… cannot be marked as confirmed") from error

    def collect(self, keep: Collection[str]) -> tuple[str, ...]:
        """Remove every entry but those to keep: all that either copy of a record names; what went.

        Raises:
            StorageError: The disk refuses; the rest goes the next time.
        """
        try:
            gone = [name for name in _names(self._store) if name not in keep]
        except OSError as error:
            raise storage_fault(error, f"{self._store} cannot be read") from error
        for name in gone:
            self._discard(name)
        return tuple(gone)

    def _discard(self, name: str) -> None:
        """Take an entry out in one rename, durably, before the first of its files goes (F8)."""
        self._hashed.pop(name, None)
        dead = self._store / f"{_DEAD}{name.removeprefix(_DEAD)}"
        try:
            if not name.startswith(_DEAD):
                fsops.remove_tree(dead, Point.COLLECT)
                fsops.rename(self._store / name, dead, Point.COLLECT)
                fsops.sync_folder(self._store, Point.COLLECT)
            fsops.remove_tree(dead, Point.COLLECT)
            fsops.sync_folder(self._store, Point.COLLECT)
        except OSError as error:
            raise storage_fault(error, f"store entry {name[:24]} cannot be removed") from error

    def _find_or_say(self, name: str) -> Entry | str:
        try:
            return self.find(name)
        except BundleError as error:
            return f"{name}: {error.cause}"

    def _verified_or_none(self, sha256: str) -> Entry | None:
        try:
            return self.verify(sha256, full=True)
        except BundleError:
            return None  # the next older one is tried; `scan` and `verify` say what is wrong


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _checked_sha256(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise InternalError(f"{sha256[:80]!r} is no SHA-256 in lower-case hex")
    return sha256


def _checked_id(update_id: str) -> str:
    if not _UPDATE_ID.fullmatch(update_id):
        raise InternalError(f"{update_id[:80]!r} is no update id")
    return update_id
