"""High-water marks: what was verified before, so that nothing older is believed again. Pure.

python-tuf guards against rollback with the copies in its cache; a cache can be lost or zeroed (casebook 35).
The marks are the truth, the cache is a convenience.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.trust.refusal import Refusal, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping


class Marks(msgspec.Struct, frozen=True):
    """The record; all of it signed by somebody whom the root named.

    `versions` holds timestamp, snapshot and every targets role. `counter` and `document_sha256` are of the
    rollout document, `floor_utc_s` is the newest signing time seen, in seconds since 1970. `epoch` counts how
    often the marks were reset.
    """

    schema: int = 1
    epoch: int = 0
    root_version: int = 0
    online_keyids: tuple[str, ...] = ()
    versions: dict[str, int] = {}
    counter: int = 0
    document_sha256: str = ""
    floor_utc_s: int = 0


def check_root(marks: Marks, version: int) -> None:
    """Refuse a chain of roots that ends before one seen already: its successor may have revoked keys.

    Raises:
        TrustError: rollback_attack.
    """
    if version < marks.root_version:
        raise refuse(
            Refusal.ROLLBACK_ATTACK,
            f"root version {version} is served; {marks.root_version} was verified before",
        )


def under_keys(marks: Marks, online_keyids: tuple[str, ...]) -> Marks:
    """The marks that count under these keys of timestamp and snapshot.

    Other keys start over: whoever held the old ones may have pushed every number to its limit (fast-forward
    attack, TUF specification 5.3.11). The root's mark stays, it is not theirs to move.
    """
    if not marks.online_keyids or marks.online_keyids == online_keyids:
        return msgspec.structs.replace(marks, online_keyids=online_keyids)
    return Marks(epoch=marks.epoch + 1, root_version=marks.root_version, online_keyids=online_keyids)


def check_role(marks: Marks, role: str, version: int) -> None:
    """Refuse an older version of a role.

    Raises:
        TrustError: rollback_attack.
    """
    known = marks.versions.get(role, 0)
    if version < known:
        raise refuse(
            Refusal.ROLLBACK_ATTACK, f"{role} version {version} is served; {known} was verified before"
        )


def check_snapshot(marks: Marks, listed: Mapping[str, int]) -> None:
    """Refuse a snapshot that lists an older version of any targets role, or none of one known.

    Raises:
        TrustError: rollback_attack.
    """
    for role in marks.versions:
        if role in {"timestamp", "snapshot"}:
            continue
        if role not in listed:
            raise refuse(
                Refusal.ROLLBACK_ATTACK, f"the snapshot no longer lists {role}, which was verified before"
            )
        check_role(marks, role, listed[role])


def check_counter(marks: Marks, counter: int) -> None:
    """Refuse an older rollout document.

    Raises:
        TrustError: rollback_attack.
    """
    if counter < marks.counter:
        raise refuse(
            Refusal.ROLLBACK_ATTACK,
            f"rollout document {counter} is served; {marks.counter} was verified before",
        )
