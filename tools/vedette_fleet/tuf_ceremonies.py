"""What is done with keys: make a repository, admit owners, rotate and revoke keys, renew signatures.

Every function works under the repository's lock and leaves a served repository valid wherever it is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vedette.errors import UsageError
from vedette.wire.rollout import RolloutDocument, build_rollouts
from vedette_fleet import roles as rules
from vedette_fleet.roles import ROLLOUTS, ROLLOUTS_TARGET, ROOT, SNAPSHOT, TARGETS, TIMESTAMP
from vedette_fleet.tuf_edit import Edit, Outcome
from vedette_fleet.tuf_publication import Publication

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from tuf.api.metadata import Key, Metadata, Root, Targets

    from vedette_fleet.key_files import KeyFile, KeyFolder
    from vedette_fleet.tuf_repository import Published, TufRepository


@dataclass(frozen=True)
class Expiry:
    """When a role's signature ends; `near` when it is time to renew it."""

    role: str
    version: int
    expires: datetime
    near: bool


@dataclass(frozen=True)
class Revoked:
    """A key that left `roles`; of those, `tight` have no key left that they can do without."""

    keyid: str
    roles: tuple[str, ...]
    tight: tuple[str, ...]
    outcome: Outcome


class Workshop:
    """A repository and a folder of keys; `now` is wall time."""

    def __init__(self, repository: TufRepository, folder: KeyFolder, now: datetime) -> None:
        self.repository = repository
        self.folder = folder
        self.now = now

    def publication(self) -> Publication:
        """Publishing with the keys that are in the folder now.

        Raises:
            BadInputError: A file in the folder is no key, or others may read it.
        """
        return Publication(self.repository, self.folder.load(), self.now)

    def initialise(self, owners: list[str]) -> list[str]:
        """Make what is missing of a repository and its keys; never touches a key that is there.

        Returns:
            What was done, a line each; none when nothing was missing.

        Raises:
            UsageError: The keys would lie where files are served, or the folder is of something else.
            BadInputError: A key that an unfinished repository needs is gone.
            UnavailableError: The disk.
        """
        check_apart(self.repository, self.folder)
        strangers = [] if self.repository.has_root() else self.repository.strangers()
        if strangers:
            raise UsageError(
                f"{self.repository.path} is no repository and not empty: it holds {', '.join(strangers[:3])}",
                cure="name an empty folder, or one that is not there yet",
            )
        self.repository.make_folders()
        done: list[str] = []
        with self.repository.locked():
            if not self.repository.is_complete():
                self._publish_first(owners, done)
            else:
                known = rules.owners(self.repository.load().targets)
                for owner in owners:
                    if owner not in known:
                        published = self.add_owner(owner).published
                        done.append(f"{'admitted' if published else 'staged'} owner {owner}")
        return done

    def add_owner(self, owner: str, public: Key | None = None) -> Outcome:
        """Delegate `models/<owner>/…` to a key: a new one in the folder, or one that was made elsewhere.

        Raises:
            UsageError: The owner is known, or an edit of the same roles waits.
        """
        current = self.repository.load()
        role = rules.owner_role(owner)
        if role in rules.delegated_roles(current.targets):
            raise UsageError(f"owner {owner} is known already", cure=f"a new key: keys rotate {role}")
        self.publication().staging.check_room(current, {TARGETS, role})
        targets = rules.successor(current.targets, TARGETS, self.now)
        key = public if public is not None else self.folder.create(role).public
        rules.delegate(targets, role, key)
        edit = Edit(roles={TARGETS: targets, role: rules.first_delegated(role, self.now)})
        return self.publication().publish(current, edit)

    def rotate(self, role: str, old: str | None, public: Key | None = None) -> tuple[str, Key, Outcome]:
        """Replace one key of a role by a new one in the folder, or by one that was made elsewhere.

        Returns:
            The id of the key that left, the new key, and what became of it.

        Raises:
            UsageError: No such role, `old` does not name one of its keys, or an edit of the same roles waits.
        """
        current = self.repository.load()
        old_keyid = rules.replaced_key(role, self._known(current, role), old)
        edit = Edit()
        delegator = self._edited_delegator(current, role, edit)
        self._resign(current, role, edit)
        new = self._new_key(current, role, edit, public)
        rules.exchange_key(delegator, role, old_keyid, new)
        return old_keyid, new, self.publication().publish(current, edit)

    def add_key(self, role: str, public: Key | None = None) -> tuple[Key, Outcome]:
        """Give a role one key more, new in the folder or made elsewhere; its threshold stays.

        Raises:
            UsageError: No such role, it has the key already, or an edit of its delegator waits.
        """
        current = self.repository.load()
        known = self._known(current, role)
        if public is not None and public.keyid in known:
            raise UsageError(f"{role} has that key already", cure="see: vedette-fleet keys list")
        edit = Edit()
        delegator = self._edited_delegator(current, role, edit)
        new = self._new_key(current, role, edit, public)
        delegator.add_key(new, role)
        return new, self.publication().publish(current, edit)

    def revoke(self, wanted: str) -> Revoked:
        """Take a key from every role that has it; `wanted` may be the beginning of its id.

        Raises:
            UsageError: No such key, a role could no longer sign, or an edit of the same roles waits.
        """
        current = self.repository.load()
        known = rules.role_keys(current.root.signed, current.targets)
        found = {keyid for keyids, _ in known.values() for keyid in keyids if keyid.startswith(wanted)}
        if len(found) != 1:
            raise UsageError(
                f"{wanted!r} names {len(found)} keys in use", cure="see: vedette-fleet keys list"
            )
        keyid = found.pop()
        affected = [role for role, (keyids, _) in known.items() if keyid in keyids]
        edit = Edit()
        for role in affected:
            rules.withdraw_key(self._edited_delegator(current, role, edit), role, keyid)
            self._resign(current, role, edit)
        spare = {role: len(known[role][0]) - 1 - known[role][1] for role in affected}
        tight = tuple(role for role, count in spare.items() if count == 0)
        return Revoked(keyid, tuple(affected), tight, self.publication().publish(current, edit))

    def refresh(self, named: list[str]) -> tuple[list[str], Outcome, list[Expiry]]:
        """Sign snapshot and timestamp anew, the rollouts when half their time is over, and the roles named.

        Returns:
            The further roles that were renewed, what became of it, and when everything expires.

        Raises:
            UsageError: No such role, or an edit of the same roles waits.
        """
        current = self.repository.load()
        renewed = [role for role in named if role not in {SNAPSHOT, TIMESTAMP}]
        unknown = [role for role in renewed if role != ROOT and role not in current.roles]
        if unknown:
            known = ", ".join([ROOT, *current.roles])
            raise UsageError(f"there is no role {unknown[0]!r}", cure=f"roles: {known}")
        publication = self.publication()
        rollouts = current.roles.get(ROLLOUTS)
        if rollouts is not None and ROLLOUTS not in renewed and self._may_renew(current, rollouts):
            renewed.append(ROLLOUTS)
        edit = Edit()
        for role in renewed:
            if role == ROOT:
                edit.root = rules.successor(current.root.signed, ROOT, self.now)
            else:
                self._resign(current, role, edit)
        outcome = publication.publish(current, edit)
        if outcome.waiting == outcome.versions.keys() and outcome.waiting:
            publication.publish(self.repository.load(), Edit())  # what can be renewed is, meanwhile
        return renewed, outcome, self.expiries()

    def publish_staged(self) -> Outcome:
        """Publish the edit that waited for signatures.

        Raises:
            UsageError: Nothing waits.
            BadInputError: It was made for another state of the repository.
        """
        return self.publication().publish_staged(self.repository.load())

    def expiries(self) -> list[Expiry]:
        """When each role's signature ends.

        Raises:
            BadInputError: The repository is damaged.
        """
        current = self.repository.load()
        everything: dict[str, Metadata[Any]] = {
            ROOT: current.root,
            **current.roles,
            SNAPSHOT: current.snapshot,
            TIMESTAMP: current.timestamp,
        }
        return [
            Expiry(role, entry.signed.version, entry.signed.expires, self._is_near(role, entry))
            for role, entry in everything.items()
        ]

    def drop(self, roles: list[str]) -> list[Path]:
        """Give up what waits for signatures: the parts that have these roles, or everything.

        Raises:
            UsageError: Nothing of one of them waits.
        """
        if roles:
            return self.publication().staging.drop(self.repository.load(), roles)
        dropped = self.repository.staged()
        self.repository.unstage(dropped)
        return dropped

    def _publish_first(self, owners: list[str], done: list[str]) -> None:
        if self.repository.has_root():
            root, _ = self.repository.load_root()
            done.append("found an unfinished repository and went on")
        else:
            counts = {ROOT: rules.ROOT_KEYS, TARGETS: 1, SNAPSHOT: 1, TIMESTAMP: 1}
            keys = {
                role: [self._first_key(role, number, done) for number in range(1, count + 1)]
                for role, count in counts.items()
            }
            made = rules.first_root(
                {role: [key.public for key in found] for role, found in keys.items()}, self.now
            )
            root = self.publication().sign_root(made, None)
            self.publication().write_root(root)
        targets = rules.first_targets(self.now)
        roles = {TARGETS: targets}
        for role in (*(rules.owner_role(owner) for owner in owners), ROLLOUTS):
            rules.delegate(targets, role, self._first_key(role, 1, done).public)
            roles[role] = rules.first_delegated(role, self.now)
        nobody = RolloutDocument(1, 1, int(self.now.timestamp()), ())
        roles[ROLLOUTS].targets[ROLLOUTS_TARGET] = self.repository.write_target(
            ROLLOUTS_TARGET, build_rollouts(nobody)
        )
        self.publication().first(root, roles)
        done.append("published version 1 of root, " + ", ".join(roles))

    def _first_key(self, role: str, number: int, done: list[str]) -> KeyFile:
        key, made = self.folder.find_or_create(role, number)
        done.append(f"{'made' if made else 'kept'} key {key.path.name} ({key.keyid[:12]})")
        return key

    def _known(self, current: Published, role: str) -> list[str]:
        known = rules.role_keys(current.root.signed, current.targets)
        if role not in known:
            raise UsageError(f"there is no role {role!r}", cure=f"roles: {', '.join(known)}")
        return known[role][0]

    def _new_key(self, current: Published, role: str, edit: Edit, public: Key | None) -> Key:
        """The key from elsewhere, or one made now that nothing stands in the way."""
        roles = {*edit.roles} if edit.root is None else {ROOT, *edit.roles}
        self.publication().staging.check_room(current, roles)
        return public if public is not None else self.folder.create(role).public

    def _edited_delegator(self, current: Published, role: str, edit: Edit) -> Root | Targets:
        if role in current.root.signed.roles:
            if edit.root is None:
                edit.root = rules.successor(current.root.signed, ROOT, self.now)
            return edit.root
        self._resign(current, TARGETS, edit)
        return edit.roles[TARGETS]

    def _resign(self, current: Published, role: str, edit: Edit) -> None:
        if role in current.roles and role not in edit.roles:
            edit.roles[role] = rules.successor(current.roles[role].signed, role, self.now)

    def _may_renew(self, current: Published, rollouts: Metadata[Targets]) -> bool:
        keyids = current.targets.get_delegated_role(ROLLOUTS).keyids
        half_over = rollouts.signed.expires - self.now < rules.lifetime(ROLLOUTS) / 2
        if not half_over or not any(keyid in self.folder.load() for keyid in keyids):
            return False
        try:
            self.publication().staging.check_room(current, {ROLLOUTS})
        except UsageError:
            return False  # an edit of it waits, and renews it when it is published
        return True

    def _is_near(self, role: str, metadata: Metadata[Any]) -> bool:
        return rules.is_near(metadata.signed.expires, role, self.now)


def check_apart(repository: TufRepository, folder: KeyFolder) -> None:
    """Refuse keys below what is served.

    Raises:
        UsageError: They are.
    """
    root, keys = repository.path.resolve(), folder.path.resolve()
    if keys == root or root in keys.parents:
        raise UsageError(
            f"the keys folder {folder.path} lies inside the repository, which is served to everybody",
            cure=f"keep keys beside it, such as in {root.name}-keys, or on another disk: --keys DIR",
        )
