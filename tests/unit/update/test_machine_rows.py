"""Every row of the update machine's table is taken, also behind a guard, and none breaks an invariant."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.update.driving import FACTORY, SHA, box_in, offer
from tests.unit.update.test_machine_table import sample

from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update.causes import Cause, Result
from vedette.update.guards import MAX_FETCH_ROUNDS, TRIES, lower_word, refusal_word
from vedette.update.machine import TRANSITION_BUDGET, step
from vedette.update.phases import PHASES, Phase
from vedette.update.record import Blacklisted, Mark, ModelRef, Report, Rung, UpdateRecord, on_disk
from vedette.update.table import BY_PHASE_AND_EVENT, ROWS, Row, Target

NEW = offer(9, mark=9)
OTHERS: dict[type[ev.Event], tuple[ev.Event, ...]] = {
    ev.Announced: (ev.Announced(),),
    ev.Offered: (offer(1, mark=9), offer(9, mark=9, rollback_of=5)),
    ev.PlanRefused: (ev.PlanRefused(Cause.NO_SPACE),),
    ev.Go: (ev.Go(wanted=False),),
}


def report(result: Result, cause: Cause | None, of: ev.Offered, serving: str = FACTORY.sha256) -> Report:
    return Report("u", 1, result, cause, "", of.sha256, of.counter, of.rollout, of.mark, serving, 0)


# What may have happened to a box before, or during, an update.
PASTS: tuple[dict[str, Any], ...] = (
    {},
    {"seen": Mark(0, 50)},
    {"seen": Mark(0, 50), "noticed": (lower_word(NEW),)},
    {"noticed": (refusal_word(ev.TrustRefused(Cause.EXPIRED)),)},
    {"release_floor": 10},
    {"active": ModelRef(SHA[9], 9)},
    {"blacklist": (Blacklisted(SHA[9], Mark(0, 9), "roll-9", Cause.ERROR_RATE),)},
    {"last": report(Result.SUCCESS, None, NEW)},
    {"last": report(Result.FAILED_NO_CHANGE, Cause.PREFLIGHT_GOLDEN, NEW)},
    {"last": report(Result.REJECTED, Cause.WRONG_DEVICE, offer())},
    {"fetch_rounds": MAX_FETCH_ROUNDS},
    {"bytes_fetched": 5000},
    {"preflight_tries": TRIES},
    {"tries_left": 0},
    {"queued": Mark(0, 60)},
    {"rung": Rung.CONFIRMED},
    {"rung": Rung.NONE},
)


def lives(phase: Phase) -> list[UpdateRecord]:
    """A box in a phase, with each past; with a shadow, too many transitions, a failure, a newer record."""
    record = box_in(phase).record
    found = [replace(record, **past) for past in PASTS]
    if record.candidate is not None:
        found.append(replace(record, candidate=replace(record.candidate, shadow=True)))
    if record.update_id:
        found.append(replace(record, transitions_used=TRANSITION_BUDGET + 1))
    if phase is Phase.REPORT:
        failed = box_in(Phase.FETCH)
        failed.see(ev.Aborted())
        found.append(failed.record)
    if phase is Phase.UNKNOWN:
        found.append(replace(box_in(Phase.TRIAL).record, phase=phase))
    return found


def row_of(record: UpdateRecord, event: ev.Event) -> Row:
    rows = BY_PHASE_AND_EVENT[record.phase, type(event)]
    return next(row for row in rows if row.when(record, event))


def test_every_row_of_the_table_is_taken() -> None:
    """Phase x event x guard: what the disk must know comes first, and nothing known is forgotten."""
    taken: set[int] = set()
    for phase, kind in BY_PHASE_AND_EVENT:
        for event in (sample(kind), *OTHERS.get(kind, ())):
            for before in lives(phase):
                row = row_of(before, event)
                check_step(before, event, row)
                taken.add(id(row))
    missed = [
        (row.phase.value, row.event.__name__, row.when.__name__) for row in ROWS if id(row) not in taken
    ]
    assert missed == []


def check_step(before: UpdateRecord, event: ev.Event, row: Row) -> None:
    after, effects = step(before, event)
    persists = [index for index, effect in enumerate(effects) if isinstance(effect, ef.Persist)]
    assert persists == ([0] if on_disk(after) != on_disk(before) else [])
    assert after.seen >= before.seen
    assert after.release_floor >= before.release_floor
    if isinstance(row.to, Phase) and after.phase is not row.to:  # too many transitions: the way out was taken
        assert after.phase in {Phase.REPORT, Phase.ROLLBACK}
        assert after.transitions_used > TRANSITION_BUDGET
    if row.to is Target.STAY and after.phase is not before.phase:
        assert after.transitions_used > TRANSITION_BUDGET
    if after.phase in {Phase.SWITCH, Phase.TRIAL} and before.candidate is not None:
        assert after.active == before.active  # I4
    condemned = {entry.sha256 for entry in before.blacklist}
    kept = {entry.sha256 for entry in after.blacklist}
    assert condemned <= kept or row.event is ev.MarkedConfirmed  # I8
    assert PHASES[after.phase].durable or not on_disk(after).update_id


@pytest.mark.parametrize("phase", list(Phase))
def test_a_box_in_any_phase_has_every_past(phase: Phase) -> None:
    """The premise of the test above: no past moves a box out of its phase."""
    assert {record.phase for record in lives(phase)} == {phase}
    assert len(lives(phase)) >= len(PASTS)
