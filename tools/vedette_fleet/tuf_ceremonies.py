"""What is done with keys: make a repository, admit owners, rotate and revoke keys, renew signatures.

Every function works under the repository's lock and leaves a served repository valid wherever it is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuf.api.metadata import Metadata, Root, Targets

from vedette import fsops
from vedette.errors import UnavailableError, UsageError
from vedette.wire.rollout import RolloutDocument, build_rollouts
from vedette_fleet import roles as rules
from vedette_fleet.key_files import KeyFile, load_key
from vedette_fleet.roles import ROLLOUTS, ROLLOUTS_TARGET, ROOT, SNAPSHOT, TARGETS, TIMESTAMP
from vedette_fleet.tuf_publication import Edit, Outcome, Publication
from vedette_fleet.tuf_repository import SERVED, TufRepository, read_metadata

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from tuf.api.metadata import Key

    from vedette_fleet.key_files import KeyFolder
    from vedette_fleet.tuf_repository import Published


@dataclass(frozen=True)
class Expiry:
    """When a role's signature ends; `near` when it is time to renew it."""

    role: str
    version: int
    expires: datetime
    near: bool


@dataclass(frozen=True)
class Ceremony:
    """One signature added to a file: `own_missing` is what the file's own root keys lack, for roots."""

    role: str
    version: int
    expires: datetime
    keyid: str
    own_missing: int | None
    details: tuple[str, ...]


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
            UsageError: The keys would lie where files are served.
            BadInputError: A key that an unfinished repository needs is gone.
            UnavailableError: The disk.
        """
        check_apart(self.repository, self.folder)
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
            UsageError: The owner is known, or an edit waits for signatures.
        """
        current = self.repository.load()
        role = rules.owner_role(owner)
        if role in rules.delegated_roles(current.targets):
            raise UsageError(f"owner {owner} is known already", cure=f"a new key: keys rotate {role}")
        self.check_idle()
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
            UsageError: No such role, `old` does not name one of its keys, or an edit waits for signatures.
        """
        current = self.repository.load()
        known = rules.role_keys(current.root.signed, current.targets)
        if role not in known:
            raise UsageError(f"there is no role {role!r}", cure=f"roles: {', '.join(known)}")
        old_keyid = rules.replaced_key(role, known[role][0], old)
        self.check_idle()
        new = public if public is not None else self.folder.create(role).public
        edit = Edit()
        delegator = self._edited_delegator(current, role, edit)
        rules.exchange_key(delegator, role, old_keyid, new)
        self._resign(current, role, edit)
        return old_keyid, new, self.publication().publish(current, edit)

    def revoke(self, wanted: str) -> tuple[str, list[str], Outcome]:
        """Take a key from every role that has it; `wanted` may be the beginning of its id.

        Raises:
            UsageError: No such key, a role could no longer sign, or an edit waits for signatures.
        """
        current = self.repository.load()
        known = rules.role_keys(current.root.signed, current.targets)
        found = {keyid for keyids, _ in known.values() for keyid in keyids if keyid.startswith(wanted)}
        if len(found) != 1:
            raise UsageError(
                f"{wanted!r} names {len(found)} keys in use", cure="see: vedette-fleet keys list"
            )
        keyid = found.pop()
        self.check_idle()
        affected = [role for role, (keyids, _) in known.items() if keyid in keyids]
        edit = Edit()
        for role in affected:
            rules.withdraw_key(self._edited_delegator(current, role, edit), role, keyid)
            self._resign(current, role, edit)
        return keyid, affected, self.publication().publish(current, edit)

    def refresh(self, named: list[str]) -> tuple[list[str], Outcome, list[Expiry]]:
        """Sign snapshot and timestamp anew, the rollouts when half their time is over, and the roles named.

        Returns:
            The further roles that were renewed, what became of it, and when everything expires.

        Raises:
            UsageError: No such role, or an edit waits for signatures.
        """
        current = self.repository.load()
        renewed = [role for role in named if role not in {SNAPSHOT, TIMESTAMP}]
        unknown = [role for role in renewed if role != ROOT and role not in current.roles]
        if unknown:
            known = ", ".join([ROOT, *current.roles])
            raise UsageError(f"there is no role {unknown[0]!r}", cure=f"roles: {known}")
        rollouts = current.roles.get(ROLLOUTS)
        if rollouts is not None and ROLLOUTS not in renewed and self._may_renew(current, rollouts):
            renewed.append(ROLLOUTS)
        edit = Edit()
        for role in renewed:
            if role == ROOT:
                edit.root = rules.successor(current.root.signed, ROOT, self.now)
            else:
                self._resign(current, role, edit)
        outcome = self.publication().publish(current, edit)
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

    def check_idle(self) -> None:
        """Refuse to begin an edit while another waits.

        Raises:
            UsageError: One waits.
        """
        waiting = self.repository.staged()
        if waiting:
            raise UsageError(
                f"an edit waits for signatures: {', '.join(path.name for path in waiting)}",
                cure="sign and publish it (keys sign, keys publish), or drop it: vedette-fleet keys drop",
            )

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
        return half_over and any(keyid in self.folder.load() for keyid in keyids)

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


def sign_file(path: Path, key_path: Path) -> Ceremony:
    """Add a key's signature to a metadata file, wherever it lies.

    Raises:
        BadInputError: No metadata, or no key.
        UsageError: It is served already.
        UnavailableError: It cannot be written.
    """
    if path.resolve().parent.name in SERVED:
        raise UsageError(f"{path} is served already", cure="sign the file in the folder `staged`")
    metadata = read_metadata(path)
    key = load_key(key_path)
    metadata.sign(key.signer, append=True)
    try:
        fsops.write_durable(path, metadata.to_bytes(), fsops.Point.PUBLISH, mode=0o644)
    except OSError as error:
        raise UnavailableError(
            f"{path}: cannot be written: {error.strerror}", cure="check space and mode"
        ) from error
    signed = metadata.signed
    own_missing = None
    if isinstance(signed, Root):
        result = signed.get_verification_result(ROOT, metadata.signed_bytes, metadata.signatures)
        own_missing = result.missing
    _, _, role = path.stem.partition(".")
    return Ceremony(role, signed.version, signed.expires, key.keyid, own_missing, _details(signed))


def _details(signed: object) -> tuple[str, ...]:
    """What a signer should look at before carrying the file on."""
    if isinstance(signed, Root):
        return tuple(
            f"{role}: {entry.threshold} of {', '.join(keyid[:12] for keyid in entry.keyids)}"
            for role, entry in signed.roles.items()
        )
    if isinstance(signed, Targets):
        delegated = signed.delegations.roles if signed.delegations is not None else None
        keys = [
            f"{role}: {entry.threshold} of {', '.join(keyid[:12] for keyid in entry.keyids)}"
            for role, entry in (delegated or {}).items()
        ]
        return (*keys, *(f"{path} {target.hashes['sha256']}" for path, target in signed.targets.items()))
    return ()
