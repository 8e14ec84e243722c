"""The roles of the update repository: who signs what, and for how long. Pure.

Top-level `targets` only delegates: each owner's releases to `models-<owner>`, the rollout document to
`rollouts`. Role names hold no slash, so that every web server and object store can serve `N.<role>.json`.
"""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from tuf.api.metadata import DelegatedRole, Delegations, Root, Snapshot, Targets, Timestamp

from vedette.errors import BadInputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tuf.api.metadata import Key, Signed

    Delegator = Root | Targets
    SignedT = TypeVar("SignedT", bound=Signed)
else:
    SignedT = TypeVar("SignedT")

ROOT, TARGETS, SNAPSHOT, TIMESTAMP = "root", "targets", "snapshot", "timestamp"
ROLLOUTS = "rollouts"
ROLLOUTS_TARGET = "rollouts.json"
ROOT_KEYS, ROOT_THRESHOLD = 3, 2
_OWNER_PREFIX = "models-"
_OWNER_DAYS = 90
_DAYS = {ROOT: 365, TARGETS: 90, ROLLOUTS: 7, SNAPSHOT: 14, TIMESTAMP: 7}


def lifetime(role: str) -> timedelta:
    """How long a signature of a role is good."""
    return timedelta(days=_DAYS.get(role, _OWNER_DAYS))


def owner_role(owner: str) -> str:
    """The role that signs an owner's releases."""
    return _OWNER_PREFIX + owner


def owner_of(role: str) -> str | None:
    """The owner whose role this is; None for every other role."""
    return role.removeprefix(_OWNER_PREFIX) if role.startswith(_OWNER_PREFIX) else None


def first_root(keys: Mapping[str, Sequence[Key]], now: datetime) -> Root:
    """Root version 1; `keys` for each of the four top-level roles."""
    root = Root(version=1, expires=now + lifetime(ROOT), consistent_snapshot=True)
    for role, members in keys.items():
        for key in members:
            root.add_key(key, role)
    root.roles[ROOT].threshold = ROOT_THRESHOLD
    return root


def first_targets(now: datetime) -> Targets:
    """Top-level targets version 1, which delegates to nobody yet."""
    return Targets(version=1, expires=now + lifetime(TARGETS), delegations=Delegations({}, {}))


def first_delegated(role: str, now: datetime) -> Targets:
    """Version 1 of a delegated role, without targets."""
    return Targets(version=1, expires=now + lifetime(role))


def delegate(targets: Targets, role: str, key: Key) -> None:
    """Entrust an owner's releases, or the rollout document, to a new terminating role."""
    owner = owner_of(role)
    # In TUF a `*` does not match a slash, so a model and its version need one each.
    paths = [ROLLOUTS_TARGET] if owner is None else [f"models/{owner}/*/*"]
    delegated_roles(targets)[role] = DelegatedRole(role, [], 1, terminating=True, paths=paths)
    targets.add_key(key, role)


def delegated_roles(targets: Targets) -> dict[str, DelegatedRole]:
    """The delegations of top-level targets, by name.

    Raises:
        BadInputError: It has none, so another tool wrote it.
    """
    if targets.delegations is None or targets.delegations.roles is None:
        raise BadInputError(
            "targets metadata has no list of delegations", cure="only repositories made by init can be edited"
        )
    return targets.delegations.roles


def owners(targets: Targets) -> list[str]:
    """Everybody who may publish releases."""
    found = (owner_of(role) for role in delegated_roles(targets))
    return sorted(owner for owner in found if owner is not None)


def successor(signed: SignedT, role: str, now: datetime) -> SignedT:
    """A copy to edit: the next version, with a full lifetime."""
    after = copy.deepcopy(signed)
    after.version += 1
    after.expires = now + lifetime(role)
    return after


def next_timestamp(version: int, now: datetime) -> Timestamp:
    """A timestamp that says when it was signed; devices raise their time floor by that."""
    return Timestamp(
        version=version,
        expires=now + lifetime(TIMESTAMP),
        unrecognized_fields={"issued": now.strftime("%Y-%m-%dT%H:%M:%SZ")},
    )


def next_snapshot(version: int, now: datetime) -> Snapshot:
    """A snapshot that lists nothing yet."""
    snapshot = Snapshot(version=version, expires=now + lifetime(SNAPSHOT))
    snapshot.meta.clear()
    return snapshot


def role_keys(root: Root, targets: Targets) -> dict[str, tuple[list[str], int]]:
    """Key ids and threshold of every role, top-level ones first."""
    everyone = {**root.roles, **delegated_roles(targets)}
    return {name: (list(role.keyids), role.threshold) for name, role in everyone.items()}


def delegator_of(role: str, root: Root, targets: Targets) -> Delegator:
    """Whose metadata says which keys a role has."""
    return root if role in root.roles else targets


def replaced_key(role: str, keyids: list[str], wanted: str | None) -> str:
    """The key of a role that a new one replaces; `wanted` may be the beginning of its id.

    Raises:
        UsageError: None or more than one fits.
    """
    found = [keyid for keyid in keyids if keyid.startswith(wanted or "")]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(keyid[:12] for keyid in keyids)
    if wanted is None:
        raise UsageError(f"{role} has {len(keyids)} keys: {shown}", cure="name the one to replace with --key")
    raise UsageError(f"{wanted!r} names {len(found)} keys of {role}", cure=f"its keys are {shown}")


def exchange_key(delegator: Delegator, role: str, old_keyid: str, new: Key) -> None:
    """Put a new key in the place of an old one."""
    delegator.revoke_key(old_keyid, role)
    delegator.add_key(new, role)


def withdraw_key(delegator: Delegator, role: str, keyid: str) -> None:
    """Take a key from a role.

    Raises:
        UsageError: Fewer keys would be left than the role needs to sign.
    """
    entry = delegator.get_delegated_role(role)
    if len(entry.keyids) <= entry.threshold:
        raise UsageError(
            f"{role} needs {entry.threshold} signatures and has {len(entry.keyids)} keys",
            cure=f"replace the key instead: vedette-fleet keys rotate {role} --key {keyid[:12]}",
        )
    delegator.revoke_key(keyid, role)


def is_near(expires: datetime, role: str, now: datetime) -> bool:
    """Whether less than a third of the lifetime is left, the time to warn."""
    return expires - now < lifetime(role) / 3
