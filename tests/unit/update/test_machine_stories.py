"""Updates as they go: well, badly, interrupted, and stopped."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.unit.update.driving import DELTA, FACTORY, FULL, PATH, PLANNED, SERVED, SHA, Box, box_in, offer

from vedette.errors import InternalError
from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.machine import TRANSITION_BUDGET, IllegalEventError, step
from vedette.update.phases import HOME, LIVE, STAGED, Phase
from vedette.update.record import FileProgress, Mark, ModelRef, Rung, UpdateRecord, lost_record

POLL = ev.Announced()
STAGED_OR_LIVE = [*STAGED, *LIVE]


def fail_trial(box: Box) -> None:
    """From TRIAL to the end, with the model of before serving."""
    box.see(ev.TrialFailed(Cause.ERROR_RATE, "3 of 40"), SERVED, ev.ReportStored())


def test_a_good_update_ends_confirmed_with_the_old_model_kept() -> None:
    box = box_in(Phase.REPORT)
    box.see(ev.ReportStored())
    assert box.results() == [("success", None)]
    assert box.record.active == ModelRef(SHA[1], 1)
    assert box.record.previous == FACTORY
    assert box.did(ef.CollectGarbage)[-1].keep == (SHA[1], FACTORY.sha256)
    assert box.record.release_floor == 1


def test_polling_without_news_writes_nothing() -> None:
    """A poll every few hours must not wear out the flash."""
    box = Box()
    box.see(POLL, ev.NothingOffered(), POLL, ev.TrustAway(), POLL, offer(), ev.PlanDeferred("too hot", 60.0))
    assert len(box.did(ef.Persist)) == 1  # the newest document, once
    box.power_cut()
    assert box.phase is Phase.IDLE


def test_the_same_announcement_again_does_nothing() -> None:
    box = box_in(Phase.REPORT)
    box.see(ev.ReportStored())
    assert box.see(ev.Announced(Mark(0, 1))) == ()
    assert box.phase is Phase.IDLE


def test_an_older_document_is_ignored_and_reported_once() -> None:
    box = box_in(Phase.REPORT)
    box.see(ev.ReportStored(), ev.Announced(Mark(0, 0)))
    assert [notice.cause for notice in box.did(ef.StoreNotice)] == [Cause.ROLLBACK_ATTACK]
    box.power_cut()
    box.see(SERVED, ev.Announced(Mark(0, 0)))
    assert len(box.did(ef.StoreNotice)) == 1
    assert box.phase is Phase.IDLE


def test_counters_of_a_new_epoch_may_be_lower() -> None:
    """Fast-forward recovery: the keys that inflated the counters were replaced."""
    box = Box(UpdateRecord(active=FACTORY, seen=Mark(0, 1 << 40)))
    box.see(ev.Announced(Mark(1, 1)), ev.NothingOffered())
    assert box.did(ef.RefreshTrust)


def test_a_refusal_of_trust_is_told_once_until_trust_was_good_again() -> None:
    box = Box()
    for _ in range(3):
        box.see(POLL, ev.TrustRefused(Cause.EXPIRED, "timestamp of last week"))
    assert len(box.did(ef.StoreNotice)) == 1
    box.see(POLL, ev.NothingOffered(), POLL, ev.TrustRefused(Cause.EXPIRED))
    assert len(box.did(ef.StoreNotice)) == 2
    assert box.phase is Phase.IDLE


def test_a_delta_against_the_wrong_base_falls_back_to_full_in_the_same_cycle() -> None:
    """Case 38: one fall back, only for the file concerned."""
    box = box_in(Phase.APPLY)
    box.see(ev.ApplyFailed((0,), Cause.BASE_MISMATCH))
    assert box.latest[1:] == (ef.DiscardBlobs((0,)), ef.Fetch(((0, FULL),), 1300))
    box.see(ev.Fetched(900))
    assert box.latest[1:] == (ef.VerifyPatches(((0, FULL),)),)
    box.see(ev.PatchesGood())
    assert box.latest[1:] == (ef.Apply(((0, FULL),)),)
    box.see(ev.Applied())
    assert box.latest[1:] == (ef.VerifyOutputs((0, 1, 2)),)


def test_a_full_file_that_is_gone_is_one_clear_error_and_tried_again_later() -> None:
    """Case 38: full answers 404, which an edge of a CDN may say of what the origin has."""
    box = box_in(Phase.FETCH)
    box.see(ev.FetchLost((0,), Cause.BLOB_MISSING), ev.FetchLost((0,), Cause.BLOB_MISSING))
    assert box.results() == [("failed_no_change", Cause.BLOB_MISSING)]
    assert box.record.report is not None
    assert box.record.report.undelivered
    box.see(ev.ReportStored(), POLL, offer(mark=2))
    assert box.phase is Phase.PLAN


def test_a_damaged_full_blob_is_fetched_once_more_and_no_oftener() -> None:
    box = box_in(Phase.FETCH)
    box.see(ev.Fetched(), ev.PatchesBad((2,)), ev.Fetched(), ev.PatchesBad((2,)))
    assert box.results() == [("failed_no_change", Cause.HASH_MISMATCH)]


def test_a_copy_from_the_store_that_is_damaged_is_fetched_instead() -> None:
    box = box_in(Phase.APPLY)
    box.see(ev.ApplyFailed((1,), Cause.IO_ERROR))
    assert box.latest[-1] == ef.Fetch(((1, FULL),), 1300)


def test_bytes_over_the_wire_are_bounded_over_all_attempts() -> None:
    """I5: a server that cuts every transfer cannot make the box fetch for ever."""
    box = box_in(Phase.FETCH)
    while box.phase is Phase.FETCH:
        box.see(ev.FetchStalled(300))
        box.power_cut()
    assert box.did(ef.StoreReport)[0].report.bytes_fetched <= 2000 + 300


def test_a_stalled_fetch_waits_longer_each_time_and_minds_the_server() -> None:
    """Case 40: what came is kept, and no attempt is wasted on a server that is down."""
    box = box_in(Phase.FETCH)
    delays: list[float] = []
    while box.phase is Phase.FETCH:
        box.see(ev.FetchStalled())
        delays += [effect.delay_s for effect in box.latest if isinstance(effect, ef.Schedule)]
    assert delays[:3] == [30.0, 60.0, 120.0]
    assert max(delays) == 3600.0
    assert len(delays) == 30
    assert box.results() == [("failed_no_change", Cause.CONNECTIVITY_LOST)]
    fresh = box_in(Phase.FETCH)
    fresh.see(ev.FetchStalled(retry_after_s=1e9))
    assert fresh.latest[-1] == ef.Schedule(6 * 3600.0, ef.Fetch(((0, DELTA), (2, FULL)), 2000))


def test_no_space_is_reported_once_and_tried_again_when_space_changes() -> None:
    """Case 36."""
    box = box_in(Phase.PLAN)
    full = ev.PlanRefused(Cause.NO_SPACE, "needs 500, 100 are free", 500)
    box.see(full, ev.ReportStored())
    for mark in (1, 2):
        box.see(POLL, offer(mark=mark, free_bytes=400))
        assert box.phase is Phase.IDLE
    box.see(POLL, offer(mark=2, free_bytes=500), full)
    assert box.results() == [("failed_no_change", Cause.NO_SPACE)]
    box.see(POLL, offer(mark=2, free_bytes=500))
    assert box.phase is Phase.PLAN


def test_a_broken_road_is_tried_again_three_times_for_one_document() -> None:
    box = box_in(Phase.FETCH)
    for attempt in range(3):
        box.see(ev.WorkFailed(Cause.CONNECTIVITY_LOST), ev.ReportStored(), POLL, offer())
        assert box.phase is (Phase.IDLE if attempt == 2 else Phase.PLAN)
        if box.phase is Phase.PLAN:
            box.see(PLANNED)
    box.see(POLL, offer(mark=2))
    assert box.phase is Phase.PLAN
    assert len(box.results()) == 3


def test_a_release_for_other_hardware_is_not_applicable_and_said_once() -> None:
    """Case 64: rejected, which is no failure."""
    box = box_in(Phase.PLAN)
    for mark in (1, 2, 3):
        box.see(ev.PlanRefused(Cause.WRONG_DEVICE, "is for aarch64"))
        if box.phase is Phase.REPORT:
            box.see(ev.ReportStored())
        box.see(POLL, offer(mark=mark + 1))
    assert box.results() == [("rejected", Cause.WRONG_DEVICE)]


def test_a_candidate_that_fails_its_trial_is_rolled_back_and_never_tried_again() -> None:
    """Case 37: the verdict is on disk before the roll-back begins, and survives restarts."""
    box = box_in(Phase.TRIAL)
    box.see(ev.TrialFailed(Cause.LATENCY_P95, "3.1 times"))
    assert isinstance(box.latest[0], ef.Persist)
    assert [entry.cause for entry in box.latest[0].record.blacklist] == [Cause.LATENCY_P95]
    assert box.latest[1:] == (ef.ServeActive(FACTORY.sha256),)
    box.see(SERVED, ev.ReportStored())
    assert box.results() == [("failed_rolled_back", Cause.LATENCY_P95)]
    for mark in range(1, 5):  # the document also changes for other rollouts' sake
        box.power_cut()
        box.see(SERVED, POLL, offer(mark=mark))
        assert box.phase is Phase.IDLE
    assert box.record.release_floor == 0


def test_what_failed_is_named_by_no_record_when_garbage_is_collected() -> None:
    """I9: both copies of the record are then of after the update, so the store returns to its size."""
    box = box_in(Phase.TRIAL)
    box.see(ev.TrialFailed(Cause.ERROR_RATE), SERVED)
    assert (box.disk.phase, box.disk.candidate) == (Phase.REPORT, None)
    box.see(ev.ReportStored())
    assert box.latest[1:] == (ef.CollectGarbage((FACTORY.sha256,)),)


def test_a_failed_release_is_tried_again_when_another_rollout_names_it() -> None:
    box = box_in(Phase.TRIAL)
    fail_trial(box)
    box.see(POLL, offer(mark=1, rollout="other"))
    assert box.phase is Phase.IDLE
    box.see(POLL, offer(mark=2, rollout="other"))
    assert box.at(Phase.PLAN)


def test_the_next_release_installs_after_one_that_failed() -> None:
    """Case 37: then v6."""
    box = box_in(Phase.TRIAL)
    fail_trial(box)
    box.see(POLL, offer(2, mark=2))
    assert box.phase is Phase.PLAN


def test_power_flapping_in_the_trial_uses_up_the_tries() -> None:
    """Tries are spent on disk before the candidate is loaded: three loads, then the model of before."""
    box = box_in(Phase.SWITCH)
    while box.phase is Phase.SWITCH:
        box.power_cut()
    assert len(box.did(ef.Switch)) == 3
    assert box.phase is Phase.ROLLBACK
    box.see(SERVED)
    assert box.results() == [("failed_rolled_back", Cause.CRASH_LOOP)]


def test_a_candidate_that_keeps_dying_is_loaded_three_times() -> None:
    box = box_in(Phase.TRIAL)
    box.see(ev.CandidateDied(Cause.OOM), ev.Switched("boot"), ev.CandidateDied(Cause.OOM))
    assert box.phase is Phase.SWITCH
    box.see(ev.CandidateDied(Cause.OOM, "9 GB"))
    assert len(box.did(ef.Switch)) == 3
    box.see(SERVED)
    assert box.results() == [("failed_rolled_back", Cause.OOM)]


def test_a_restart_serves_the_proven_model_before_the_candidate_is_loaded() -> None:
    box = box_in(Phase.TRIAL)
    box.power_cut()
    assert box.latest[1:] == (ef.ServeActive(FACTORY.sha256), ef.Switch(SHA[1]))
    assert box.disk.tries_left == 1


@pytest.mark.parametrize("phase", [Phase.PREFLIGHT, Phase.SHADOW])
def test_a_candidate_that_kills_the_agent_before_the_switch_does_not_loop(phase: Phase) -> None:
    box = box_in(phase)
    for _ in range(2):
        box.power_cut()
        box.see(ev.PreflightPassed()) if phase is Phase.SHADOW else None
    assert box.phase is phase
    box.power_cut()
    assert box.results() == [("failed_no_change", Cause.CRASH_LOOP)]
    assert box.record.blacklist


def test_waiting_for_the_window_says_nothing_against_a_candidate() -> None:
    box = box_in(Phase.READY)
    for _ in range(5):
        box.power_cut()
        box.see(ev.PreflightPassed())
    assert box.phase is Phase.READY


def test_too_many_transitions_end_an_update_before_the_switch() -> None:
    box = box_in(Phase.FETCH)
    for _ in range(TRANSITION_BUDGET + 1):
        if box.phase is Phase.FETCH:
            box.power_cut()
    assert box.results() == [("failed_no_change", Cause.TRANSITION_BUDGET)]
    assert ef.ServeActive(FACTORY.sha256) in box.latest


def test_too_many_transitions_in_the_trial_roll_back() -> None:
    box = box_in(Phase.TRIAL)
    box.record = replace(box.record, transitions_used=TRANSITION_BUDGET)
    box.see(ev.CandidateDied(Cause.OOM))
    assert box.phase is Phase.ROLLBACK
    box.see(SERVED)
    assert box.results() == [("failed_rolled_back", Cause.TRANSITION_BUDGET)]


@pytest.mark.parametrize("phase", [Phase.PLAN, Phase.DEFERRED, *STAGED])
def test_abort_before_the_switch_leaves_everything_as_it_was(phase: Phase) -> None:
    box = box_in(phase)
    box.see(ev.Aborted())
    assert ef.AnswerAbort("accepted") in box.latest
    assert box.results() == [("aborted", Cause.OPERATOR_ABORT)]
    assert box.record.active == FACTORY
    box.see(ev.ReportStored(), POLL, offer(mark=5))
    assert box.phase is Phase.IDLE


@pytest.mark.parametrize("phase", LIVE)
def test_abort_on_live_frames_rolls_back(phase: Phase) -> None:
    box = box_in(phase)
    box.see(ev.Aborted())
    assert ef.AnswerAbort("accepted") in box.latest
    box.see(SERVED)
    assert box.results() == [("failed_rolled_back", Cause.OPERATOR_ABORT)]


def test_abort_after_confirm_is_answered_no() -> None:
    for box in (box_in(Phase.CONFIRM), box_in(Phase.REPORT)):
        box.see(ev.Aborted())
        assert box.latest == (ef.AnswerAbort("rejected:already_confirmed"),)
    box.see(ev.ReportStored(), ev.Aborted())
    assert box.latest == (ef.AnswerAbort("rejected:already_confirmed"),)
    fresh = Box()
    assert fresh.see(ev.Aborted()) == (ef.AnswerAbort("rejected:nothing_to_abort"),)


def test_a_withdrawal_is_respected_just_before_the_switch() -> None:
    box = box_in(Phase.READY)
    box.see(ev.Go(wanted=False))
    assert not box.did(ef.Switch)
    assert box.results() == [("aborted", Cause.OPERATOR_ABORT)]


@pytest.mark.parametrize("phase", STAGED)
def test_a_newer_offer_replaces_an_update_before_the_switch(phase: Phase) -> None:
    box = box_in(phase)
    box.see(ev.Announced(Mark(0, 2)), offer(2, mark=2))
    assert box.results() == [("superseded", Cause.SUPERSEDED)]
    assert (ef.StopShadow() in box.latest) == (phase is Phase.SHADOW)
    box.see(ev.ReportStored())
    assert box.phase is Phase.TRUST
    box.see(offer(2, mark=2))
    assert box.at(Phase.PLAN)


@pytest.mark.parametrize("phase", [*LIVE, Phase.CONFIRM, Phase.ROLLBACK, Phase.REPORT])
def test_a_newer_offer_waits_for_the_end_of_a_trial(phase: Phase) -> None:
    box = box_in(phase)
    box.see(offer(2, mark=2))
    assert box.phase is phase
    endings = {
        Phase.SWITCH: PATH[9:],
        Phase.TRIAL: PATH[10:],
        Phase.CONFIRM: PATH[11:],
        Phase.REPORT: PATH[12:],
    }
    rest = [event for event, _ in endings[phase]] if phase in endings else [SERVED, ev.ReportStored()]
    box.see(*rest)
    assert box.phase is Phase.TRUST


@pytest.mark.parametrize("phase", STAGED_OR_LIVE)
def test_an_edit_of_another_rollout_does_not_restart_this_one(phase: Phase) -> None:
    box = box_in(phase)
    box.see(offer(mark=7))
    assert box.phase is phase
    assert box.record.queued is None
    assert box.record.seen == Mark(0, 7)


def test_a_downgrade_needs_a_rollout_that_means_it() -> None:
    """I3: a validly signed older release is refused, unless the return from this very release is meant."""
    proven = UpdateRecord(active=ModelRef(SHA[5], 5), release_floor=5)
    plain = Box(proven)
    plain.see(POLL, offer(3))
    assert plain.results() == [("rejected", Cause.ROLLBACK_ATTACK)]
    others = Box(proven)
    others.see(POLL, offer(3, rollback_of=6))
    assert others.results() == [("rejected", Cause.WRONG_DEVICE)]
    meant = Box(proven)
    meant.see(POLL, offer(3, rollback_of=5), *[event for event, _ in PATH[2:]])
    assert meant.record.active == ModelRef(SHA[3], 3)
    assert meant.record.release_floor == 5


def test_the_old_model_broken_too_leads_down_the_ladder_to_safe() -> None:
    """Previous bad, then older confirmed ones, then the factory's; then nobody answers, and updates go on."""
    box = box_in(Phase.ROLLBACK)
    bad = ev.ProvenBad(Cause.HASH_MISMATCH)
    assert box.see(bad)[-1] == ef.ServeConfirmed((FACTORY.sha256, SHA[1]))
    assert box.see(bad)[-1] == ef.ServeFactory()
    box.see(bad)
    assert box.results() == [("failed_unable_to_rollback", Cause.ERROR_RATE)]
    assert box.see(ev.ReportStored())[-1] == ef.AnswerUnavailable()
    assert box.phase is Phase.SAFE
    box.see(POLL, offer(2, mark=2), *[event for event, _ in PATH[2:]])
    assert (box.phase, box.record.active) == (Phase.IDLE, ModelRef(SHA[2], 2))


