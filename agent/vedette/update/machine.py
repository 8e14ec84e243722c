"""The update machine's one function: `step(record, event) -> (record, effects)`. Pure.

The table says what happens; this says in which order. Persist comes first whenever what a restart would read
has changed, so nothing is done that the disk does not know of. A refused event changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from vedette.errors import InternalError
from vedette.update import events as ev
from vedette.update.effects import Effect, Persist
from vedette.update.phases import PHASES, Phase
from vedette.update.record import SCHEMA, Mark, UpdateRecord, on_disk
from vedette.update.table import BY_PHASE_AND_EVENT, ENTRY, EXIT, STAY, Row, Target

if TYPE_CHECKING:
    from vedette.trust.offer import Offer

TRANSITION_BUDGET = 40


class IllegalEventError(InternalError):
    """An event that cannot happen in this phase: a fault of whoever drives the machine."""


def step(record: UpdateRecord, event: ev.Event) -> tuple[UpdateRecord, tuple[Effect, ...]]:
    """Take one event: the next record, and what to do now, in this order.

    Raises:
        IllegalEventError: The phase does not know this event; the caller's record still holds.
        InternalError: The event contradicts the record, such as a file that the update does not have.
    """
    if record.schema > SCHEMA:  # written by a newer agent: its phases may mean something else
        record = replace(record, phase=Phase.UNKNOWN)
    row = _find(record, event)
    after = _advance(record, event, row)
    if PHASES[after.phase].budgeted and after.transitions_used > TRANSITION_BUDGET:
        event = ev.Exhausted()
        row = _find(record, event)
        after = _advance(record, event, row)
    effects = list(row.act(after, event))
    if row.to is not STAY:
        if after.phase is not record.phase and record.phase in EXIT:
            effects = [*EXIT[record.phase](after, event), *effects]
        effects += ENTRY[after.phase](after, event)
    if on_disk(after) != on_disk(record):
        after = replace(after, phase_seq=record.phase_seq + 1)
        effects.insert(0, Persist(on_disk(after)))
    return after, tuple(effects)


def offered(offer: Offer, *, free_bytes: int, asked: bool = False, rested_s: float = 0.0) -> ev.Offered:
    """What the machine needs to know of an offer; `free_bytes` beside the reserve, the rest as in Offered."""
    rollout = offer.rollout
    return ev.Offered(
        mark=Mark(offer.epoch, offer.counter),
        rollout=rollout.id,
        sha256=offer.manifest.bundle_sha256,
        counter=offer.manifest.counter,
        manifest_sha256=offer.manifest_sha256,
        free_bytes=free_bytes,
        shadow=rollout.shadow is not None,
        rollback_of=rollout.rollback_of,
        asked=asked,
        rested_s=rested_s,
        name=f"{offer.manifest.name} {offer.manifest.version}",
    )


def _find(record: UpdateRecord, event: ev.Event) -> Row:
    for row in BY_PHASE_AND_EVENT.get((record.phase, type(event)), ()):
        if row.when(record, event):
            return row
    raise IllegalEventError(f"{type(event).__name__} cannot happen in phase {record.phase.value}")


def _advance(record: UpdateRecord, event: ev.Event, row: Row) -> UpdateRecord:
    after = row.change(record, event)
    phase = _target(after, record.phase, row.to)
    counted = record.update_id and (phase is not record.phase or isinstance(event, ev.Started))
    used = after.transitions_used + 1 if counted and after.update_id else after.transitions_used
    return replace(after, phase=phase, transitions_used=used, schema=SCHEMA)


def _target(after: UpdateRecord, phase: Phase, to: Phase | Target) -> Phase:
    if to is STAY:
        return phase
    if isinstance(to, Target):
        return Phase.IDLE if after.active is not None else Phase.SAFE
    return to
