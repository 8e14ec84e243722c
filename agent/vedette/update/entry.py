"""One entry of the store: a bundle, its release manifest, and whether it proved itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from vedette.bundle import disk
from vedette.errors import BundleError
from vedette.wire.release import MAX_MANIFEST_BYTES, ManifestError, ReleaseManifest, build_manifest

if TYPE_CHECKING:
    from pathlib import Path

BUNDLE_NAME = "bundle"
META_NAME = "META.json"
CONFIRMED_NAME = "CONFIRMED"
MAX_META_BYTES = 2 * MAX_MANIFEST_BYTES

FileStamp = tuple[str, int, int, int, int, int]


class _Marker(msgspec.Struct, frozen=True):
    """What CONFIRMED holds."""

    order: int


@dataclass(frozen=True)
class Entry:
    """A bundle in the store; `confirmed_order` grows with each confirmation, None before the first."""

    folder: Path
    manifest: ReleaseManifest
    confirmed_order: int | None

    @property
    def sha256(self) -> str:
        """The digest of the bundle, and the name of the entry."""
        return self.manifest.bundle_sha256

    @property
    def bundle(self) -> Path:
        """The folder that an engine loads."""
        return self.folder / BUNDLE_NAME

    def stamps(self) -> tuple[FileStamp, ...]:
        """What changes when somebody touches a file: device, inode, size, times in nanoseconds.

        Raises:
            BundleError: The folder cannot be read.
        """
        try:
            found = [(name, (self.bundle / name).stat()) for name in sorted(disk.list_files(self.bundle))]
        except OSError as error:
            raise BundleError(f"{self.bundle}: {error.strerror}", cure="it is not used") from error
        return tuple(
            (name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            for name, stat in found
        )


class _Meta(msgspec.Struct, frozen=True):
    """What META.json holds; the digest is of the manifest's canonical bytes, and shows rot."""

    manifest_sha256: str
    manifest: ReleaseManifest


def encode_meta(manifest: ReleaseManifest) -> bytes:
    """The content of META.json."""
    digest = hashlib.sha256(build_manifest(manifest)).hexdigest()
    return msgspec.json.format(msgspec.json.encode(_Meta(digest, manifest)), indent=1) + b"\n"


def decode_meta(content: bytes) -> ReleaseManifest:
    """The manifest in a META.json.

    Raises:
        ManifestError: It is damaged.
    """
    try:
        meta = msgspec.json.decode(content, type=_Meta)
    except msgspec.DecodeError as error:
        raise ManifestError(f"{META_NAME}: {error}") from error
    raw = build_manifest(meta.manifest)
    if hashlib.sha256(raw).hexdigest() != meta.manifest_sha256:
        raise ManifestError(f"{META_NAME}: not what was written")
    return meta.manifest


def encode_marker(order: int) -> bytes:
    """The content of CONFIRMED."""
    return msgspec.json.encode(_Marker(order))


def read_entry(folder: Path) -> Entry:
    """An entry from its folder, which is named by the bundle's digest; the bundle is not looked at.

    Raises:
        BundleError: It is not there, or its manifest is damaged.
    """
    label = folder.name[:16]
    try:
        manifest = decode_meta(disk.read_file(folder, META_NAME, MAX_META_BYTES))
    except ManifestError as error:
        raise BundleError(f"store entry {label}…: {error}", cure="it is not used") from error
    if manifest.bundle_sha256 != folder.name:
        raise BundleError(f"store entry {label}… holds the manifest of another bundle", cure="it is not used")
    return Entry(folder, manifest, _confirmed_order(folder))


def _confirmed_order(folder: Path) -> int | None:
    try:
        return msgspec.json.decode((folder / CONFIRMED_NAME).read_bytes(), type=_Marker).order
    except (OSError, msgspec.DecodeError):
        return None  # a marker that cannot be read proves nothing
