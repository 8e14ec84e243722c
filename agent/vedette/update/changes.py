"""What a record learns from an event, by name for the machine's table; the phase is the table's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from vedette.errors import InternalError
from vedette.update.causes import Cause, Result
from vedette.update.guards import TRIES, lower_word, may_come_again, refusal_word
from vedette.update.record import (
    MAX_BLACKLIST,
    MAX_DETAIL_CHARS,
    REUSE,
    Blacklisted,
    Candidate,
    FileProgress,
    ModelRef,
    Report,
    Rung,
    Stage,
    UpdateRecord,
    forget_update,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update import events as ev

MAX_NOTICED = 16


def keep(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """Nothing is learned."""
    return record


def note_lower(record: UpdateRecord, event: ev.Announced | ev.Offered) -> UpdateRecord:
    """Somebody was told of this old document."""
    return _notice(record, lower_word(event))


def note_refusal(record: UpdateRecord, event: ev.TrustRefused) -> UpdateRecord:
    """Somebody was told of this refusal."""
    return _notice(record, refusal_word(event))


def trusted(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """Signed metadata was good: a later refusal is news."""
    kept = tuple(word for word in record.noticed if not word.startswith("trust "))
    return replace(record, noticed=kept)


def note_mark(record: UpdateRecord, event: ev.Offered) -> UpdateRecord:
    """The document was acted on, by doing nothing."""
    return trusted(replace(record, seen=max(record.seen, event.mark)), event)


def take_up(record: UpdateRecord, event: ev.Offered) -> UpdateRecord:
    """The offer becomes the candidate."""
    candidate = Candidate(
        sha256=event.sha256,
        counter=event.counter,
        manifest_sha256=event.manifest_sha256,
        rollout=event.rollout,
        offered=event.mark,
        shadow=event.shadow,
        rollback_of=event.rollback_of,
        name=event.name,
    )
    return replace(note_mark(record, event), candidate=candidate, queued=None)


def queue(record: UpdateRecord, event: ev.Offered) -> UpdateRecord:
    """Remember that there is a newer offer."""
    newest = event.mark if record.queued is None else max(record.queued, event.mark)
    return replace(note_mark(record, event), queued=newest)


def put_off(record: UpdateRecord, event: ev.PlanDeferred) -> UpdateRecord:
    """For whoever asks: why not now."""
    return replace(record, detail=event.reason[:MAX_DETAIL_CHARS])


def begin(record: UpdateRecord, event: ev.Planned) -> UpdateRecord:
    """The update starts, with its plan."""
    files = tuple(
        replace(progress, stage=Stage.CHECKED if progress.encoding == REUSE else Stage.WANTED, attempts=0)
        for progress in event.files
    )
    named = replace(record, files=files, bytes_limit=event.bytes_limit, update_id=_new_id(record))
    return replace(named, tries_left=TRIES, detail="")


def fetched(record: UpdateRecord, event: ev.Fetched) -> UpdateRecord:
    """Wanted blobs are there; what kept them from coming is over."""
    moved = _moved(record, event.fetched_bytes)
    return _advance(replace(moved, cause=None, detail=""), Stage.WANTED)


def stalled(record: UpdateRecord, event: ev.FetchStalled) -> UpdateRecord:
    """One round is used up."""
    moved = _moved(record, event.fetched_bytes)
    return replace(
        moved,
        fetch_rounds=record.fetch_rounds + 1,
        cause=Cause.CONNECTIVITY_LOST,
        detail=event.detail[:MAX_DETAIL_CHARS],
    )


def lost(record: UpdateRecord, event: ev.FetchLost) -> UpdateRecord:
    """Files without their blobs go on to their full encodings; the others stay to be fetched."""
    return _fall_back(_why(_moved(record, event.fetched_bytes), event), event.files)


def patches_checked(record: UpdateRecord, _event: ev.PatchesGood) -> UpdateRecord:
    """Fetched blobs are good."""
    return _advance(record, Stage.FETCHED)


def patches_sorted(record: UpdateRecord, event: ev.PatchesBad) -> UpdateRecord:
    """Bad blobs are fetched again, as full ones; the others are good."""
    return _fall_back(_why(_advance(record, Stage.FETCHED, but=event.files), event), event.files)


def made(record: UpdateRecord, _event: ev.Applied) -> UpdateRecord:
    """Files are made."""
    return _advance(record, Stage.CHECKED)


def partly_made(record: UpdateRecord, event: ev.ApplyFailed) -> UpdateRecord:
    """Failed files go on to their full encodings; the others are made."""
    return _fall_back(_advance(record, Stage.CHECKED, but=event.files), event.files)


def proven(record: UpdateRecord, _event: ev.OutputsGood) -> UpdateRecord:
    """The bundle is in the store; the coming preflight is counted before it runs."""
    return count_preflight(_advance(record, Stage.MADE), _event)


def partly_proven(record: UpdateRecord, event: ev.OutputsBad) -> UpdateRecord:
    """Wrong files go on to their full encodings; the others are right."""
    return _fall_back(_advance(record, Stage.MADE, but=event.files), event.files)


def doubt_patches(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """After a restart, blobs are hashed again before they are decoded."""
    files = tuple(
        replace(progress, stage=Stage.FETCHED)
        if progress.stage is Stage.CHECKED and progress.encoding != REUSE
        else progress
        for progress in record.files
    )
    return replace(record, files=files)


def count_preflight(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """Counted before it is tried: a candidate that kills the agent must not do so for ever."""
    return replace(record, preflight_tries=record.preflight_tries + 1)


def survived(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """Nothing of the candidate is loaded any more, so a restart from here says nothing against it."""
    return replace(record, preflight_tries=0)


def commit(record: UpdateRecord, event: ev.Go) -> UpdateRecord:
    """The switch is decided; its first try is spent before it is made."""
    return spend_try(replace(record, baseline=event.baseline, trial_used_s=0.0), event)


def spend_try(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """Spent on disk before the candidate is loaded, so that power cuts count as well."""
    return replace(record, tries_left=record.tries_left - 1)


def on_trial(record: UpdateRecord, event: ev.Switched) -> UpdateRecord:
    """The candidate answers, in this boot."""
    return replace(record, trial_boot_id=event.boot_id)


def add_trial_time(record: UpdateRecord, event: ev.TrialProgressed) -> UpdateRecord:
    """Trial time adds up over reboots."""
    return replace(record, trial_used_s=record.trial_used_s + max(event.used_s, 0.0))


def confirm(record: UpdateRecord, event: ev.MarkedConfirmed) -> UpdateRecord:
    """The candidate becomes the active model; only now does the floor rise (casebook 37)."""
    candidate = _candidate(record)
    confirmed = replace(
        record,
        previous=record.active,
        active=ModelRef(candidate.sha256, candidate.counter),
        rung=Rung.ACTIVE,
        release_floor=max(record.release_floor, candidate.counter),
        blacklist=tuple(entry for entry in record.blacklist if entry.sha256 != candidate.sha256),
    )
    return ends(Result.SUCCESS)(confirmed, event)


def step_down(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """The next rung; without an active model the first one is empty."""
    return replace(record, rung=Rung(record.rung + 1))


def lose_model(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """No model is good."""
    return replace(record, active=None, previous=None, rung=Rung.NONE)


def found_model(record: UpdateRecord, event: ev.ProvenServes) -> UpdateRecord:
    """What serves is the active model; what comes after it in the store is the next to fall back to."""
    if record.active is not None and record.active.sha256 == event.sha256:
        return replace(record, rung=Rung.ACTIVE)
    previous = record.previous
    if previous is None or previous.sha256 == event.sha256:
        previous = event.next_best
    return replace(record, active=ModelRef(event.sha256, event.counter), previous=previous, rung=Rung.ACTIVE)


def top_rung(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """After a restart every model gets another chance."""
    return replace(record, rung=Rung.ACTIVE if record.active is not None else Rung.CONFIRMED)


def condemn(
    cause: Cause | None = None, *, blacklist: bool = True
) -> Callable[[UpdateRecord, ev.Event], UpdateRecord]:
    """Give the candidate up, for `cause` or the event's, on disk before anything is done (casebook 37)."""

    def change(record: UpdateRecord, event: ev.Event) -> UpdateRecord:
        reason = cause or _cause(record, event) or Cause.CRASH_LOOP
        detail = _detail(event) or record.detail
        record = replace(record, cause=reason, detail=detail[:MAX_DETAIL_CHARS])
        if not record.rung and record.active is None:
            record = replace(record, rung=Rung.CONFIRMED)
        return _blacklist(record, reason) if blacklist else record

    return change