def test_an_older_model_that_serves_is_reported_for_what_it_is() -> None:
    box = box_in(Phase.ROLLBACK)
    box.see(ev.ProvenBad(Cause.IO_ERROR), ev.ProvenServes(SHA[8], 8))
    assert box.results() == [("failed_unable_to_rollback", Cause.ERROR_RATE)]
    assert box.did(ef.StoreReport)[-1].report.serving == SHA[8]
    assert box.record.active == ModelRef(SHA[8], 8)


def test_a_model_that_rots_in_the_store_is_replaced_while_an_update_goes_on() -> None:
    """Case 35: bad current, previous good."""
    box = box_in(Phase.FETCH)
    box.see(ev.ProvenBad(Cause.HASH_MISMATCH), ev.ProvenServes(SHA[8], 8), ev.Fetched(10))
    assert (box.phase, box.record.active, box.record.rung) == (
        Phase.VERIFY_PATCH,
        ModelRef(SHA[8], 8),
        Rung.ACTIVE,
    )


def test_safe_gives_every_model_another_chance_at_the_next_start() -> None:
    box = Box()
    box.see(*[ev.ProvenBad(Cause.LOAD_FAIL)] * 3)
    assert box.phase is Phase.SAFE
    assert ef.ServeConfirmed(()) in box.power_cut()
    box.see(ev.ProvenBad(Cause.LOAD_FAIL), ev.ProvenServes(FACTORY.sha256, 0))
    assert (box.phase, box.record.active) == (Phase.IDLE, FACTORY)


