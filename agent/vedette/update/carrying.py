"""One act for each of the machine's effects: begins a job, or does at once what is short."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from vedette.errors import BundleError, InternalError, RecordSchemaError, StorageError
from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update.answer_changes import class_change, read_answers, task_change
from vedette.update.causes import Cause
from vedette.update.jobs import Job, Wait
from vedette.update.outbox import Notice
from vedette.wire.rollout import Guards, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Future
    from pathlib import Path

    from vedette.trust.offer import Offer
    from vedette.update.driver_parts import DriverParts
    from vedette.update.looking import Standing
    from vedette.update.record import UpdateRecord
    from vedette.update.slots import Slots
    from vedette.wire.release import ReleaseManifest

MARKER_RETRY_S = 30.0
SETTLE_S = 0.25
LOOK_S = 0.25
# For a trial whose offer a damaged disk has lost: the defaults of the wire.
_WINDOW, _GUARDS = Window(600.0, 200, 86400.0), Guards()


class Carrying:
    """Carries effects out; `record` is the one that they follow from, kept current by the driver."""

    def __init__(self, parts: DriverParts, slots: Slots, *, emit: Callable[[ev.Event], None]) -> None:
        self._parts = parts
        self._looking = parts.looking
        self._slots = slots
        self._emit = emit
        self.record: UpdateRecord = parts.opened.record
        self.schedule: Callable[[ef.Schedule], None] = _nowhere
        self.abort_answer: Future[str] | None = None
        self.unavailable = False
        self.lost_notices = 0
        self.changes = ""  # what the candidate changes of the answers
        self._acts: dict[type[ef.Effect], Callable[[Any], None]] = {
            ef.Persist: lambda _effect: None,  # the driver has done it, before anything else
            ef.RefreshTrust: self._refresh,
            ef.MakePlan: self._plan,
            ef.DiscardBlobs: self._discard,
            ef.Fetch: self._fetch,
            ef.VerifyPatches: self._verify_patches,
            ef.Apply: self._apply,
            ef.VerifyOutputs: self._verify_outputs,
            ef.Preflight: self._preflight,
            ef.StartShadow: self._shadow,
            ef.StopShadow: lambda _effect: parts.serving.stop_shadow(),
            ef.AwaitGo: self._await_go,
            ef.Switch: self._switch,
            ef.WatchTrial: self._watch,
            ef.ServeActive: lambda effect: slots.begin_serving(parts.serving.active(effect.sha256)),
            ef.ServeConfirmed: lambda effect: slots.begin_serving(parts.serving.confirmed(effect.excluding)),
            ef.ServeFactory: lambda _effect: slots.begin_serving(parts.serving.factory()),
            ef.AnswerUnavailable: self._unavailable,
            ef.MarkConfirmed: lambda effect: slots.begin_work(self._mark(effect.sha256)),
            ef.CollectGarbage: self._collect,
            ef.StoreReport: self._report,
            ef.StoreNotice: lambda effect: self.notice(effect.cause, effect.detail),
            ef.Schedule: self._later,
            ef.AnswerAbort: self._answer_abort,
        }

    def carry_out(self, effect: ef.Effect) -> None:
        """Begin, or do, one effect."""
        self._acts[type(effect)](effect)

    def _later(self, effect: ef.Schedule) -> None:
        self.schedule(effect)

    def notice(self, cause: Cause, detail: str) -> None:
        """Put something worth knowing into the outbox; nothing waits for it."""
        try:
            self._parts.outbox.put_notice(Notice(cause, detail[:512], self.record.seen))
        except StorageError:
            self.lost_notices += 1

    # Looking and planning ---------------------------------------------------------------------------------

    def _refresh(self, _effect: ef.RefreshTrust) -> None:
        self._looking.begin()

    def _plan(self, _effect: ef.MakePlan) -> None:
        offer = self._looking.latest
        if offer is None:
            raise InternalError("a plan is wanted without an offer")
        self._looking.take_up(offer)
        self.changes = ""
        self._slots.begin_work(self._parts.planning.plan(offer))

    def _await_go(self, _effect: ef.AwaitGo) -> None:
        def ask() -> Generator[Wait, None, Standing]:
            self._looking.begin()
            while self._looking.under_way:
                yield Wait(LOOK_S)
            return self._looking.standing()

        self._slots.begin_work(self._parts.planning.await_go(settled=self._settled, ask=ask))

    # Making -----------------------------------------------------------------------------------------------

    def _discard(self, effect: ef.DiscardBlobs) -> None:
        offer = self._looking.offer
        if offer is not None:
            with contextlib.suppress(StorageError):  # what stays is caught by its hash later
                self._parts.fetching.discard(self.record, offer.manifest, effect.files)

    def _fetch(self, effect: ef.Fetch) -> None:
        fetcher = self._looking.fetcher()
        self._with_offer(
            lambda offer: self._parts.fetching.fetch(
                self.record.update_id, fetcher, offer.manifest, effect.blobs, effect.max_bytes
            )
        )

    def _verify_patches(self, effect: ef.VerifyPatches) -> None:
        self._with_offer(
            lambda offer: self._parts.fetching.verify(
                self.record.update_id, offer.manifest, effect.blobs, place=self._looking.road.place
            )
        )

    def _apply(self, effect: ef.Apply) -> None:
        self._with_offer(
            lambda offer: self._parts.making.apply(self.record.update_id, offer.manifest, effect.blobs)
        )

    def _verify_outputs(self, _effect: ef.VerifyOutputs) -> None:
        self._with_offer(lambda offer: self._parts.making.verify(self.record.update_id, offer.manifest))

    def _preflight(self, effect: ef.Preflight) -> None:
        def job(offer: Offer) -> Job:
            while not self._settled():  # two models that load at once take the memory of three
                yield Wait(SETTLE_S)
            try:
                bundle = self._parts.opened.store.verify(effect.sha256).bundle
            except (BundleError, StorageError) as error:
                return ev.PreflightFailed(Cause.HASH_MISMATCH, error.cause)
            refused = self._compare(bundle, offer.manifest)
            if refused:
                return ev.PreflightFailed(Cause.WRONG_DEVICE, refused)
            return (
                yield from self._parts.preflight.run(
                    bundle,
                    offer.manifest,
                    guards=offer.rollout.guards,
                    baseline=self._parts.serving.baseline(),
                )
            )

        self._with_offer(job)

    def _compare(self, candidate: Path, manifest: ReleaseManifest) -> str:
        """Why readers of the answers could not take the candidate's; what they should know is told."""
        active = self.record.active
        if active is None:
            return ""
        try:
            before = read_answers(self._parts.serving.locate(active.sha256)[0])
            after = read_answers(candidate)
        except (BundleError, StorageError):  # whatever it is, whoever loads it will say so
            return ""
        refused = "" if manifest.other_task else task_change(before, after)
        self.changes = "" if refused else class_change(before, after)
        if self.changes:
            self.notice(Cause.LABELS_CHANGED, f"{manifest.name} {manifest.version}: {self.changes}")
        return refused

    def _with_offer(self, job: Callable[[Offer], Job]) -> None:
        """Begin work that needs the offer, which a damaged disk may have lost over a restart."""
        offer = self._looking.offer
        if offer is None:
            self._emit(ev.WorkFailed(Cause.STATE_LOST, "the offer that was kept on disk is lost"))
        else:
            self._slots.begin_work(job(offer))

    # The data plane ---------------------------------------------------------------------------------------

    def _shadow(self, effect: ef.StartShadow) -> None:
        self._with_offer(
            lambda offer: self._parts.serving.shadow(
                effect.sha256,
                guards=offer.rollout.guards,
                window=offer.rollout.shadow or offer.rollout.trial,
            )
        )

    def _switch(self, effect: ef.Switch) -> None:
        self._slots.begin_work(
            self._parts.serving.switch(
                effect.sha256,
                boot_id=self._parts.ports.boot_id,
                window=self._trial_terms()[0],
                settled=self._settled,
            )
        )

    def _watch(self, _effect: ef.WatchTrial) -> None:
        candidate = self.record.candidate
        if candidate is None:
            raise InternalError("a trial without a candidate")
        window, guards = self._trial_terms()
        self._slots.begin_work(
            self._parts.serving.trial(
                candidate.sha256,
                baseline=self.record.baseline,
                guards=guards,
                window=window,
                used_before_s=self.record.trial_used_s,
            )
        )

    def _trial_terms(self) -> tuple[Window, Guards]:
        offer = self._looking.offer
        return (_WINDOW, _GUARDS) if offer is None else (offer.rollout.trial, offer.rollout.guards)

    def _unavailable(self, _effect: ef.AnswerUnavailable) -> None:
        """Frames are dropped under their own cause by the data plane; the status says why."""
        self.unavailable = True

    def _settled(self) -> bool:
        return not self._slots.serving

    # The end ----------------------------------------------------------------------------------------------

    def _mark(self, sha256: str) -> Job:
        while True:
            try:
                self._parts.opened.store.confirm(sha256)
            except BundleError as error:
                return ev.WorkFailed(Cause.HASH_MISMATCH, error.cause)
            except StorageError:
                yield Wait(MARKER_RETRY_S)
            else:
                return ev.MarkedConfirmed()
            yield Wait()

    def _collect(self, effect: ef.CollectGarbage) -> None:
        """A disk that refuses keeps its garbage until the next time."""
        opened = self._parts.opened
        with contextlib.suppress(StorageError, RecordSchemaError):
            opened.store.open()
            if not effect.bundles:
                return
            named = {
                model.sha256
                for record in opened.journal.references()
                for model in (record.active, record.previous, record.candidate)
                if model is not None
            }
            opened.store.collect({*effect.keep, *named})

    def _report(self, effect: ef.StoreReport) -> None:
        try:
            self._parts.outbox.put_report(effect.report)
        except StorageError:
            self._emit(ev.ReportUnstored())
        else:
            self._looking.rest()
            self._emit(ev.ReportStored())

    def _answer_abort(self, effect: ef.AnswerAbort) -> None:
        answer, self.abort_answer = self.abort_answer, None
        if answer is not None:
            answer.set_result(effect.answer)


def _nowhere(_effect: ef.Schedule) -> None:
    raise InternalError("an effect was scheduled before the driver was ready")
