"""Edits of the rollout document, each a pure function from one plan to the next. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import UsageError
from vedette.wire.rollout import BUCKETS, Rollout
from vedette_fleet.rollout_plan import Plan
from vedette_fleet.waves import next_share, percent, wave_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vedette.wire.rollout import Guards, Window


class State(str, Enum):
    """How a rollout stands."""

    SCHEDULED = "scheduled"  # not before its time
    CLOSED = "closed"  # its share is 0: nobody
    RUNNING = "running"
    COMPLETE = "complete"  # open to everybody it selects
    PAUSED = "paused"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Release:
    """A release as rollouts refer to it."""

    target: str
    model: str
    sha256: str
    counter: int


@dataclass(frozen=True)
class Terms:
    """What `start` fixes for good, beside name and release."""

    select: dict[str, str]
    waves: tuple[int, ...]
    not_before_utc: int
    jitter_s: float
    shadow: Window | None
    trial: Window
    guards: Guards


def start(
    plan: Plan,
    name: str,
    release: Release,
    terms: Terms,
    *,
    counters: Mapping[str, int],
    rollback_of: int | None,
) -> Plan:
    """Open the first wave of a new rollout; `counters` are the release counters by target.

    Raises:
        UsageError: The name is taken, the release was withdrawn, or devices would refuse it as a downgrade.
    """
    if any(rollout.id == name for rollout in plan.document.rollouts):
        raise UsageError(f"there is a rollout {name!r} already", cure="give it another name")
    if release.target in plan.withdrawn:
        raise UsageError(
            f"{release.target} was withdrawn and is never offered again",
            cure="release a corrected bundle under a new version",
        )
    _check_direction(plan, release, counters, rollback_of)
    rollout = Rollout(
        id=name,
        model=release.model,
        target=release.target,
        sha256=release.sha256,
        # Another order of devices for each release, the same one again for the same release.
        salt=release.sha256[:16],
        share=terms.waves[0],
        select=terms.select,
        not_before_utc=terms.not_before_utc,
        jitter_s=terms.jitter_s,
        shadow=terms.shadow,
        trial=terms.trial,
        guards=terms.guards,
        rollback_of=rollback_of,
    )
    return _append(plan, rollout, terms.waves)


def advance(plan: Plan, name: str, to: int | None) -> Plan:
    """Open the next wave, or a larger share than is open; waves only grow.

    Raises:
        UsageError: Paused or withdrawn, no wave left, or a share that is not larger.
    """
    rollout = plan.find(name)
    if rollout.withdrawn or rollout.paused:
        word = State.WITHDRAWN if rollout.withdrawn else State.PAUSED
        cure = "start a new rollout" if rollout.withdrawn else f"vedette-fleet rollout resume {name}"
        raise UsageError(f"rollout {name!r} is {word.value}", cure=cure)
    share = next_share(plan.waves.get(name, ()), rollout.share) if to is None else to
    if share is None:
        cure = "it is complete" if rollout.share >= BUCKETS else "open a larger share with --to 100%"
        raise UsageError(f"rollout {name!r} is in its last wave, {percent(rollout.share)}", cure=cure)
    if share <= rollout.share:
        raise UsageError(
            f"rollout {name!r} is open to {percent(rollout.share)} already; waves only grow",
            cure="stop it with pause or abort; devices that took the release keep it until a revert",
        )
    return _changed(plan, name, lambda old: msgspec.structs.replace(old, share=share))


def set_paused(plan: Plan, name: str, *, paused: bool) -> Plan:
    """Offer it to no further device, or go on; devices in their trial finish it by themselves.

    Raises:
        UsageError: Withdrawn, or as wanted already.
    """
    rollout = plan.find(name)
    if rollout.withdrawn:
        raise UsageError(f"rollout {name!r} is withdrawn for good", cure="start a new rollout")
    if rollout.paused == paused:
        raise UsageError(f"rollout {name!r} is {'paused' if paused else 'not paused'} already")
    return _changed(plan, name, lambda old: msgspec.structs.replace(old, paused=paused))


def abort(plan: Plan, name: str) -> Plan:
    """End a rollout for good: nobody begins, devices in trial go back, devices that confirmed hold.

    Raises:
        UsageError: It is withdrawn already.
    """
    if plan.find(name).withdrawn:
        raise UsageError(f"rollout {name!r} is withdrawn already", cure="see: vedette-fleet rollout status")
    return _changed(plan, name, lambda old: msgspec.structs.replace(old, withdrawn=True))


def withdraw(plan: Plan, target: str) -> Plan:
    """Abort every rollout of a release and never offer it again.

    Raises:
        UsageError: It is withdrawn already.
    """
    if target in plan.withdrawn:
        raise UsageError(f"{target} is withdrawn already")
    document = plan.document
    for rollout in document.rollouts:
        if rollout.target == target and not rollout.withdrawn:
            document = _changed(replace(plan, document=document), rollout.id, _withdrawn).document
    return Plan(document, plan.waves, (*plan.withdrawn, target))


def revert(plan: Plan, name: str, back_to: Release, counter: int, new_name: str) -> Plan:
    """Bring the devices of a rollout back to an older release: `counter` is of the release that they leave.

    The new rollout has the old one's selection, salt and share, so it names exactly the same devices.

    Raises:
        UsageError: The release is not older, was withdrawn, or the name is taken.
    """
    rollout = plan.find(name)
    if any(known.id == new_name for known in plan.document.rollouts):
        raise UsageError(f"there is a rollout {new_name!r} already", cure="give it another name with --name")
    if back_to.target in plan.withdrawn:
        raise UsageError(f"{back_to.target} was withdrawn", cure="name another release with --to")
    if back_to.model != rollout.model or back_to.counter >= counter:
        raise UsageError(
            f"{back_to.target} is no earlier release of {rollout.model} than {rollout.target}",
            cure="name an earlier one with --to, or start a rollout of the newer one",
        )
    if not rollout.withdrawn:
        plan = abort(plan, name)
    back = msgspec.structs.replace(
        rollout,
        id=new_name,
        target=back_to.target,
        sha256=back_to.sha256,
        paused=False,
        withdrawn=False,
        not_before_utc=0,
        rollback_of=counter,
    )
    return _append(plan, back, (rollout.share,))


def remove(plan: Plan, name: str) -> Plan:
    """Forget a withdrawn rollout; the document has a bound in bytes.

    Raises:
        UsageError: Devices may still act on it.
    """
    if not plan.find(name).withdrawn:
        raise UsageError(f"rollout {name!r} is not withdrawn", cure=f"vedette-fleet rollout abort {name}")
    kept = tuple(rollout for rollout in plan.document.rollouts if rollout.id != name)
    waves = {known: shares for known, shares in plan.waves.items() if known != name}
    return Plan(msgspec.structs.replace(plan.document, rollouts=kept), waves, plan.withdrawn)


def state_of(rollout: Rollout, now_utc: int) -> State:
    """How a rollout stands at a wall time."""
    if rollout.withdrawn:
        return State.WITHDRAWN
    if rollout.paused:
        return State.PAUSED
    if rollout.share == 0:
        return State.CLOSED
    if rollout.not_before_utc > now_utc:
        return State.SCHEDULED
    return State.COMPLETE if rollout.share >= BUCKETS else State.RUNNING


def wave_text(plan: Plan, rollout: Rollout) -> str:
    """Which wave is open, such as `2/3`."""
    waves = plan.waves.get(rollout.id, ())
    return f"{wave_number(waves, rollout.share)}/{len(waves)}"


def _check_direction(
    plan: Plan, release: Release, counters: Mapping[str, int], rollback_of: int | None
) -> None:
    if rollback_of is not None:
        if rollback_of <= release.counter:
            raise UsageError(
                f"{release.target} is not older than what it is a rollback of",
                cure="leave --rollback-of away",
            )
        return
    newer = [
        rollout
        for rollout in plan.document.rollouts
        if rollout.model == release.model
        and not rollout.withdrawn
        and rollout.share
        and counters.get(rollout.target, 0) > release.counter
    ]
    if newer:
        raise UsageError(
            f"rollout {newer[-1].id!r} offers a newer release of {release.model}; devices that have it "
            f"refuse {release.target}",
            cure=f"vedette-fleet rollout revert {newer[-1].id}, or name the release to leave: --rollback-of",
        )


def _withdrawn(rollout: Rollout) -> Rollout:
    return msgspec.structs.replace(rollout, withdrawn=True)


def _append(plan: Plan, rollout: Rollout, waves: tuple[int, ...]) -> Plan:
    rollouts = (*plan.document.rollouts, rollout)
    return Plan(
        msgspec.structs.replace(plan.document, rollouts=rollouts),
        {**plan.waves, rollout.id: waves},
        plan.withdrawn,
    )


def _changed(plan: Plan, name: str, change: Callable[[Rollout], Rollout]) -> Plan:
    rollouts = tuple(change(rollout) if rollout.id == name else rollout for rollout in plan.document.rollouts)
    return replace(plan, document=msgspec.structs.replace(plan.document, rollouts=rollouts))