def ends(
    result: Result, cause: Cause | None = None, *, blacklist: bool = False, undelivered: bool = False
) -> Callable[[UpdateRecord, ev.Event], UpdateRecord]:
    """The update has its one result; the candidate is named by the report alone from here on."""

    def change(record: UpdateRecord, event: ev.Event) -> UpdateRecord:
        candidate = _candidate(record)
        reason = None if result is Result.SUCCESS else cause or _cause(record, event)
        detail = (_detail(event) or record.detail)[:MAX_DETAIL_CHARS]
        if blacklist and reason is not None:
            record = _blacklist(record, reason)
        report = Report(
            update_id=record.update_id or _new_id(record),
            seq=record.phase_seq + 1,
            result=result,
            cause=reason,
            detail=detail,
            sha256=candidate.sha256,
            counter=candidate.counter,
            rollout=candidate.rollout,
            offered=candidate.offered,
            serving="" if record.active is None else record.active.sha256,
            bytes_fetched=record.bytes_fetched,
            undelivered=undelivered,
            name=candidate.name,
        )
        space = getattr(event, "space_wanted_bytes", 0)
        done = replace(forget_update(record), transitions_used=record.transitions_used)
        return replace(
            done,
            report=report,
            update_id=report.update_id,
            cause=reason,
            detail=detail,
            space_wanted_bytes=space,
        )

    return change


