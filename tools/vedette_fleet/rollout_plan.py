"""The plan of an operator: the document that devices read, and what only operators need. Pure.

The latter, the waves of each rollout and the releases that must never be offered again, travels as `custom`
data of the signed target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.errors import BadInputError, UsageError
from vedette.wire.rollout import (
    MAX_DOCUMENT_BYTES,
    RolloutDocument,
    RolloutError,
    build_rollouts,
    parse_rollouts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vedette.wire.rollout import Rollout


@dataclass(frozen=True)
class Plan:
    """The document, the waves of each rollout by id, and targets of withdrawn releases."""

    document: RolloutDocument
    waves: Mapping[str, tuple[int, ...]]
    withdrawn: tuple[str, ...] = ()

    def find(self, name: str) -> Rollout:
        """The rollout of that name.

        Raises:
            UsageError: There is none.
        """
        for rollout in self.document.rollouts:
            if rollout.id == name:
                return rollout
        known = ", ".join(rollout.id for rollout in self.document.rollouts) or "none"
        raise UsageError(f"there is no rollout {name!r}", cure=f"rollouts: {known}")


def issue(plan: Plan, *, version: int, issued_utc: int) -> tuple[bytes, dict[str, Any]]:
    """The document's bytes and its custom data for signing as a version of the role; the counter only grows.

    What comes out was read by the devices' own parser.

    Raises:
        UsageError: Devices could not read it: too large, or a value out of its range.
    """
    counter = max(plan.document.counter + 1, version)
    document = msgspec.structs.replace(plan.document, counter=counter, issued_utc=issued_utc)
    try:
        content = build_rollouts(document)
        if len(content) > MAX_DOCUMENT_BYTES:
            raise UsageError(
                f"the rollout document would have {len(content)} bytes; devices read {MAX_DOCUMENT_BYTES}",
                cure="forget withdrawn rollouts: vedette-fleet rollout remove NAME",
            )
        parse_rollouts(content)
    except RolloutError as error:
        raise UsageError(
            f"devices could not read it: {error}", cure="correct the value; nothing was signed"
        ) from error
    waves = {name: list(shares) for name, shares in plan.waves.items()}
    return content, {"waves": waves, "withdrawn": list(plan.withdrawn)}


class _Custom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    waves: dict[str, tuple[int, ...]] = {}
    withdrawn: tuple[str, ...] = ()


def restore_plan(document: RolloutDocument, custom: object) -> Plan:
    """The plan that was issued; without custom data every rollout is one wave.

    Raises:
        BadInputError: The custom data is not ours.
    """
    kept = _custom_of(custom)
    return Plan(document, kept.waves, kept.withdrawn)


def recover_plan(before: Plan, lost: Iterable[object], *, paused: bool) -> tuple[Plan, tuple[str, ...]]:
    """The plan to go on with when later versions cannot be read: `lost` is their custom data, which can.

    Releases that any of them withdrew stay withdrawn. With `paused`, nothing of it goes on by itself: a lost
    version may have stopped it.

    Returns:
        The plan, and the names of rollouts that only the lost versions had.

    Raises:
        BadInputError: Custom data is not ours.
    """
    customs = [_custom_of(custom) for custom in lost]
    withdrawn = dict.fromkeys((*before.withdrawn, *(target for kept in customs for target in kept.withdrawn)))
    rollouts = tuple(
        msgspec.structs.replace(
            rollout,
            withdrawn=rollout.withdrawn or rollout.target in withdrawn,
            paused=rollout.paused or (paused and not rollout.withdrawn),
        )
        for rollout in before.document.rollouts
    )
    known = {rollout.id for rollout in rollouts}
    gone = dict.fromkeys(name for kept in customs for name in kept.waves if name not in known)
    document = msgspec.structs.replace(before.document, rollouts=rollouts)
    return Plan(document, before.waves, tuple(withdrawn)), tuple(gone)


def _custom_of(custom: object) -> _Custom:
    try:
        return msgspec.convert({} if custom is None else custom, _Custom)
    except msgspec.ValidationError as error:
        raise BadInputError(
            f"custom data of the rollouts target: {error}", cure="restore the repository from a copy"
        ) from error
