"""What is done when a row of the machine's table is taken, or a phase entered: builders of effects. Pure.

They see the record as it will be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.update import effects as ef
from vedette.update.causes import Cause
from vedette.update.guards import MAX_CYCLES, rest_s
from vedette.update.record import REUSE, Rung, Stage, UpdateRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update import events as ev

AWAY_DELAY_S = 300.0
REPORT_DELAY_S = 60.0
FETCH_DELAY_S = 30.0
MAX_DELAY_S = 3600.0
MAX_RETRY_AFTER_S = 6 * 3600.0

Effects = tuple[ef.Effect, ...]


def nothing(_record: UpdateRecord, _event: ev.Event) -> Effects:
    """No effect but those of the phase entered."""
    return ()


def serve(record: UpdateRecord, _event: ev.Event) -> Effects:
    """Serve the rung that the record is on."""
    if record.rung is Rung.ACTIVE and record.active is not None:
        return (ef.ServeActive(record.active.sha256),)
    if record.rung <= Rung.CONFIRMED:
        return (ef.ServeConfirmed(_excluded(record)),)
    return (ef.ServeFactory(),) if record.rung is Rung.FACTORY else (ef.AnswerUnavailable(),)


def refresh(_record: UpdateRecord, _event: ev.Event) -> Effects:
    """Look at signed metadata."""
    return (ef.RefreshTrust(),)


def tidy(record: UpdateRecord, _event: ev.Event) -> Effects:
    """Collect what nothing names any more; while no model is proven, any bundle may be the way back (I1)."""
    return (ef.CollectGarbage(_kept(record), bundles=record.active is not None),)


def recover(record: UpdateRecord, event: ev.Event) -> Effects:
    """Serve a proven model, then clear what a cut left behind."""
    return (*serve(record, event), *tidy(record, event))


def tell_lower(_record: UpdateRecord, event: ev.Announced | ev.Offered) -> Effects:
    """Somebody serves old documents."""
    mark = event.mark
    if mark is None:
        return ()
    return (ef.StoreNotice(Cause.ROLLBACK_ATTACK, f"document {mark.counter} is older than one seen", mark),)


def tell_refused(record: UpdateRecord, event: ev.TrustRefused) -> Effects:
    """Signed metadata was refused."""
    return (ef.StoreNotice(event.cause, event.detail, record.seen),)


def tell_bad(record: UpdateRecord, event: ev.ProvenBad) -> Effects:
    """A proven model failed, outside of any trial."""
    return (ef.StoreNotice(event.cause, f"a proven model does not serve: {event.detail}", record.seen),)


def tell_and_serve(record: UpdateRecord, event: ev.ProvenBad) -> Effects:
    """Say so, and serve the next."""
    return (*tell_bad(record, event), *serve(record, event))


def tell_lost(record: UpdateRecord, event: ev.Event) -> Effects:
    """The record itself was lost."""
    notice = ef.StoreNotice(Cause.STATE_LOST, "the update record was lost or not understood", record.seen)
    return (notice, *recover(record, event))


def look_later(_record: UpdateRecord, _event: ev.Event) -> Effects:
    """The repository was away."""
    return (ef.Schedule(AWAY_DELAY_S),)


def end(record: UpdateRecord, event: ev.Event) -> Effects:
    """Tidy up; what failed for a fault that is not its own is looked at again before the next poll."""
    if not record.cycles:
        return tidy(record, event)
    soon_s = AWAY_DELAY_S * 3.0 ** min(record.cycles, MAX_CYCLES)
    return (*tidy(record, event), ef.Schedule(max(soon_s, rest_s(record.cycles))))


def defer(_record: UpdateRecord, event: ev.PlanDeferred) -> Effects:
    """The plan named the time."""
    return (ef.Schedule(event.wait_s),)


def fetch(record: UpdateRecord, _event: ev.Event) -> Effects:
    """Fetch what is wanted, within what is left of the bytes."""
    blobs = _at(record, Stage.WANTED)
    return (ef.Fetch(blobs, max(record.bytes_limit - record.bytes_fetched, 0)),)


def fetch_later(record: UpdateRecord, event: ev.FetchStalled) -> Effects:
    """Exponential, capped; the server's word counts within reason. The driver adds jitter."""
    delay_s = min(FETCH_DELAY_S * 2.0 ** min(record.fetch_rounds - 1, 20), MAX_DELAY_S)
    if event.retry_after_s is not None:
        delay_s = min(max(delay_s, event.retry_after_s), MAX_RETRY_AFTER_S)
    return tuple(ef.Schedule(delay_s, again) for again in fetch(record, event))


