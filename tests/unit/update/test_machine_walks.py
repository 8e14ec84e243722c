"""Random lives of a box: whatever happens, and wherever power fails, the invariants hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace
from tests.unit.update.driving import DELTA, FACTORY, FULL, SHA, Box, box_in, offer

from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.guards import TRIES
from vedette.update.machine import TRANSITION_BUDGET
from vedette.update.phases import HOME, LIVE, PHASES, Phase
from vedette.update.record import REUSE, FileProgress, Mark, UpdateRecord

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(tuple)
BYTES = st.integers(0, 600)
PLANS = st.sampled_from(
    [
        ev.Planned((FileProgress(DELTA, FULL), FileProgress(REUSE, FULL), FileProgress(FULL, FULL)), 2000),
        ev.Planned((FileProgress(DELTA, FULL),) * 3, 1500),
    ]
)
CANDIDATES = [Cause.CRASH_LOOP, Cause.WATCHDOG, Cause.ERROR_RATE]
# What its driver may say in a phase, good and bad.
ANSWERS: dict[Phase, st.SearchStrategy[ev.Event]] = {
    Phase.PLAN: st.one_of(
        PLANS,
        st.sampled_from(
            [
                ev.PlanDeferred("too hot", 60.0),
                ev.PlanRefused(Cause.WRONG_DEVICE),
                ev.PlanRefused(Cause.NO_SPACE, "full", 1 << 20),
            ]
        ),
    ),
    Phase.FETCH: st.one_of(
        st.builds(ev.Fetched, BYTES),
        st.builds(ev.FetchStalled, BYTES),
        st.builds(ev.FetchLost, FILES, st.just(Cause.BAD_METADATA), BYTES),
        st.just(ev.WorkFailed(Cause.NO_SPACE, "disk full", 1 << 20)),
    ),
    Phase.VERIFY_PATCH: st.one_of(st.just(ev.PatchesGood()), st.builds(ev.PatchesBad, FILES)),
    Phase.APPLY: st.one_of(
        st.just(ev.Applied()), st.builds(ev.ApplyFailed, FILES, st.just(Cause.BASE_MISMATCH))
    ),
    Phase.VERIFY_OUT: st.one_of(st.just(ev.OutputsGood()), st.builds(ev.OutputsBad, FILES)),
    Phase.PREFLIGHT: st.sampled_from([ev.PreflightPassed(), ev.PreflightFailed(Cause.PREFLIGHT_BUDGET)]),
    Phase.SHADOW: st.sampled_from([ev.ShadowPassed(), ev.ShadowFailed(Cause.DISAGREEMENT)]),
    Phase.READY: st.builds(ev.Go, wanted=st.booleans()),
    Phase.SWITCH: st.sampled_from([ev.Switched("boot"), ev.CandidateDied(Cause.LOAD_FAIL)]),
    Phase.TRIAL: st.one_of(
        st.sampled_from([ev.TrialPassed(), ev.TrialProgressed(60.0)]),
        st.builds(ev.TrialFailed, st.sampled_from(CANDIDATES)),
        st.builds(ev.CandidateDied, st.sampled_from(CANDIDATES)),
    ),
    Phase.CONFIRM: st.just(ev.MarkedConfirmed()),
    Phase.REPORT: st.sampled_from([ev.ReportStored(), ev.ReportStored(), ev.ReportUnstored()]),
}

_SERVING = (ef.ServeActive, ef.ServeConfirmed, ef.ServeFactory)
HAPPY: dict[Phase, ev.Event] = {
    Phase.PLAN: ev.Planned((FileProgress(DELTA, FULL),) * 3, 1500),
    Phase.DEFERRED: ev.Aborted(),
    Phase.FETCH: ev.Fetched(),
    Phase.VERIFY_PATCH: ev.PatchesGood(),
    Phase.APPLY: ev.Applied(),
    Phase.VERIFY_OUT: ev.OutputsGood(),
    Phase.PREFLIGHT: ev.PreflightPassed(),
    Phase.SHADOW: ev.ShadowPassed(),
    Phase.READY: ev.Go(wanted=True),
    Phase.SWITCH: ev.Switched("boot"),
    Phase.TRIAL: ev.TrialPassed(),
    Phase.CONFIRM: ev.MarkedConfirmed(),
    Phase.ROLLBACK: ev.ProvenServes(FACTORY.sha256, 0),
    Phase.REPORT: ev.ReportStored(),
}
NO_NEWS = (ev.NothingOffered(), ev.TrustRefused(Cause.EXPIRED), ev.TrustAway())
WEIGHTED = ["well"] * 8 + ["badly"] * 4 + ["cut"] * 2 + ["serves"] * 2 + ["news"] * 2 + ["stop"]


class Life(RuleBasedStateMachine):
    """One box, its disk, and what an onlooker remembers of it."""

    def __init__(self) -> None:
        super().__init__()
        self.box = Box()
        self.proven = {FACTORY.sha256: 0}
        self.marks = [self.box.disk.seen]
        self.floors = [0]
        self.begun: set[str] = set()
        self.condemned: dict[str, tuple[Mark, str]] = {}
        self.loads: Counter[str] = Counter()
        self.document = 1
        self.see(ev.Started())

    def see(self, event: ev.Event, move: Callable[[ev.Event], object] | None = None) -> None:
        before = self.box.record
        if move is None:
            self.box.see(event)
        else:
            move(event)
        self.watch(before, event)

    def watch(self, before: UpdateRecord, event: ev.Event) -> None:
        """What an onlooker notes; the disk is what a Persist said before anything else was done."""
        after, disk = self.box.record, self.box.disk
        if before.phase is Phase.CONFIRM and isinstance(event, ev.MarkedConfirmed) and before.candidate:
            self.proven[before.candidate.sha256] = before.candidate.counter
            self.condemned.pop(before.candidate.sha256, None)
        if isinstance(event, ev.Offered) and after.phase is Phase.PLAN and before.phase is Phase.TRUST:
            mark, rollout = self.condemned.get(event.sha256, (Mark(-1), ""))
            assert event.mark > mark, "I8: a condemned bundle came back by itself"
            assert event.rollout != rollout, "I8: a condemned bundle came back by itself"
            meant = before.active is not None and event.rollback_of == before.active.counter
            assert meant or event.counter >= before.release_floor, "I3"
        for effect in self.box.latest:
            if isinstance(effect, ef.Switch):
                assert disk.phase is Phase.SWITCH
                assert disk.candidate is not None
                assert disk.candidate.sha256 == effect.sha256
                self.loads[disk.update_id] += 1
                assert self.loads[disk.update_id] + disk.tries_left == TRIES
            if isinstance(effect, ef.ServeActive):
                assert effect.sha256 in self.proven, "I4"
            if isinstance(effect, ef.StoreReport):
                assert disk.report == effect.report
        for entry in disk.blacklist:
            self.condemned[entry.sha256] = (entry.offered, entry.rollout)
        if disk.update_id and PHASES[disk.phase].durable:
            self.begun.add(disk.update_id)
        self.marks.append(disk.seen)
        self.floors.append(disk.release_floor)

    @initialize(phase=st.sampled_from([Phase.IDLE, *PHASES]), used=st.sampled_from([0, 0, 37]))
    def begin(self, phase: Phase, used: int) -> None:
        """Anywhere in a life, since most of it is idle."""
        self.box = box_in(phase)
        if self.box.record.update_id:
            self.box.record = self.box.disk = replace(self.box.record, transitions_used=used)
        self.condemned.clear()
        self.loads.clear()
        for effect in self.box.did(ef.Switch):
            self.loads[self.box.disk.update_id] += effect.sha256 == SHA[1]
        if phase is Phase.REPORT:
            self.proven[SHA[1]] = 1
        self.document = self.box.record.seen.counter + 1
        if phase is Phase.UNKNOWN:
            self.power_cut()

    @rule(kind=st.sampled_from(WEIGHTED), data=st.data())
    def happen(self, kind: str, data: st.DataObject) -> None:
        """One thing after the other, more often what should come next than what should not."""
        if kind == "well" and self.box.phase in HAPPY:
            self.see(HAPPY[self.box.phase])
        elif kind == "serves":
            self.serve(good=data.draw(st.integers(0, 3)) > 0)
        elif kind == "news" or self.box.phase in HOME:
            self.news(data)
        elif kind == "stop":
            self.stop(data.draw(st.sampled_from([ev.Aborted(), ev.Withdrawn()])))
        elif kind == "cut":
            self.power_cut()
        elif self.box.phase in ANSWERS:
            self.see(data.draw(ANSWERS[self.box.phase]))

    def power_cut(self) -> None:
        self.see(ev.Started(), lambda _: self.box.power_cut())

    def news(self, data: st.DataObject) -> None:
        """A poll that finds a rollout document, mostly a newer one."""
        phase = self.box.phase
        if phase in {Phase.PLAN, Phase.TRUST}:
            return
        self.see(ev.Announced())
        if ef.RefreshTrust() not in self.box.latest:
            return
        answer = data.draw(st.integers(0, 9))
        if answer < len(NO_NEWS):
            self.see(NO_NEWS[answer])
            return
        self.document += data.draw(st.integers(0, 2))
        active = self.box.record.active
        anew, meant = data.draw(st.booleans()), data.draw(st.booleans())
        found = offer(
            data.draw(st.integers(1, 5)),
            mark=max(self.document - data.draw(st.integers(0, 1)), 0),
            shadow=data.draw(st.booleans()),
            rollout=f"again-{self.document}" if anew else "",
            rollback_of=active.counter if meant and active else None,
        )
        self.see(found)

    def serve(self, *, good: bool) -> None:
        """A proven model serves, or is found to be bad."""
        if self.box.phase in {Phase.CONFIRM, Phase.UNKNOWN}:
            return
        asked = [effect for effect in self.box.effects if isinstance(effect, _SERVING)]
        if not good or not asked:
            self.see(ev.ProvenBad(Cause.HASH_MISMATCH))
        elif isinstance(asked[-1], ef.ServeActive):
            self.see(ev.ProvenServes(asked[-1].sha256, self.proven[asked[-1].sha256]))
        else:
            self.see(ev.ProvenServes(FACTORY.sha256, 0))

    def stop(self, stop: ev.Event) -> None:
        self.see(stop)
        answered = any(isinstance(effect, ef.AnswerAbort) for effect in self.box.latest)
        assert answered == isinstance(stop, ev.Aborted)

    @invariant()
    def only_proven_models_are_active(self) -> None:
        """I1, I4: on the disk and in memory."""
        for record in (self.box.record, self.box.disk):
            for model in (record.active, record.previous):
                assert model is None or model.sha256 in self.proven
            assert record.active is not None or record.rung > 0
            assert (record.phase in {*LIVE, Phase.CONFIRM, Phase.ROLLBACK}) <= (record.candidate is not None)

    @invariant()
    def counters_never_go_back(self) -> None:
        """I3."""
        assert self.marks == sorted(self.marks)
        assert self.floors == sorted(self.floors)

    @invariant()
    def work_is_bounded(self) -> None:
        """I5."""
        record = self.box.record
        assert record.transitions_used <= TRANSITION_BUDGET + 5
        assert record.bytes_fetched <= record.bytes_limit + 600
        assert all(progress.attempts <= 2 for progress in record.files)

    @invariant()
    def every_update_has_one_result(self) -> None:
        """I6: never two, and one as soon as the box is at home again."""
        results: dict[str, set[int]] = {}
        for put in self.box.did(ef.StoreReport):
            results.setdefault(put.report.update_id, set()).add(put.report.seq)
        assert all(len(numbers) == 1 for numbers in results.values())
        if self.box.phase in HOME:
            assert self.begun <= results.keys()

    def teardown(self) -> None:
        """Left to itself, the box comes home in a bounded number of events."""
        for _ in range(20):
            if self.box.phase in {*HOME, Phase.TRUST}:
                break
            self.see(HAPPY[self.box.phase])
        assert self.box.phase in {*HOME, Phase.TRUST}


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
