"""The releases that are published: their names, manifests and descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.bundle.folder import SPEC_NAME, parse_spec
from vedette.bundle.labels import parse_labels
from vedette.errors import BadInputError, InternalError
from vedette.wire.release import parse_manifest
from vedette_fleet import roles as rules
from vedette_fleet.names import release_of_target
from vedette_fleet.release_changes import Described, describe

if TYPE_CHECKING:
    from vedette.wire.release import ReleaseFile, ReleaseManifest
    from vedette_fleet.names import ReleaseName
    from vedette_fleet.tuf_repository import Published, TufRepository


def all_releases(current: Published) -> list[ReleaseName]:
    """Every release that is published."""
    found = (release_of_target(target) for role in current.roles.values() for target in role.signed.targets)
    return [name for name in found if name is not None]


def read_release(repository: TufRepository, current: Published, name: ReleaseName) -> ReleaseManifest:
    """A published manifest.

    Raises:
        BadInputError: It is missing or damaged.
    """
    role = current.roles[rules.owner_role(name.owner)].signed
    try:
        return parse_manifest(repository.read_target(role.targets[name.target]))
    except ValueError as error:
        raise BadInputError(f"{name}: {error}", cure="restore the repository from a copy") from error


def releases_of(
    repository: TufRepository, current: Published, owner: str, model: str
) -> list[ReleaseManifest]:
    """The published manifests of one model, oldest first.

    Raises:
        BadInputError: One is missing or damaged.
    """
    names = [name for name in all_releases(current) if (name.owner, name.model) == (owner, model)]
    found = [read_release(repository, current, name) for name in names]
    if len({release.counter for release in found}) != len(found):
        raise InternalError(f"two releases of {owner}/{model} have the same counter")
    return sorted(found, key=lambda release: release.counter)


def described_release(repository: TufRepository, release: ReleaseManifest) -> Described:
    """What a published release answers, read from its blobs.

    Raises:
        BadInputError: A blob of it is gone or damaged.
    """
    spec = parse_spec(repository.blobs.read_file(_file(release, SPEC_NAME)))
    labels = spec.output.labels
    if labels is None:
        return describe(spec, ())
    return describe(spec, parse_labels(repository.blobs.read_file(_file(release, labels.file)), labels))


def _file(release: ReleaseManifest, path: str) -> ReleaseFile:
    for file in release.files:
        if file.path == path:
            return file
    raise BadInputError(
        f"{release.owner}/{release.name}@{release.version} has no {path}", cure="it was made by another tool"
    )
