"""The release manifest: what a release is, signed by the owner of the model. Pure.

Target `models/<owner>/<name>/<version>.json` of the update repository. The manifest lists the bundle's files;
for each file one or more encodings, each a content-addressed blob `blobs/<sha256>` that needs no signature of
its own. Reproducible: the same bundle gives the same bytes, so no time and no host stands in it.
"""

from __future__ import annotations

import re
from enum import Enum

import msgspec

MAX_MANIFEST_BYTES = 1 << 20
MAX_FILE_BYTES = 1 << 31
_SHA256 = re.compile(r"[0-9a-f]{64}")


class EncodingKind(str, Enum):
    """Whether a blob stands alone."""

    FULL = "full"
    DELTA = "delta"


class Codec(str, Enum):
    """How a blob becomes the file."""

    RAW = "raw"  # the file itself
    ZSTD = "zstd"
    BSDIFF4 = "bsdiff4"
    TENSOR = "tensor"


class Encoding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to get a file; hash and size are of the blob, `base_sha256` of the file it patches."""

    kind: EncodingKind
    codec: Codec
    sha256: str
    size_bytes: int
    base_sha256: str | None = None


class ReleaseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the bundle, named relative to its folder."""

    path: str
    sha256: str
    size_bytes: int
    encodings: tuple[Encoding, ...]


class ReleaseNeeds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a box must have; every field must be there, a missing one refuses (casebook 64).

    `arch` are `platform.machine()` names, empty for any; so are `accelerators`. `opset` null for TFLite.
    """

    engine: str
    runtime: str
    opset: tuple[int, int] | None
    arch: tuple[str, ...]
    accelerators: tuple[str, ...]
    memory_mb: int
    agent: str


class ReleaseManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A release; `counter` orders the releases of one model and never goes back on a device.

    `other_task`: its owner means it to answer in another kind than the model that it replaces.
    """

    schema: int
    owner: str
    name: str
    version: str
    counter: int
    bundle_sha256: str
    files: tuple[ReleaseFile, ...]
    needs: ReleaseNeeds
    other_task: bool = False


class ManifestError(ValueError):
    """A manifest that is malformed or contradicts itself."""


def parse_manifest(raw: bytes) -> ReleaseManifest:
    """Read a manifest strictly.

    Raises:
        ManifestError: Not JSON of this schema, too large, or a value that cannot be right.
    """
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ManifestError(f"release manifest of {len(raw)} bytes; {MAX_MANIFEST_BYTES} is the limit")
    try:
        manifest = msgspec.json.decode(raw, type=ReleaseManifest)
    except msgspec.DecodeError as error:
        raise ManifestError(f"release manifest: {error}") from error
    _check(manifest)
    return manifest


def build_manifest(manifest: ReleaseManifest) -> bytes:
    """Write a manifest; equal manifests give equal bytes.

    Raises:
        ManifestError: It contradicts itself.
    """
    _check(manifest)
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def _check(manifest: ReleaseManifest) -> None:
    if manifest.schema != 1:
        raise ManifestError(f"release manifest has schema {manifest.schema}; this agent reads 1")
    if manifest.counter < 1:
        raise ManifestError("release counter must be 1 or more")
    paths = [file.path for file in manifest.files]
    if not paths or len(set(paths)) != len(paths):
        raise ManifestError("release files are missing or named twice")
    _check_sha256(manifest.bundle_sha256, "bundle_sha256")
    for file in manifest.files:
        if (
            file.path.startswith("/")
            or "\\" in file.path
            or ".." in file.path.split("/")
            or "\0" in file.path
        ):
            raise ManifestError(f"release file {file.path!r} is no relative path inside the bundle")
        _check_sha256(file.sha256, file.path)
        if not 0 <= file.size_bytes <= MAX_FILE_BYTES:
            raise ManifestError(f"release file {file.path!r} claims {file.size_bytes} bytes")
        if not any(encoding.kind is EncodingKind.FULL for encoding in file.encodings):
            raise ManifestError(f"release file {file.path!r} has no full encoding (casebook 38)")
        for encoding in file.encodings:
            _check_encoding(file, encoding)


def _check_encoding(file: ReleaseFile, encoding: Encoding) -> None:
    _check_sha256(encoding.sha256, file.path)
    delta = encoding.kind is EncodingKind.DELTA
    if delta != (encoding.base_sha256 is not None) or delta != (
        encoding.codec in {Codec.BSDIFF4, Codec.TENSOR}
    ):
        raise ManifestError(
            f"release file {file.path!r}: a {encoding.kind.value} encoding with {encoding.codec.value}"
        )
    if encoding.base_sha256 is not None:
        _check_sha256(encoding.base_sha256, file.path)
    if not 0 <= encoding.size_bytes <= 2 * file.size_bytes + 65536:
        raise ManifestError(f"release file {file.path!r}: a blob of {encoding.size_bytes} bytes")


def _check_sha256(text: str, what: str) -> None:
    if not _SHA256.fullmatch(text):
        raise ManifestError(f"{what}: {text[:80]!r} is no SHA-256 in lower-case hex")
