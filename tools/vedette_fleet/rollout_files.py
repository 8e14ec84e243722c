"""Read the rollout document from the repository, and publish an edit of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.errors import BadInputError, UsageError
from vedette.wire.rollout import RolloutDocument, parse_rollouts
from vedette_fleet import roles as rules
from vedette_fleet.names import find_release
from vedette_fleet.release_catalogue import all_releases, read_release, releases_of
from vedette_fleet.roles import ROLLOUTS, ROLLOUTS_TARGET
from vedette_fleet.rollout import Release
from vedette_fleet.rollout_plan import Plan, issue, recover_plan, restore_plan
from vedette_fleet.tuf_edit import Edit, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuf.api.metadata import Metadata, Targets

    from vedette_fleet.names import ReleaseName
    from vedette_fleet.tuf_ceremonies import Workshop
    from vedette_fleet.tuf_repository import Published, TufRepository


_REPAIR_CURE = (
    "bring the file back from a copy, or publish the last version that can be read: "
    "vedette-fleet rollout repair"
)


@dataclass(frozen=True)
class Rollouts:
    """The rollouts of one repository as published."""

    repository: TufRepository
    current: Published
    plan: Plan

    def release(self, text: str) -> Release:
        """The release that people mean by `[owner/]model@version`.

        Raises:
            UsageError: None, or more than one.
            BadInputError: Its manifest is damaged.
        """
        return self._describe(find_release(text, all_releases(self.current)))

    def before(self, target: str) -> Release | None:
        """The release that came before another one of the same model and owner and was not withdrawn."""
        name = next(known for known in all_releases(self.current) if known.target == target)
        older = [
            (release.counter, release.version)
            for release in releases_of(self.repository, self.current, name.owner, name.model)
        ]
        counter = next(number for number, version in older if version == name.version)
        for _, version in sorted((pair for pair in older if pair[0] < counter), reverse=True):
            found = name._replace(version=version)
            if found.target not in self.plan.withdrawn:
                return self._describe(found)
        return None

    def counters(self) -> dict[str, int]:
        """Release counter by target, of every release."""
        names = all_releases(self.current)
        return {name.target: read_release(self.repository, self.current, name).counter for name in names}

    def _describe(self, name: ReleaseName) -> Release:
        role = self.current.roles[rules.owner_role(name.owner)].signed
        manifest = read_release(self.repository, self.current, name)
        return Release(name.target, name.model, role.targets[name.target].hashes["sha256"], manifest.counter)


@dataclass(frozen=True)
class Repaired:
    """What `repair_rollouts` went back to: a version of the role, 0 for none; and what was lost by it."""

    plan: Plan
    outcome: Outcome
    version: int
    unreadable: int
    gone: tuple[str, ...]
    paused: bool


class _DamagedError(BadInputError):
    """The published file is not what was signed; devices may have seen the true one."""


def load_rollouts(repository: TufRepository) -> Rollouts:
    """What is published now.

    Raises:
        BadInputError: The repository or the document is damaged.
    """
    current = repository.load()
    return Rollouts(repository, current, _read_plan(repository, current.roles[ROLLOUTS]))


def edit_rollouts(workshop: Workshop, change: Callable[[Rollouts], Plan]) -> tuple[Plan, Outcome]:
    """Apply an edit, sign it and publish it.

    Raises:
        UsageError: The edit makes no sense, devices could not read it, or another one waits for signatures.
        BadInputError: The repository is damaged.
        UnavailableError: The disk, or somebody else edits now.
    """
    with workshop.repository.locked():
        before = load_rollouts(workshop.repository)
        plan = change(before)
        return plan, _publish(workshop, before.current, plan)


def repair_rollouts(workshop: Workshop, *, empty: bool) -> Repaired:
    """Publish again the last version that can be read and that today's keys signed; `empty` starts afresh.

    Raises:
        UsageError: The published document can be read.
        BadInputError: No earlier version can be used, or the repository is damaged.
        UnavailableError: The disk, or somebody else edits now.
    """
    repository = workshop.repository
    with repository.locked():
        current = repository.load()
        published = current.roles[ROLLOUTS]
        damaged = False
        try:
            _read_plan(repository, published)
        except _DamagedError:
            damaged = True
        except BadInputError:
            pass
        else:
            raise UsageError("the rollout document can be read", cure="see: vedette-fleet rollout status")
        version, before, lost = _last_readable(repository, current, empty=empty)
        plan, gone = recover_plan(before, lost, paused=damaged)
        outcome = _publish(workshop, current, plan)
        return Repaired(plan, outcome, version, published.signed.version, gone, damaged)


def _last_readable(
    repository: TufRepository, current: Published, *, empty: bool
) -> tuple[int, Plan, list[object]]:
    """Version and plan to go back to, and the custom data of those passed over."""
    published = current.roles[ROLLOUTS]
    lost: list[object] = [_custom(published)]
    for version in range(published.signed.version - 1, 0, -1):
        try:
            older = repository.load_earlier(current, ROLLOUTS, version)
            if not empty:
                return version, _read_plan(repository, older), lost
        except BadInputError:
            continue
        lost.append(_custom(older))
    if empty:
        return 0, Plan(RolloutDocument(1, 0, 0, ()), {}), lost
    raise BadInputError(
        "no earlier rollout document in the repository can be read and is signed by today's rollouts key",
        cure="restore it from a copy, or forget all rollouts: vedette-fleet rollout repair --empty",
    )


def _publish(workshop: Workshop, current: Published, plan: Plan) -> Outcome:
    role = rules.successor(current.roles[ROLLOUTS].signed, ROLLOUTS, workshop.now)
    publication = workshop.publication()
    publication.staging.check_room(current, {ROLLOUTS})
    content, custom = issue(plan, version=role.version, issued_utc=int(workshop.now.timestamp()))
    described = workshop.repository.write_target(ROLLOUTS_TARGET, content)
    described.unrecognized_fields["custom"] = custom
    role.targets[ROLLOUTS_TARGET] = described
    return publication.publish(current, Edit(roles={ROLLOUTS: role}))


def _read_plan(repository: TufRepository, role: Metadata[Targets]) -> Plan:
    described = role.signed.targets.get(ROLLOUTS_TARGET)
    if described is None:
        raise BadInputError("no rollout document is published", cure=_REPAIR_CURE)
    try:
        content = repository.read_target(described)
    except BadInputError as error:
        raise _DamagedError(error.cause, cure=_REPAIR_CURE) from error
    try:
        document = parse_rollouts(content)
    except ValueError as error:
        raise BadInputError(f"devices cannot read it: {error}", cure=_REPAIR_CURE) from error
    return restore_plan(document, described.custom)


def _custom(role: Metadata[Targets]) -> object:
    described = role.signed.targets.get(ROLLOUTS_TARGET)
    return None if described is None else described.custom
