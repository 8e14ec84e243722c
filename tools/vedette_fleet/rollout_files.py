"""Read the rollout document from the repository, and publish an edit of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.wire.rollout import parse_rollouts
from vedette_fleet import roles as rules
from vedette_fleet.names import find_release
from vedette_fleet.release_files import all_releases, read_release, releases_of
from vedette_fleet.roles import ROLLOUTS, ROLLOUTS_TARGET
from vedette_fleet.rollout import Plan, Release, issue, restore_plan
from vedette_fleet.tuf_publication import Edit, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette_fleet.names import ReleaseName
    from vedette_fleet.tuf_ceremonies import Workshop
    from vedette_fleet.tuf_repository import Published, TufRepository


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


def load_rollouts(repository: TufRepository) -> Rollouts:
    """What is published now.

    Raises:
        BadInputError: The repository or the document is damaged.
    """
    current = repository.load()
    described = current.roles[ROLLOUTS].signed.targets.get(ROLLOUTS_TARGET)
    if described is None:
        raise BadInputError("no rollout document is published", cure="restore the repository from a copy")
    try:
        document = parse_rollouts(repository.read_target(described))
    except ValueError as error:
        raise BadInputError(str(error), cure="restore the repository from a copy") from error
    return Rollouts(repository, current, restore_plan(document, described.custom))


def edit_rollouts(workshop: Workshop, change: Callable[[Rollouts], Plan]) -> tuple[Plan, Outcome]:
    """Apply an edit, sign it and publish it.

    Raises:
        UsageError: The edit makes no sense, or an earlier one waits for signatures.
        BadInputError: The repository is damaged.
        UnavailableError: The disk, or somebody else edits now.
    """
    with workshop.repository.locked():
        before = load_rollouts(workshop.repository)
        workshop.check_idle()
        plan = change(before)
        role = rules.successor(before.current.roles[ROLLOUTS].signed, ROLLOUTS, workshop.now)
        content, custom = issue(plan, version=role.version, issued_utc=int(workshop.now.timestamp()))
        described = workshop.repository.write_target(ROLLOUTS_TARGET, content)
        described.unrecognized_fields["custom"] = custom
        role.targets[ROLLOUTS_TARGET] = described
        outcome = workshop.publication().publish(before.current, Edit(roles={ROLLOUTS: role}))
        return plan, outcome