def test_a_lost_record_is_rebuilt_from_the_store_and_said() -> None:
    """Case 35: state lost; the counters of the trust record still hold."""
    box = Box(lost_record(seen=Mark(0, 4), release_floor=3))
    box.see(ev.Started())
    assert [notice.cause for notice in box.did(ef.StoreNotice)] == [Cause.STATE_LOST]
    assert ef.ServeConfirmed(()) in box.latest
    box.see(ev.ProvenServes(SHA[3], 3), POLL, offer(2, mark=5))
    assert box.results() == [("rejected", Cause.ROLLBACK_ATTACK)]


def test_confirm_is_finished_after_a_power_cut() -> None:
    box = box_in(Phase.CONFIRM)
    assert box.power_cut()[1:] == (ef.MarkConfirmed(SHA[1]),)
    box.see(ev.MarkedConfirmed())
    assert ef.ServeActive(SHA[1]) in box.latest
    assert box.results() == [("success", None)]


def test_a_report_is_stored_again_after_a_power_cut_under_the_same_number() -> None:
    """Case 37: final state reported truthfully, once, also after a lost report; never a cause of rollback."""
    box = box_in(Phase.REPORT)
    box.see(ev.ReportUnstored())
    box.power_cut()
    assert len(box.did(ef.StoreReport)) == 2
    assert len(box.results()) == 1
    assert box.phase is Phase.REPORT


