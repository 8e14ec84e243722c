"""What goes into a release: which bases, which encodings, what it needs, and the table that tells. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.errors import BadInputError, UsageError
from vedette.wire.release import Codec, EncodingKind, ReleaseFile, ReleaseManifest, ReleaseNeeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vedette.bundle.onnxfile import OnnxModel
    from vedette.wire.bundle import ModelSpec

DEFAULT_BASES = 3
# A device takes the whole file when a delta saves less than this, so a worse one is not worth its blob.
DELTA_WORTH = 0.8
# Of a smaller file a delta saves less than asking for it costs.
DELTA_MIN_FILE_BYTES = 4096
# The lowest agent that reads this manifest and applies every codec named in it.
LOWEST_AGENT = "0.1.0"


def needs_of(
    spec: ModelSpec, onnx: OnnxModel | None, *, arch: Sequence[str] = (), agent: str = LOWEST_AGENT
) -> ReleaseNeeds:
    """What a box must have (casebook 64); an ONNX file's own opset where `model.yaml` promises none."""
    opset = spec.requires.opset
    if onnx is not None and opset is None:
        own = onnx.opsets.get("", 1)
        opset = (own, own)
    return ReleaseNeeds(
        engine=spec.engine.value,
        runtime=spec.requires.runtime,
        opset=opset,
        arch=tuple(arch),
        accelerators=spec.requires.accelerators,
        memory_mb=spec.requires.memory_mb,
        agent=agent,
    )


def next_counter(releases: Iterable[ReleaseManifest]) -> int:
    """The counter of a model's next release."""
    return 1 + max((release.counter for release in releases), default=0)


def choose_bases(
    releases: Sequence[ReleaseManifest], named: Sequence[str] | None
) -> tuple[ReleaseManifest, ...]:
    """The releases that deltas are made from, newest first: those named, else the last three.

    Raises:
        UsageError: One that is named does not exist.
    """
    newest_first = sorted(releases, key=lambda release: release.counter, reverse=True)
    if named is None:
        return tuple(newest_first[:DEFAULT_BASES])
    known = {release.version: release for release in newest_first}
    for version in named:
        if version not in known:
            shown = ", ".join(known) or "none"
            raise UsageError(
                f"--base {version}: no such release of this model", cure=f"releases, newest first: {shown}"
            )
    return tuple(release for release in newest_first if release.version in named)


def base_file(path: str, base: ReleaseManifest, new_paths: Iterable[str]) -> ReleaseFile | None:
    """The file of a base that a delta starts from: of the same name, or the only renamed one of its kind."""
    by_path = {file.path: file for file in base.files}
    if path in by_path:
        return by_path[path]
    suffix = posixpath.splitext(path)[1]
    here = set(new_paths)
    renamed_new = [new for new in here - by_path.keys() if posixpath.splitext(new)[1] == suffix]
    renamed_old = [old for old in by_path.keys() - here if posixpath.splitext(old)[1] == suffix]
    return by_path[renamed_old[0]] if len(renamed_new) == len(renamed_old) == 1 else None


def is_worthwhile(delta_bytes: int, full_bytes: int) -> bool:
    """Whether devices would use a delta of that size."""
    return delta_bytes <= DELTA_WORTH * full_bytes


def full_bytes(file: ReleaseFile) -> int:
    """Size of the smallest blob that stands alone."""
    return min(item.size_bytes for item in file.encodings if item.kind is EncodingKind.FULL)


def check_same(existing: ReleaseManifest, bundle_sha256: str, named: Sequence[str] | None) -> None:
    """A version is published once: the same bundle again changes nothing, another one is refused.

    Raises:
        BadInputError: Other content under a version that devices may have.
        UsageError: Bases were named for a release that is signed already.
    """
    version = existing.version
    if existing.bundle_sha256 != bundle_sha256:
        raise BadInputError(
            f"{existing.owner}/{existing.name}@{version} exists with other content: bundle "
            f"{existing.bundle_sha256[:12]}…, this one is {bundle_sha256[:12]}…",
            cure="give the bundle a new `version` in model.yaml and seal it anew",
        )
    if named is not None:
        raise UsageError(
            f"{existing.owner}/{existing.name}@{version} is signed already; its deltas cannot change",
            cure="leave --base away, or release the bundle under a new version",
        )


@dataclass(frozen=True)
class Row:
    """A line of the table: what one file costs in one encoding; `base` is a version, empty for a full one."""

    path: str
    kind: str
    codec: str
    base: str
    blob_bytes: int
    file_bytes: int

    @property
    def share(self) -> float:
        """Blob over file."""
        return self.blob_bytes / self.file_bytes if self.file_bytes else 1.0


@dataclass(frozen=True)
class Journey:
    """What a device fetches in all; `base` is what it has, empty for nothing."""

    base: str
    fetched_bytes: int
    bundle_bytes: int

    @property
    def share(self) -> float:
        """Fetched over the bundle's size."""
        return self.fetched_bytes / self.bundle_bytes if self.bundle_bytes else 1.0


def rows_of(release: ReleaseManifest, bases: Sequence[ReleaseManifest]) -> list[Row]:
    """Every encoding of every file, and what needs no byte because a base has it."""
    rows: list[Row] = []
    for file in release.files:
        for item in file.encodings:
            base = ""
            if item.base_sha256 is not None:
                holders = [
                    known.version
                    for known in bases
                    if any(old.sha256 == item.base_sha256 for old in known.files)
                ]
                base = ", ".join(holders) or f"{item.base_sha256[:12]}…"
            rows.append(
                Row(file.path, item.kind.value, item.codec.value, base, item.size_bytes, file.size_bytes)
            )
        same = [known.version for known in bases if any(old.sha256 == file.sha256 for old in known.files)]
        if same:
            rows.append(Row(file.path, "same", Codec.RAW.value, ", ".join(same), 0, file.size_bytes))
    return rows


def journeys_of(release: ReleaseManifest, bases: Sequence[ReleaseManifest]) -> list[Journey]:
    """What a new device fetches, and one that has each of the bases."""
    total = sum(file.size_bytes for file in release.files)
    journeys = [Journey("", sum(full_bytes(file) for file in release.files), total)]
    for base in bases:
        held = {file.sha256 for file in base.files}
        fetched = 0
        for file in release.files:
            if file.sha256 in held:
                continue
            deltas = [item.size_bytes for item in file.encodings if item.base_sha256 in held]
            fetched += min([full_bytes(file), *deltas])
        journeys.append(Journey(base.version, fetched, total))
    return journeys