def refuse(cause: Cause) -> Callable[[UpdateRecord, ev.Offered], UpdateRecord]:
    """An offer that may not be taken up is answered, and not planned."""

    def change(record: UpdateRecord, event: ev.Offered) -> UpdateRecord:
        return ends(Result.REJECTED, cause)(take_up(record, event), event)

    return change


def stalled_out(record: UpdateRecord, event: ev.FetchStalled) -> UpdateRecord:
    """No round is left."""
    return ends(Result.FAILED_NO_CHANGE, Cause.CONNECTIVITY_LOST)(stalled(record, event), event)


def superseded(record: UpdateRecord, event: ev.Offered) -> UpdateRecord:
    """A newer offer ends this update; it is looked at next."""
    return ends(Result.SUPERSEDED, Cause.SUPERSEDED)(queue(record, event), event)


def fallen(record: UpdateRecord, event: ev.ProvenServes) -> UpdateRecord:
    """Another proven model than the one of before serves: the truth is reported."""
    return ends(Result.FAILED_UNABLE_TO_ROLLBACK)(found_model(record, event), event)


def stranded(record: UpdateRecord, event: ev.ProvenBad) -> UpdateRecord:
    """No model is good; the cause stays the candidate's."""
    lost_all = lose_model(record, event)
    return ends(Result.FAILED_UNABLE_TO_ROLLBACK, record.cause)(lost_all, event)


def file_report(record: UpdateRecord, _event: ev.Event) -> UpdateRecord:
    """The result is history."""
    report = record.report
    if report is None:
        raise InternalError("a report was stored that the record does not have")
    last = record.last
    again = last is not None and (last.sha256, last.offered) == (report.sha256, report.offered)
    cycles = (record.cycles + 1 if again else 1) if may_come_again(report) else 0
    return replace(forget_update(record), last=report, cycles=cycles, queued=None)


def _candidate(record: UpdateRecord) -> Candidate:
    if record.candidate is None:
        raise InternalError(f"phase {record.phase.value} without a candidate")
    return record.candidate


def _cause(record: UpdateRecord, event: ev.Event) -> Cause | None:
    cause = getattr(event, "cause", None)
    return cause if isinstance(cause, Cause) else record.cause


def _detail(event: ev.Event) -> str:
    return str(getattr(event, "detail", ""))


def _new_id(record: UpdateRecord) -> str:
    """Unique on this box: `phase_seq` only grows."""
    candidate = _candidate(record)
    mark = candidate.offered
    return f"{mark.epoch}.{mark.counter}-{candidate.sha256[:12]}-{record.phase_seq + 1}"


def _notice(record: UpdateRecord, word: str) -> UpdateRecord:
    return replace(record, noticed=(*record.noticed, word)[-MAX_NOTICED:])


def _blacklist(record: UpdateRecord, cause: Cause) -> UpdateRecord:
    candidate = _candidate(record)
    offered = max(record.seen, candidate.offered)
    entry = Blacklisted(candidate.sha256, offered, candidate.rollout, cause, candidate.name)
    others = tuple(old for old in record.blacklist if old.sha256 != candidate.sha256)
    return replace(record, blacklist=(*others, entry)[-MAX_BLACKLIST:])


def _moved(record: UpdateRecord, fetched_bytes: int) -> UpdateRecord:
    return replace(record, bytes_fetched=record.bytes_fetched + max(fetched_bytes, 0))


def _why(record: UpdateRecord, event: ev.FetchLost | ev.PatchesBad) -> UpdateRecord:
    """For whoever asks meanwhile: why it is fetched in another way."""
    return replace(record, cause=_cause(record, event), detail=event.detail[:MAX_DETAIL_CHARS])


def _advance(record: UpdateRecord, stage: Stage, *, but: tuple[int, ...] = ()) -> UpdateRecord:
    files = tuple(
        replace(progress, stage=Stage(stage + 1))
        if progress.stage is stage and index not in but
        else progress
        for index, progress in enumerate(record.files)
    )
    return replace(record, files=files)


def _fall_back(record: UpdateRecord, files: tuple[int, ...]) -> UpdateRecord:
    return replace(
        record,
        files=tuple(
            FileProgress(progress.full, progress.full, Stage.WANTED, progress.attempts + 1)
            if index in files
            else progress
            for index, progress in enumerate(record.files)
        ),
    )