def test_trial_time_adds_up_over_restarts() -> None:
    box = box_in(Phase.TRIAL)
    box.see(ev.TrialProgressed(60.0))
    box.power_cut()
    box.see(ev.Switched("next boot"), ev.TrialProgressed(30.0))
    assert (box.disk.trial_used_s, box.disk.trial_boot_id) == (90.0, "next boot")


def test_an_event_that_contradicts_the_record_is_refused() -> None:
    box = box_in(Phase.APPLY)
    for files in ((), (3,), (-1,)):
        with pytest.raises(InternalError, match="of an update of 3 files"):
            step(box.record, ev.ApplyFailed(files, Cause.IO_ERROR))
    with pytest.raises(IllegalEventError):
        step(box.record, ev.TrialPassed())
    assert box.phase is Phase.APPLY


def test_a_release_of_many_files_stays_within_the_budget() -> None:
    """Files go through the phases together, so their number costs no transitions."""
    files = tuple(FileProgress(DELTA, FULL) for _ in range(200))
    box = box_in(Phase.PLAN)
    box.see(ev.Planned(files, 1 << 20), ev.FetchLost(tuple(range(50)), Cause.BLOB_MISSING), ev.Fetched())
    box.see(ev.PatchesBad(tuple(range(50, 100))), ev.Fetched(), ev.PatchesGood())
    box.see(ev.ApplyFailed(tuple(range(100, 150)), Cause.BASE_MISMATCH), ev.Fetched(), ev.PatchesGood())
    box.see(ev.Applied(), ev.OutputsBad(tuple(range(150, 200))), *[event for event, _ in PATH[3:]])
    assert box.results() == [("success", None)]
    assert box.phase in HOME
