"""The update repository on disk: `metadata`, `targets`, `blobs` are served, `staged` waits for signatures.

What clients see hangs on `timestamp.json`: metadata and targets have a version or a hash in their names, and
so are there, durably, before anything points at them. Only root files are found by their number.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuf.api.exceptions import RepositoryError, UnsignedMetadataError
from tuf.api.metadata import Metadata, Root, Snapshot, TargetFile, Targets, Timestamp
from tuf.api.serialization import DeserializationError

from vedette import fsops
from vedette.errors import BadInputError, UnavailableError
from vedette_fleet.blob_files import BlobFolder
from vedette_fleet.roles import ROOT, SNAPSHOT, TARGETS, TIMESTAMP, delegated_roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

METADATA, TARGET_FILES, BLOBS = "metadata", "targets", "blobs"
SERVED = (METADATA, TARGET_FILES, BLOBS)
_STAGED = "staged"
_LOCK = ".lock"
_LOST_AND_FOUND = "lost+found"  # of a disk that is mounted there
_RESTORE_CURE = "restore the folder from a copy; what is served must be what was signed"


@dataclass(frozen=True)
class Published:
    """The repository as its clients see it. `root_before` is the version before `root`, None for the first.

    `roles` are `targets` and every delegated role, by name.
    """

    root: Metadata[Root]
    root_before: Metadata[Root] | None
    timestamp: Metadata[Timestamp]
    snapshot: Metadata[Snapshot]
    roles: dict[str, Metadata[Targets]]

    @property
    def targets(self) -> Targets:
        """Top-level targets."""
        return self.roles[TARGETS].signed


class TufRepository:
    """Reads and writes files; what they should say is decided elsewhere. Hold `locked` while editing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blobs = BlobFolder(path / BLOBS)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who edits.

        Raises:
            BadInputError: There is no repository.
            UnavailableError: Somebody else edits it now.
        """
        if not (self.path / METADATA).is_dir():
            raise BadInputError(
                f"no update repository at {self.path}",
                cure=f"name it with --repo, or make one: vedette-fleet init {self.path}",
            )
        descriptor = self._lock()
        try:
            yield
        finally:
            os.close(descriptor)

    def make_folders(self) -> None:
        """Make the folders that are missing.

        Raises:
            UnavailableError: They cannot be made.
        """
        try:
            missing = [folder for folder in (self.path, *self.path.parents) if not folder.is_dir()]
            served = [self.path / name for name in (*SERVED, _STAGED)]
            for folder in (*reversed(missing), *served):
                fsops.make_folder(folder, fsops.Point.PUBLISH)
        except OSError as error:
            raise UnavailableError(
                f"{self.path}: cannot be made: {error.strerror}", cure="check the folder above it"
            ) from error

    def strangers(self) -> list[str]:
        """Names in the folder that no repository has; none where there is no folder.

        Raises:
            UnavailableError: It cannot be read, or is no folder.
        """
        try:
            names = {path.name for path in self.path.iterdir()} if self.path.exists() else set()
        except OSError as error:
            raise UnavailableError(
                f"{self.path}: cannot be read: {error.strerror}", cure="name a folder"
            ) from error
        return sorted(names - {*SERVED, _STAGED, _LOCK, _LOST_AND_FOUND})

    def has_root(self) -> bool:
        """Whether root version 1 was published."""
        return (self.path / METADATA / f"1.{ROOT}.json").is_file()

    def is_complete(self) -> bool:
        """Whether the first publication was finished."""
        return self.has_root() and (self.path / METADATA / f"{TIMESTAMP}.json").is_file()

    def load_root(self) -> tuple[Metadata[Root], Metadata[Root] | None]:
        """The newest root and the one before it, the chain verified from the first.

        Raises:
            BadInputError: A root is missing, damaged, or not signed by the one before.
        """
        before: Metadata[Root] | None = None
        root: Metadata[Root] = self._load(f"1.{ROOT}", Root)
        _verify(root, ROOT, root)
        while (self.path / METADATA / f"{root.signed.version + 1}.{ROOT}.json").is_file():
            before, root = root, self._load(f"{root.signed.version + 1}.{ROOT}", Root)
            _verify(before, ROOT, root)
            _verify(root, ROOT, root)
        return root, before

    def load(self) -> Published:
        """Everything that is published now, verified except for expiry: an expired repository can be renewed.

        Raises:
            BadInputError: Something is missing, damaged or not signed.
        """
        root, before = self.load_root()
        timestamp: Metadata[Timestamp] = self._load(TIMESTAMP, Timestamp)
        _verify_either(root, before, TIMESTAMP, timestamp)
        snapshot: Metadata[Snapshot] = self._load(
            f"{timestamp.signed.snapshot_meta.version}.{SNAPSHOT}", Snapshot
        )
        _verify_either(root, before, SNAPSHOT, snapshot)
        versions = {name.removesuffix(".json"): meta.version for name, meta in snapshot.signed.meta.items()}
        if TARGETS not in versions:
            raise BadInputError("the snapshot does not list targets", cure=_RESTORE_CURE)
        roles: dict[str, Metadata[Targets]] = {}
        for role, version in versions.items():
            roles[role] = self._load(f"{version}.{role}", Targets)
        _verify_either(root, before, TARGETS, roles[TARGETS])
        for role in delegated_roles(roles[TARGETS].signed):
            if role not in roles:
                raise BadInputError(f"the snapshot does not list {role}", cure=_RESTORE_CURE)
            _verify(roles[TARGETS], role, roles[role])
        return Published(root, before, timestamp, snapshot, roles)

    def load_earlier(self, current: Published, role: str, version: int) -> Metadata[Targets]:
        """An earlier version of a delegated role, if the keys of today signed it.

        Raises:
            BadInputError: It is missing, damaged, or signed by other keys.
        """
        metadata: Metadata[Targets] = self._load(f"{version}.{role}", Targets)
        _verify(current.roles[TARGETS], role, metadata)
        return metadata

    def write_metadata(self, name: str, content: bytes) -> None:
        """Publish a metadata file, durably.

        Raises:
            UnavailableError: It cannot be written.
        """
        self._write(self.path / METADATA / f"{name}.json", content)

    def write_target(self, target: str, content: bytes) -> TargetFile:
        """Publish a target under its hash, durably; clients see it when signed metadata names it.

        Raises:
            UnavailableError: It cannot be written.
        """
        described = TargetFile.from_data(target, content, ["sha256"])
        path = self.path / TARGET_FILES / described.get_prefixed_paths()[0]
        try:
            folders = [folder for folder in path.parents if self.path / TARGET_FILES in folder.parents]
            for folder in reversed(folders):
                fsops.make_folder(folder, fsops.Point.PUBLISH)
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be written: {error.strerror}", cure="check space and mode"
            ) from error
        self._write(path, content)
        return described

    def read_target(self, described: TargetFile) -> bytes:
        """A published target, verified.

        Raises:
            BadInputError: It is missing or not what was signed.
        """
        path = self.path / TARGET_FILES / described.get_prefixed_paths()[0]
        try:
            content = path.read_bytes()
            described.verify_length_and_hashes(content)
        except (OSError, RepositoryError) as error:
            raise BadInputError(f"{path}: {_reason(error)}", cure=_RESTORE_CURE) from error
        return content

    def stage(self, name: str, content: bytes) -> Path:
        """Keep metadata that lacks signatures aside; not served.

        Raises:
            UnavailableError: It cannot be written.
        """
        path = self.path / _STAGED / f"{name}.json"
        self._write(path, content)
        return path

    def is_published(self, staged: Path) -> bool:
        """Whether a staged file was published as it is, before the work was cut off."""
        try:
            return (self.path / METADATA / staged.name).read_bytes() == staged.read_bytes()
        except OSError:
            return False

    def staged(self) -> list[Path]:
        """What waits for signatures."""
        return sorted((self.path / _STAGED).glob("*.json"))

    def unstage(self, paths: Iterable[Path]) -> None:
        """Remove staged files; one that is gone already does not matter.

        Raises:
            UnavailableError: It cannot be removed.
        """
        try:
            for path in set(paths) & set(self.staged()):
                fsops.unlink(path, fsops.Point.PUBLISH)
        except OSError as error:
            raise UnavailableError(
                f"{self.path / _STAGED}: cannot be emptied: {error.strerror}", cure="check its mode"
            ) from error

    def _lock(self) -> int:
        descriptor = -1
        try:
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise UnavailableError(
                f"another vedette-fleet edits {self.path} now", cure="try again when it is done"
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"{self.path}: cannot be edited: {error.strerror}", cure="check owner and mode"
            ) from error
        return descriptor

    def _write(self, path: Path, content: bytes) -> None:
        try:
            fsops.write_durable(path, content, fsops.Point.PUBLISH, mode=0o644)
        except OSError as error:
            raise UnavailableError(
                f"{path}: cannot be written: {error.strerror}", cure="check space and mode"
            ) from error

    def _load(self, name: str, kind: type[Any]) -> Metadata[Any]:
        path = self.path / METADATA / f"{name}.json"
        metadata = read_metadata(path, kind)
        number, dot, _ = name.partition(".")
        if dot and metadata.signed.version != int(number):
            raise BadInputError(f"{path}: says version {metadata.signed.version}", cure=_RESTORE_CURE)
        return metadata


def read_metadata(path: Path, kind: type[Any] | None = None) -> Metadata[Any]:
    """Read a metadata file; signatures are not looked at.

    Raises:
        BadInputError: It is missing or is not metadata of that kind.
    """
    try:
        metadata: Metadata[Any] = Metadata.from_bytes(path.read_bytes())
    except (OSError, DeserializationError) as error:
        raise BadInputError(f"{path}: no TUF metadata: {_reason(error)}", cure=_RESTORE_CURE) from error
    if kind is not None and not isinstance(metadata.signed, kind):
        raise BadInputError(f"{path}: holds {metadata.signed.type} metadata", cure=_RESTORE_CURE)
    return metadata


def _verify(delegator: Metadata[Any], role: str, metadata: Metadata[Any]) -> None:
    try:
        delegator.signed.verify_delegate(role, metadata.signed_bytes, metadata.signatures)
    except (UnsignedMetadataError, ValueError) as error:
        raise BadInputError(
            f"{role} version {metadata.signed.version} is not signed as it must be: {error}",
            cure=_RESTORE_CURE,
        ) from error


def _verify_either(
    root: Metadata[Root], before: Metadata[Root] | None, role: str, metadata: Metadata[Any]
) -> None:
    """A rotation that was cut short after the new root leaves signatures by the keys of the root before."""
    try:
        _verify(root, role, metadata)
    except BadInputError:
        if before is None:
            raise
        _verify(before, role, metadata)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
