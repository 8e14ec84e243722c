"""The update machine as a table: what each phase does, where it goes, and how it recovers. Pure data.

A row reads: in these phases, on this event, if the guard holds, go there, having learned this and done that.
Of the rows for one phase and event the first whose guard holds is taken; the last has no guard. An event
without a row is refused. `HOME` is IDLE, or SAFE while no model is good; `STAY` does not begin it anew.
The diagram in the README and the exhaustive test are made from here.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from vedette.update import acts as do
from vedette.update import changes as ch
from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update import guards as on
from vedette.update.causes import Cause, Result
from vedette.update.phases import AWAY, LIVE, STAGED, WORKING, Phase
from vedette.update.phases import HOME as HOMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update.acts import Effects
    from vedette.update.record import UpdateRecord

E = TypeVar("E", bound=ev.Event)


class Target(Enum):
    """A target that is no phase of its own."""

    STAY = "stay"
    HOME = "home"


STAY, HOME = Target.STAY, Target.HOME


class Row(NamedTuple):
    """One transition."""

    phase: Phase
    event: type[ev.Event]
    when: Callable[[UpdateRecord, Any], bool]
    to: Phase | Target
    change: Callable[[UpdateRecord, Any], UpdateRecord]
    act: Callable[[UpdateRecord, Any], Effects]


class Recovery(NamedTuple):
    """Where a phase goes on when the agent starts with it on disk."""

    to: Phase | Target
    when: Callable[[UpdateRecord, ev.Event], bool] = on.always
    change: Callable[[UpdateRecord, ev.Event], UpdateRecord] = ch.keep
    act: Callable[[UpdateRecord, ev.Event], Effects] | None = None  # None: serve a proven model first


ENTRY: dict[Phase, Callable[[UpdateRecord, ev.Event], Effects]] = {
    Phase.IDLE: do.nothing,
    Phase.TRUST: do.refresh,
    Phase.PLAN: do.just(ef.MakePlan()),
    Phase.DEFERRED: do.nothing,
    Phase.FETCH: do.fetch,
    Phase.VERIFY_PATCH: do.verify_patches,
    Phase.APPLY: do.apply,
    Phase.VERIFY_OUT: do.verify_outputs,
    Phase.PREFLIGHT: do.on_candidate(ef.Preflight),
    Phase.SHADOW: do.on_candidate(ef.StartShadow),
    Phase.READY: do.just(ef.AwaitGo()),
    Phase.SWITCH: do.on_candidate(ef.Switch),
    Phase.TRIAL: do.just(ef.WatchTrial()),
    Phase.CONFIRM: do.on_candidate(ef.MarkConfirmed),
    Phase.ROLLBACK: do.serve,
    Phase.SAFE: do.just(ef.AnswerUnavailable()),
    Phase.REPORT: do.report,
    Phase.UNKNOWN: do.nothing,
}

EXIT: dict[Phase, Callable[[UpdateRecord, ev.Event], Effects]] = {Phase.SHADOW: do.just(ef.StopShadow())}

_AGAIN = (
    Recovery(Phase.PREFLIGHT, on.preflights_left, ch.count_preflight),
    Recovery(Phase.REPORT, on.always, ch.ends(Result.FAILED_NO_CHANGE, Cause.CRASH_LOOP, blacklist=True)),
)
_TRY = (
    Recovery(Phase.SWITCH, on.tries_left, ch.spend_try),
    Recovery(Phase.ROLLBACK, on.always, ch.condemn(Cause.CRASH_LOOP), do.nothing),
)
_HOME = (Recovery(HOME, on.always, ch.top_rung, do.recover),)

_LOST = ch.condemn(Cause.STATE_LOST, blacklist=False)

RECOVERY: dict[Phase, tuple[Recovery, ...]] = {
    Phase.IDLE: _HOME,
    Phase.TRUST: _HOME,
    Phase.PLAN: _HOME,
    Phase.DEFERRED: _HOME,
    Phase.FETCH: (Recovery(Phase.FETCH),),
    Phase.VERIFY_PATCH: (Recovery(Phase.VERIFY_PATCH),),
    Phase.APPLY: (Recovery(Phase.VERIFY_PATCH, on.always, ch.doubt_patches),),
    Phase.VERIFY_OUT: (Recovery(Phase.VERIFY_OUT),),
    Phase.PREFLIGHT: _AGAIN,
    Phase.SHADOW: _AGAIN,
    Phase.READY: _AGAIN,
    Phase.SWITCH: _TRY,
    Phase.TRIAL: _TRY,
    Phase.CONFIRM: (Recovery(Phase.CONFIRM, on.always, ch.keep, do.nothing),),
    Phase.ROLLBACK: (Recovery(Phase.ROLLBACK, on.always, ch.keep, do.nothing),),
    Phase.SAFE: _HOME,
    Phase.REPORT: (Recovery(Phase.REPORT),),
    Phase.UNKNOWN: (
        Recovery(Phase.ROLLBACK, on.with_candidate, _LOST, do.nothing),
        Recovery(HOME, on.always, ch.top_rung, do.tell_lost),
    ),
}


def _row(
    phases: Phase | tuple[Phase, ...],
    event: type[E],
    to: Phase | Target,
    change: Callable[[UpdateRecord, E], UpdateRecord] = ch.keep,
    act: Callable[[UpdateRecord, E], Effects] = do.nothing,
    *,
    when: Callable[[UpdateRecord, E], bool] = on.always,
) -> list[Row]:
    """One row for each of the phases."""
    each = phases if isinstance(phases, tuple) else (phases,)
    return [Row(phase, event, when, to, change, act) for phase in each]


def _recoveries() -> list[Row]:
    return [
        Row(phase, ev.Started, column.when, column.to, column.change, column.act or do.serve)
        for phase, columns in RECOVERY.items()
        for column in columns
    ]


_NO_CHANGE = ch.ends(Result.FAILED_NO_CHANGE)
_CONDEMNED = ch.ends(Result.FAILED_NO_CHANGE, blacklist=True)
_MISMATCH = ch.ends(Result.FAILED_NO_CHANGE, Cause.HASH_MISMATCH)
# Blobs that did not come, or came damaged: a fault of the road, which nobody signs for.
_UNDELIVERED = ch.ends(Result.FAILED_NO_CHANGE, undelivered=True)
_DAMAGED = ch.ends(Result.FAILED_NO_CHANGE, Cause.HASH_MISMATCH, undelivered=True)
_WITHDRAWN = ch.ends(Result.ABORTED, Cause.OPERATOR_ABORT)
_ABORTED = ch.ends(Result.ABORTED, Cause.OPERATOR_ABORT, blacklist=True)
_LATE = (Phase.CONFIRM, Phase.ROLLBACK, Phase.REPORT)
_UNDERWAY = (*STAGED, *LIVE)
P = Phase

ROWS: tuple[Row, ...] = (
    *_recoveries(),
    # Looking for work.
    *_row(
        (*HOMES, P.DEFERRED), ev.Announced, STAY, ch.note_lower, do.tell_lower, when=on.lower_and_new_to_us
    ),
    *_row((*HOMES, P.DEFERRED), ev.Announced, STAY, when=on.old_news),
    *_row((*HOMES, P.DEFERRED), ev.Announced, P.TRUST),
    *_row(P.TRUST, ev.Offered, HOME, ch.note_lower, do.tell_lower, when=on.lower_and_new_to_us),
    *_row(P.TRUST, ev.Offered, HOME, when=on.lower),
    *_row(P.TRUST, ev.Offered, HOME, ch.note_mark, when=on.active_already),
    *_row(P.TRUST, ev.Offered, HOME, ch.note_mark, when=on.blacklisted),
    *_row(P.TRUST, ev.Offered, HOME, ch.note_mark, when=on.finished_already),
    *_row(P.TRUST, ev.Offered, P.REPORT, ch.refuse(Cause.ROLLBACK_ATTACK), when=on.downgrade),
    *_row(P.TRUST, ev.Offered, P.REPORT, ch.refuse(Cause.WRONG_DEVICE), when=on.return_of_others),
    *_row(P.TRUST, ev.Offered, P.PLAN, ch.take_up),
    *_row(P.TRUST, ev.NothingOffered, HOME, ch.trusted),
    *_row(P.TRUST, ev.TrustRefused, HOME, ch.note_refusal, do.tell_refused, when=on.unnoticed),
    *_row(P.TRUST, ev.TrustRefused, HOME),
    *_row(P.TRUST, ev.TrustAway, HOME, ch.keep, do.look_later),
    *_row(P.PLAN, ev.Planned, P.FETCH, ch.begin),
    *_row(P.PLAN, ev.PlanDeferred, P.DEFERRED, ch.put_off, do.defer),
    *_row(P.PLAN, ev.PlanRefused, HOME, when=on.said_already),
    *_row(P.PLAN, ev.PlanRefused, P.REPORT, _NO_CHANGE, when=on.no_space),
    *_row(P.PLAN, ev.PlanRefused, P.REPORT, ch.ends(Result.REJECTED)),
    # Making the candidate's files.
    *_row(P.FETCH, ev.Fetched, P.VERIFY_PATCH, ch.fetched),
    *_row(P.FETCH, ev.FetchStalled, STAY, ch.stalled, do.fetch_later, when=on.rounds_left),
    *_row(P.FETCH, ev.FetchStalled, P.REPORT, ch.stalled_out),
    *_row(P.FETCH, ev.FetchLost, P.FETCH, ch.lost, do.discard, when=on.full_is_left),
    *_row(P.FETCH, ev.FetchLost, P.REPORT, _UNDELIVERED),
    *_row(P.VERIFY_PATCH, ev.PatchesGood, P.APPLY, ch.patches_checked),
    *_row(P.VERIFY_PATCH, ev.PatchesBad, P.FETCH, ch.patches_sorted, do.discard, when=on.may_fetch_again),
    *_row(P.VERIFY_PATCH, ev.PatchesBad, P.REPORT, _DAMAGED),
    *_row(P.APPLY, ev.Applied, P.VERIFY_OUT, ch.made),
    *_row(P.APPLY, ev.ApplyFailed, P.FETCH, ch.partly_made, do.discard, when=on.full_is_left),
    *_row(P.APPLY, ev.ApplyFailed, P.REPORT, _NO_CHANGE),
    *_row(P.VERIFY_OUT, ev.OutputsGood, P.PREFLIGHT, ch.proven),
    *_row(P.VERIFY_OUT, ev.OutputsBad, P.FETCH, ch.partly_proven, do.discard, when=on.full_is_left),
    *_row(P.VERIFY_OUT, ev.OutputsBad, P.REPORT, _MISMATCH),
    *_row((*WORKING, P.PREFLIGHT, P.SHADOW), ev.WorkFailed, P.REPORT, _NO_CHANGE),
    # Proving it without an answer of it going anywhere.
    *_row(P.PREFLIGHT, ev.PreflightPassed, P.SHADOW, when=on.with_shadow),
    *_row(P.PREFLIGHT, ev.PreflightPassed, P.READY, ch.survived),
    *_row(P.PREFLIGHT, ev.PreflightFailed, P.REPORT, _CONDEMNED),
    *_row(P.SHADOW, ev.ShadowPassed, P.READY, ch.survived),
    *_row(P.SHADOW, ev.ShadowFailed, P.REPORT, _CONDEMNED),
    *_row(P.READY, ev.Go, P.SWITCH, ch.commit, when=on.wanted),
    *_row(P.READY, ev.Go, P.REPORT, _WITHDRAWN),
    # On live frames.
    *_row(P.SWITCH, ev.Switched, P.TRIAL, ch.on_trial),
    *_row(LIVE, ev.CandidateDied, P.SWITCH, ch.spend_try, when=on.tries_left),
    *_row(LIVE, ev.CandidateDied, P.ROLLBACK, ch.condemn()),
    *_row(LIVE, ev.TrialFailed, P.ROLLBACK, ch.condemn()),
    *_row(P.TRIAL, ev.TrialProgressed, STAY, ch.add_trial_time),
    *_row(P.TRIAL, ev.TrialPassed, P.CONFIRM),
    *_row(P.CONFIRM, ev.MarkedConfirmed, P.REPORT, ch.confirm, do.serve),
    *_row(P.CONFIRM, ev.WorkFailed, P.ROLLBACK, ch.condemn()),
    *_row((P.CONFIRM, P.ROLLBACK), ev.CandidateDied, STAY),
    *_row(P.ROLLBACK, ev.ProvenServes, P.REPORT, ch.ends(Result.FAILED_ROLLED_BACK), when=on.untouched),
    *_row(P.ROLLBACK, ev.ProvenServes, P.REPORT, ch.fallen),
    *_row(P.ROLLBACK, ev.ProvenBad, STAY, ch.step_down, do.tell_and_serve, when=on.rungs_left),
    *_row(P.ROLLBACK, ev.ProvenBad, P.REPORT, ch.stranded, do.just(ef.AnswerUnavailable())),
    # The end.
    *_row(P.REPORT, ev.ReportStored, P.TRUST, ch.file_report, do.tidy, when=on.with_queue),
    *_row(P.REPORT, ev.ReportStored, HOME, ch.file_report, do.end),
    *_row(P.REPORT, ev.ReportUnstored, STAY, ch.keep, do.store_later),
    # The proven model itself fails: on to the next, whatever the update is doing.
    *_row((*HOMES, *AWAY), ev.ProvenBad, STAY, ch.step_down, do.tell_and_serve, when=on.rungs_left),
    *_row(HOMES, ev.ProvenBad, HOME, ch.lose_model, do.tell_bad),
    *_row(AWAY, ev.ProvenBad, STAY, ch.lose_model, do.just(ef.AnswerUnavailable())),
    *_row(HOMES, ev.ProvenServes, HOME, ch.found_model),
    *_row(AWAY, ev.ProvenServes, STAY, ch.found_model),
    *_row(LIVE, ev.ProvenBad, STAY, ch.step_down, when=on.rungs_left),
    *_row(LIVE, ev.ProvenBad, STAY),
    *_row(LIVE, ev.ProvenServes, STAY),
    # News while an update is under way: a newer offer replaces it before the switch, and waits after it.
    *_row(_UNDERWAY, ev.Announced, STAY, ch.note_lower, do.tell_lower, when=on.lower_and_new_to_us),
    *_row(_UNDERWAY, ev.Announced, STAY, when=on.old_news),
    *_row(_UNDERWAY, ev.Announced, STAY, ch.keep, do.refresh),
    *_row((P.TRUST, P.PLAN, *_LATE), ev.Announced, STAY),
    *_row((*_UNDERWAY, *_LATE), ev.Offered, STAY, ch.note_lower, do.tell_lower, when=on.lower_and_new_to_us),
    *_row((*_UNDERWAY, *_LATE), ev.Offered, STAY, when=on.lower),
    *_row((*_UNDERWAY, P.CONFIRM, P.ROLLBACK), ev.Offered, STAY, ch.note_mark, when=on.same_release),
    *_row(STAGED, ev.Offered, P.REPORT, ch.superseded),
    *_row((*LIVE, *_LATE), ev.Offered, STAY, ch.queue),
    *_row((*_UNDERWAY, *_LATE), ev.NothingOffered, STAY, ch.trusted),
    *_row((*_UNDERWAY, *_LATE), ev.TrustRefused, STAY, ch.note_refusal, do.tell_refused, when=on.unnoticed),
    *_row((*_UNDERWAY, *_LATE), ev.TrustRefused, STAY),
    *_row((*_UNDERWAY, *_LATE), ev.TrustAway, STAY),
    # The operator.
    *_row((P.PLAN, P.DEFERRED), ev.Withdrawn, HOME),
    *_row(STAGED, ev.Withdrawn, P.REPORT, _WITHDRAWN),
    *_row(LIVE, ev.Withdrawn, P.ROLLBACK, ch.condemn(Cause.OPERATOR_ABORT)),
    *_row((*HOMES, P.TRUST, *_LATE), ev.Withdrawn, STAY),
    *_row((P.PLAN, P.DEFERRED, *STAGED), ev.Aborted, P.REPORT, _ABORTED, do.answer("accepted")),
    *_row(LIVE, ev.Aborted, P.ROLLBACK, ch.condemn(Cause.OPERATOR_ABORT), do.answer("accepted")),
    *_row(P.CONFIRM, ev.Aborted, STAY, ch.keep, do.answer("rejected:already_confirmed")),
    *_row(P.ROLLBACK, ev.Aborted, STAY, ch.keep, do.answer("rejected:rolling_back")),
    *_row(
        (*HOMES, P.TRUST, P.REPORT),
        ev.Aborted,
        STAY,
        ch.keep,
        do.answer("rejected:already_confirmed"),
        when=on.succeeded,
    ),
    *_row((*HOMES, P.TRUST, P.REPORT), ev.Aborted, STAY, ch.keep, do.answer("rejected:nothing_to_abort")),
    # Too many transitions.
    *_row(
        STAGED,
        ev.Exhausted,
        P.REPORT,
        ch.ends(Result.FAILED_NO_CHANGE, Cause.TRANSITION_BUDGET, blacklist=True),
        do.serve,
    ),
    *_row(LIVE, ev.Exhausted, P.ROLLBACK, ch.condemn(Cause.TRANSITION_BUDGET)),
)


def _index() -> dict[tuple[Phase, type[ev.Event]], tuple[Row, ...]]:
    found: dict[tuple[Phase, type[ev.Event]], tuple[Row, ...]] = {}
    for row in ROWS:
        key = (row.phase, row.event)
        found[key] = (*found.get(key, ()), row)
    return found


BY_PHASE_AND_EVENT = _index()
