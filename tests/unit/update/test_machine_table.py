"""The table of the update machine is whole: every phase, every event, every way back."""

from __future__ import annotations

import pytest
from tests.unit.update.driving import FACTORY, Box, box_in, offer

from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update import guards
from vedette.update.causes import Cause
from vedette.update.machine import IllegalEventError, step
from vedette.update.phases import AWAY, HOME, LIVE, PHASES, STAGED, Phase
from vedette.update.record import FileProgress, Mark, UpdateRecord
from vedette.update.table import BY_PHASE_AND_EVENT, ENTRY, RECOVERY, ROWS, Target

SAMPLES: dict[type[ev.Event], ev.Event] = {
    ev.Announced: ev.Announced(Mark(0, 9)),
    ev.Offered: offer(9, mark=9),
    ev.TrustRefused: ev.TrustRefused(Cause.EXPIRED),
    ev.Planned: ev.Planned((FileProgress(0, 0),), 10),
    ev.PlanDeferred: ev.PlanDeferred("too hot", 60.0),
    ev.PlanRefused: ev.PlanRefused(Cause.WRONG_DEVICE),
    ev.FetchLost: ev.FetchLost((0,), Cause.BLOB_MISSING),
    ev.PatchesBad: ev.PatchesBad((0,)),
    ev.ApplyFailed: ev.ApplyFailed((0,), Cause.BASE_MISMATCH),
    ev.OutputsBad: ev.OutputsBad((0,)),
    ev.WorkFailed: ev.WorkFailed(Cause.NO_SPACE),
    ev.PreflightFailed: ev.PreflightFailed(Cause.PREFLIGHT_GOLDEN),
    ev.ShadowFailed: ev.ShadowFailed(Cause.DISAGREEMENT),
    ev.Go: ev.Go(wanted=True),
    ev.Switched: ev.Switched("boot"),
    ev.TrialProgressed: ev.TrialProgressed(60.0),
    ev.TrialFailed: ev.TrialFailed(Cause.ERROR_RATE),
    ev.CandidateDied: ev.CandidateDied(Cause.CRASH_LOOP),
    ev.ProvenServes: ev.ProvenServes(FACTORY.sha256, 0),
    ev.ProvenBad: ev.ProvenBad(Cause.HASH_MISMATCH),
}


def sample(kind: type[ev.Event]) -> ev.Event:
    return SAMPLES[kind] if kind in SAMPLES else kind()


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("kind", ev.EVENTS)
def test_every_event_in_every_phase_is_defined_or_refused(phase: Phase, kind: type[ev.Event]) -> None:
    """Phase x event: taken by a row and kept in order, or refused without a change."""
    box = box_in(phase)
    before, event = box.record, sample(kind)
    if (phase, kind) not in BY_PHASE_AND_EVENT:
        with pytest.raises(IllegalEventError, match=f"{kind.__name__} cannot happen in phase {phase.value}"):
            step(before, event)
        assert box.record is before
        return
    after, effects = step(before, event)
    persists = [index for index, effect in enumerate(effects) if isinstance(effect, ef.Persist)]
    assert persists in ([], [0])
    assert after.seen >= before.seen
    assert after.release_floor >= before.release_floor
    # Nothing but a proven model is ever active.
    assert after.active == before.active or phase in {Phase.CONFIRM, *HOME, *AWAY, Phase.ROLLBACK}
    if PHASES[after.phase].durable and after.phase is not phase:
        assert persists == [0]


def test_the_last_row_for_a_phase_and_event_has_no_guard() -> None:
    """So no event falls through; and none stands behind one without a guard, where it would be dead."""
    for key, rows in BY_PHASE_AND_EVENT.items():
        unguarded = [row.when is guards.always for row in rows]
        assert unguarded == [False] * (len(rows) - 1) + [True], key


def test_every_phase_has_its_row_in_every_column() -> None:
    assert set(PHASES) == set(ENTRY) == set(RECOVERY) == set(Phase)
    for columns in RECOVERY.values():
        assert columns[-1].when is guards.always


def test_every_phase_knows_how_to_go_on_after_a_power_cut() -> None:
    for phase in Phase:
        assert (phase, ev.Started) in BY_PHASE_AND_EVENT


def test_every_phase_that_an_update_can_be_in_leads_home() -> None:
    """No phase is a trap, and every phase but the unknown one is reached from idle."""
    edges = {phase: {_phase(row.to, phase) for row in ROWS if row.phase is phase} for phase in Phase}
    for phase in Phase:
        assert Phase.IDLE in _reach(edges, phase)
    assert _reach(edges, Phase.IDLE) | {Phase.UNKNOWN, Phase.SAFE} == set(Phase)


def test_only_the_switch_leads_to_the_candidate_answering() -> None:
    into_switch = {row.phase for row in ROWS if row.to is Phase.SWITCH}
    assert into_switch == {Phase.READY, *LIVE}
    assert {row.phase for row in ROWS if row.to is Phase.TRIAL} == {Phase.SWITCH}
    assert {row.phase for row in ROWS if row.to is Phase.CONFIRM} <= {Phase.TRIAL, Phase.CONFIRM}


def test_only_a_report_ends_an_update_that_was_begun() -> None:
    for row in ROWS:
        if row.phase in {*STAGED, *LIVE, Phase.CONFIRM, Phase.ROLLBACK}:
            assert row.to not in {Target.HOME, Phase.IDLE, Phase.SAFE, Phase.TRUST, Phase.PLAN}


def test_a_record_of_a_newer_schema_is_not_taken_at_its_word() -> None:
    box = Box(UpdateRecord(schema=2, phase=Phase.TRIAL, active=FACTORY))
    box.see(ev.Started())
    assert (box.phase, box.record.schema) == (Phase.IDLE, 1)
    with pytest.raises(IllegalEventError, match="phase unknown"):
        step(UpdateRecord(schema=2, phase=Phase.TRIAL), ev.TrialPassed())


def _phase(to: Phase | Target, phase: Phase) -> Phase:
    if isinstance(to, Phase):
        return to
    return phase if to is Target.STAY else Phase.IDLE


def _reach(edges: dict[Phase, set[Phase]], start: Phase) -> set[Phase]:
    reached, todo = {start}, [start]
    while todo:
        for phase in edges[todo.pop()] - reached:
            reached.add(phase)
            todo.append(phase)
    return reached
