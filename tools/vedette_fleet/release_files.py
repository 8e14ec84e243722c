"""Publish a bundle: encode its files, store the blobs durably, sign the manifest, and only then show it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vedette.bundle.folder import MAX_MODEL_BYTES, Bundle, load_bundle
from vedette.errors import BadInputError, UsageError
from vedette.wire.release import Encoding, EncodingKind, ReleaseFile, ReleaseManifest, build_manifest
from vedette_fleet import roles as rules
from vedette_fleet.names import ReleaseName, find_owner, release_name
from vedette_fleet.release import (
    DELTA_MIN_FILE_BYTES,
    LOWEST_AGENT,
    base_file,
    check_same,
    choose_bases,
    is_worthwhile,
    needs_of,
    next_counter,
)
from vedette_fleet.release_catalogue import all_releases, described_release, read_release, releases_of
from vedette_fleet.release_changes import changes_of, describe, is_other_task
from vedette_fleet.tuf_edit import Edit, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vedette.wire.release import Codec
    from vedette_fleet.tuf_ceremonies import Workshop
    from vedette_fleet.tuf_repository import Published


class Encoder(Protocol):
    """Makes blobs of files; the same bytes always give the same blob."""

    def full(self, new: bytes) -> tuple[Codec, bytes]:
        """A blob that stands alone."""
        ...

    def delta(self, old: bytes, new: bytes) -> tuple[Codec, bytes] | None:
        """The smallest blob that makes `new` of `old`; None when that cannot be done."""
        ...


@dataclass(frozen=True)
class Request:
    """What the operator asks for; `bases` None means the last three, empty means no deltas.

    `allow_other_task` is for a version whose answers are of another kind than those of the one before.
    """

    bundle: Path
    owner: str | None = None
    bases: tuple[str, ...] | None = None
    arch: tuple[str, ...] = ()
    agent: str = LOWEST_AGENT
    allow_other_task: bool = False


@dataclass(frozen=True)
class Released:
    """A release as it is in the repository; `outcome` None when it was there already.

    `changes` are what it changes of the version before, for people; `repaired` the blobs that were put back.
    """

    name: ReleaseName
    manifest: ReleaseManifest
    bases: tuple[ReleaseManifest, ...]
    outcome: Outcome | None
    changes: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()


class Publisher:
    """Publishes bundles to one repository; `report` is told each step, how many are done, and of how many."""

    def __init__(self, workshop: Workshop, encoder: Encoder, report: Callable[[str, int, int], None]) -> None:
        self._workshop = workshop
        self._repository = workshop.repository
        self._encoder = encoder
        self._report = report

    def release(self, request: Request) -> Released:
        """Publish; what is cut short is finished by asking for the same again.

        Raises:
            BundleError: The bundle is not whole or not right.
            UsageError: An owner or base that does not exist, or an edit waits for signatures.
            BadInputError: The version exists with other content, a base's blobs are gone (casebook 38), or
                its task is another one than that of the version before.
            UnavailableError: The disk; what was served before is still whole.
        """
        bundle = load_bundle(request.bundle)
        with self._repository.locked():
            current = self._repository.load()
            owner = self._owner(current, request.owner)
            if owner not in rules.owners(current.targets):
                if not self._workshop.add_owner(owner).published:
                    raise UsageError(
                        f"owner {owner} is not admitted yet: the key of targets is not here",
                        cure="sign what is in `staged` (keys sign, keys publish), then release again",
                    )
                current = self._repository.load()
            name = release_name(owner, bundle.spec.name, bundle.spec.version)
            known = releases_of(self._repository, current, owner, bundle.spec.name)
            existing = next((release for release in known if release.version == name.version), None)
            if existing is not None:
                check_same(existing, bundle.sha256, request.bases)
                return self._restore(bundle, name, existing, known)
            self._workshop.publication().staging.check_room(current, {rules.owner_role(owner)})
            bases = choose_bases(known, request.bases)
            everybodys = self._everybodys(current, name.model)
            changes = self._compare(bundle, everybodys, request)
            manifest = self._manifest(bundle, name, next_counter(everybodys), bases, request)
            return Released(name, manifest, bases, self._sign(current, name, manifest), changes)

    def _owner(self, current: Published, wanted: str | None) -> str:
        known = rules.owners(current.targets)
        if wanted is not None and not known:
            return wanted  # the first owner needs no ceremony of its own
        return find_owner(wanted, known)

    def _everybodys(self, current: Published, model: str) -> list[ReleaseManifest]:
        """The releases of a model by all owners: devices compare counters by the model's name alone."""
        names = [name for name in all_releases(current) if name.model == model]
        return [read_release(self._repository, current, name) for name in names]

    def _compare(
        self, bundle: Bundle, releases: Sequence[ReleaseManifest], request: Request
    ) -> tuple[str, ...]:
        """What this version changes of the one before; refuses another task unless it is meant."""
        if not releases:
            return ()
        last = max(releases, key=lambda release: release.counter)
        try:
            before = described_release(self._repository, last)
        except BadInputError as error:
            if not request.allow_other_task:
                raise
            return (f"not compared with version {last.version}: {error.cause}",)
        after = describe(bundle.spec, bundle.labels)
        if is_other_task(before, after) and not request.allow_other_task:
            raise BadInputError(
                f"{bundle.spec.name}@{after.version} is a `{after.task}` model, and {last.owner}/{last.name}@"
                f"{last.version} is a `{before.task}` model: whoever reads the answers would not know them",
                cure="give it another `name` in model.yaml and seal it anew, or insist: --allow-other-task",
            )
        return changes_of(before, after)

    def _manifest(
        self,
        bundle: Bundle,
        name: ReleaseName,
        counter: int,
        bases: Sequence[ReleaseManifest],
        request: Request,
    ) -> ReleaseManifest:
        return ReleaseManifest(
            schema=1,
            owner=name.owner,
            name=name.model,
            version=name.version,
            counter=counter,
            bundle_sha256=bundle.sha256,
            files=self._encode_all(bundle, bases),
            needs=needs_of(bundle.spec, bundle.onnx, arch=request.arch, agent=request.agent),
            other_task=request.allow_other_task,
        )

    def _encode_all(self, bundle: Bundle, bases: Sequence[ReleaseManifest]) -> tuple[ReleaseFile, ...]:
        paths = sorted(bundle.files)  # devices write the list of checksums themselves
        starts = {path: _starts(path, bases, paths) for path in paths}
        steps = len(paths) + sum(len(found) for found in starts.values())
        done = 0
        files: list[ReleaseFile] = []
        for path in paths:
            content = bundle.read(path, MAX_MODEL_BYTES)
            sha256 = hashlib.sha256(content).hexdigest()
            self._report(f"{path}: full", done, steps)
            done += 1
            encodings = [self._encode_full(content)]
            for old, version in starts[path]:
                self._report(f"{path}: delta from {version}", done, steps)
                done += 1
                if old.sha256 != sha256 and len(content) >= DELTA_MIN_FILE_BYTES:
                    encodings += self._encode_delta(old, content, encodings[0].size_bytes)
            files.append(ReleaseFile(path, sha256, len(content), tuple(encodings)))
        self._report("signing", steps, steps)
        return tuple(files)

    def _encode_full(self, content: bytes) -> Encoding:
        codec, blob = self._encoder.full(content)
        return Encoding(EncodingKind.FULL, codec, self._repository.blobs.put(blob), len(blob))

    def _encode_delta(self, old: ReleaseFile, content: bytes, full_bytes: int) -> list[Encoding]:
        """One delta, or none when it saves too little."""
        delta = self._encoder.delta(self._repository.blobs.read_file(old), content)
        if delta is None or not is_worthwhile(len(delta[1]), full_bytes):
            return []
        codec, blob = delta
        sha256 = self._repository.blobs.put(blob)
        return [Encoding(EncodingKind.DELTA, codec, sha256, len(blob), base_sha256=old.sha256)]

    def _sign(self, current: Published, name: ReleaseName, manifest: ReleaseManifest) -> Outcome:
        role = rules.owner_role(name.owner)
        described = self._repository.write_target(name.target, build_manifest(manifest))
        signed = rules.successor(current.roles[role].signed, role, self._workshop.now)
        signed.targets[name.target] = described
        return self._workshop.publication().publish(current, Edit(roles={role: signed}))

    def _restore(
        self, bundle: Bundle, name: ReleaseName, existing: ReleaseManifest, known: list[ReleaseManifest]
    ) -> Released:
        """Put back blobs of a signed release that are gone or damaged, if they come out the same again."""
        bases = tuple(base for base in known if base.counter < existing.counter)
        held = {file.sha256: file for base in bases for file in base.files}
        lost: list[str] = []
        repaired: list[str] = []
        for file in existing.files:
            for item in file.encodings:
                fault = self._repository.blobs.fault(item)
                if fault is None:
                    continue
                content = bundle.read(file.path, MAX_MODEL_BYTES)
                self._report(f"{file.path}: {item.kind.value} again", 0, 1)
                blob = self._encode_again(item, content, held)
                if hashlib.sha256(blob).hexdigest() == item.sha256:
                    self._repository.blobs.put(blob)
                    repaired.append(f"{file.path} ({item.kind.value}): {fault}")
                else:
                    lost.append(f"{file.path} ({item.kind.value}): {fault}")
        if lost:
            raise BadInputError(
                f"{name} is signed, but blobs of it are bad and come out differently now: {'; '.join(lost)}",
                cure="restore them from a copy of the repository, or release the bundle under a new version",
            )
        return Released(name, existing, _used(existing, bases), None, repaired=tuple(repaired))

    def _encode_again(self, item: Encoding, content: bytes, held: dict[str, ReleaseFile]) -> bytes:
        if item.base_sha256 is None:
            return self._encoder.full(content)[1]
        made = self._encoder.delta(self._repository.blobs.read_file(held[item.base_sha256]), content)
        return b"" if made is None else made[1]


def _starts(
    path: str, bases: Sequence[ReleaseManifest], paths: Sequence[str]
) -> list[tuple[ReleaseFile, str]]:
    """The different files that deltas to `path` start from, with the version that has each."""
    found: dict[str, tuple[ReleaseFile, str]] = {}
    for base in bases:
        old = base_file(path, base, paths)
        if old is not None:
            found.setdefault(old.sha256, (old, base.version))
    return list(found.values())


def _used(release: ReleaseManifest, earlier: Sequence[ReleaseManifest]) -> tuple[ReleaseManifest, ...]:
    """The earlier releases from which at least one delta starts, newest first."""
    starts = {item.base_sha256 for file in release.files for item in file.encodings}
    used = [base for base in earlier if any(file.sha256 in starts for file in base.files)]
    return tuple(sorted(used, key=lambda base: base.counter, reverse=True))
