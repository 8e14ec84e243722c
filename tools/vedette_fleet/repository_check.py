"""Read a whole repository as devices would, to the last blob, and tell everything that is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuf.api.exceptions import RepositoryError

from vedette.errors import BadInputError
from vedette_fleet.release_catalogue import all_releases, read_release
from vedette_fleet.roles import SNAPSHOT, TIMESTAMP
from vedette_fleet.rollout_files import load_rollouts
from vedette_fleet.tuf_repository import METADATA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuf.api.metadata import MetaFile

    from vedette.wire.release import Encoding
    from vedette_fleet.tuf_ceremonies import Expiry, Workshop
    from vedette_fleet.tuf_repository import Published, TufRepository


@dataclass(frozen=True)
class Problem:
    """Something that devices would stumble over."""

    where: str
    what: str
    cure: str | None


@dataclass(frozen=True)
class Checked:
    """What was looked at, and what is wrong; when the metadata is, nothing behind it was looked at."""

    expiries: tuple[Expiry, ...]
    releases: int
    blobs: int
    blob_bytes: int
    problems: tuple[Problem, ...]


def check_repository(workshop: Workshop, report: Callable[[str, int, int], None]) -> Checked:
    """Check the metadata chain, expiries, the rollout document, every manifest and every blob.

    `report` is told what is read, how many are done, and of how many. Nothing is written, no key is needed.

    Raises:
        BadInputError: There is no repository.
    """
    repository = workshop.repository
    if not repository.has_root():
        raise BadInputError(f"no update repository at {repository.path}", cure="name its folder")
    report("metadata", 0, 1)
    try:
        current = repository.load()
        expiries = tuple(workshop.expiries())
    except BadInputError as error:
        return Checked((), 0, 0, 0, (Problem("metadata", error.cause, error.cure),))
    problems = [
        Problem(
            entry.role,
            f"version {entry.version} expired {entry.expires:%Y-%m-%d %H:%M} UTC; no device begins an update",
            f"vedette-fleet refresh --role {entry.role}",
        )
        for entry in expiries
        if entry.expires <= workshop.now
    ]
    problems += _metadata_problems(repository, current)
    problems += _rollout_problems(repository, current)
    releases, blobs, found = _release_blobs(repository, current)
    problems += found
    for done, (sha256, (users, item)) in enumerate(blobs.items()):
        report(f"blob {sha256[:12]}", done, len(blobs))
        fault = repository.blobs.fault(item)
        if fault is not None:
            cure = "release its bundle again, which repairs it, or bring it back from a copy"
            problems.append(Problem(users, f"blob {sha256} {fault}", cure))
    total_bytes = sum(item.size_bytes for _, item in blobs.values())
    return Checked(expiries, releases, len(blobs), total_bytes, tuple(problems))


def _metadata_problems(repository: TufRepository, current: Published) -> Iterator[Problem]:
    """Signatures and roots were verified by loading; the rest is that each file is what is listed of it."""
    listed: list[tuple[str, str, MetaFile]] = [(TIMESTAMP, SNAPSHOT, current.timestamp.signed.snapshot_meta)]
    for name, meta in current.snapshot.signed.meta.items():
        listed.append((SNAPSHOT, name.removesuffix(".json"), meta))
    for above, role, meta in listed:
        path = repository.path / METADATA / f"{meta.version}.{role}.json"
        try:
            meta.verify_length_and_hashes(path.read_bytes())
        except (OSError, RepositoryError) as error:
            cure = f"restore it from a copy, or sign it anew: vedette-fleet refresh --role {role}"
            yield Problem(role, f"{path.name} is not what {above} lists: {error}", cure)


def _rollout_problems(repository: TufRepository, current: Published) -> Iterator[Problem]:
    try:
        plan = load_rollouts(repository).plan
    except BadInputError as error:
        yield Problem("rollouts", error.cause, error.cure)
        return
    signed = {
        target: described.hashes.get("sha256")
        for role in current.roles.values()
        for target, described in role.signed.targets.items()
    }
    for rollout in plan.document.rollouts:
        if not rollout.withdrawn and signed.get(rollout.target) != rollout.sha256:
            what = f"{rollout.target} is not signed by its owner as the rollout names it"
            yield Problem(f"rollout {rollout.id}", what, f"vedette-fleet rollout abort {rollout.id}")


def _release_blobs(
    repository: TufRepository, current: Published
) -> tuple[int, dict[str, tuple[str, Encoding]], list[Problem]]:
    """How many releases there are, the blobs that they name, with one release and file of each."""
    problems: list[Problem] = []
    blobs: dict[str, tuple[str, Encoding]] = {}
    names = all_releases(current)
    for name in names:
        try:
            manifest = read_release(repository, current, name)
        except BadInputError as error:
            problems.append(Problem(str(name), error.cause, error.cure))
            continue
        if (manifest.owner, manifest.name, manifest.version) != name:
            problems.append(
                Problem(
                    str(name), "its manifest is of another release", f"vedette-fleet rollout withdraw {name}"
                )
            )
        for file in manifest.files:
            for item in file.encodings:
                blobs.setdefault(item.sha256, (f"{name} {file.path} ({item.kind.value})", item))
    return len(names), blobs, problems