def discard(
    _record: UpdateRecord, event: ev.FetchLost | ev.PatchesBad | ev.ApplyFailed | ev.OutputsBad
) -> Effects:
    """Staged bytes that are wrong go first."""
    return (ef.DiscardBlobs(event.files),)


def store_later(record: UpdateRecord, event: ev.Event) -> Effects:
    """The outbox is tried again."""
    return tuple(ef.Schedule(REPORT_DELAY_S, again) for again in store(record, event))


def answer(word: str) -> Callable[[UpdateRecord, ev.Event], Effects]:
    """Tell whoever asked to abort."""

    def act(_record: UpdateRecord, _event: ev.Event) -> Effects:
        return (ef.AnswerAbort(word),)

    return act


def verify_patches(record: UpdateRecord, _event: ev.Event) -> Effects:
    """Hash fetched blobs."""
    return (ef.VerifyPatches(_at(record, Stage.FETCHED)),)


def apply(record: UpdateRecord, _event: ev.Event) -> Effects:
    """Make files of checked blobs and copies."""
    return (ef.Apply(_at(record, Stage.CHECKED)),)


def verify_outputs(record: UpdateRecord, _event: ev.Event) -> Effects:
    """Hash made files."""
    return (ef.VerifyOutputs(tuple(file for file, _ in _at(record, Stage.MADE))),)


def store(record: UpdateRecord, _event: ev.Event) -> Effects:
    """Into the outbox, if there is a result."""
    return () if record.report is None else (ef.StoreReport(record.report),)


def report(record: UpdateRecord, event: ev.Event) -> Effects:
    """Clear staging first, so that a full disk can take the report."""
    return (*tidy(record, event), *store(record, event))


def on_candidate(effect: Callable[[str], ef.Effect]) -> Callable[[UpdateRecord, ev.Event], Effects]:
    """An effect on the candidate's bundle."""

    def act(record: UpdateRecord, _event: ev.Event) -> Effects:
        return () if record.candidate is None else (effect(record.candidate.sha256),)

    return act


def just(effect: ef.Effect) -> Callable[[UpdateRecord, ev.Event], Effects]:
    """An effect that needs nothing of the record."""

    def act(_record: UpdateRecord, _event: ev.Event) -> Effects:
        return (effect,)

    return act


def _at(record: UpdateRecord, stage: Stage) -> tuple[tuple[int, int], ...]:
    """(file, encoding) of the files at a stage; a copy needs neither fetching nor checking."""
    return tuple(
        (index, progress.encoding)
        for index, progress in enumerate(record.files)
        if progress.stage is stage and (progress.encoding != REUSE or stage >= Stage.CHECKED)
    )


def _kept(record: UpdateRecord) -> tuple[str, ...]:
    models = (record.active, record.previous, record.candidate)
    return tuple(dict.fromkeys(model.sha256 for model in models if model is not None))


def _excluded(record: UpdateRecord) -> tuple[str, ...]:
    """Bundles that did not serve, or failed before."""
    tried = (record.active, record.candidate)
    bad = [model.sha256 for model in tried if model is not None]
    return tuple(dict.fromkeys([*bad, *(entry.sha256 for entry in record.blacklist)]))
