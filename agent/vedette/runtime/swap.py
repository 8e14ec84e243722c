"""Carries out what `swap_table` says: from one bundle's worker to the next one's, between two frames."""

from __future__ import annotations

from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from vedette.engine.priority import Pace
from vedette.frame.ring import available_bytes
from vedette.runtime.departures import Departures, retire_unseen
from vedette.runtime.generation import LIVE_SEAT, Heir, Phase
from vedette.runtime.handover import Handover
from vedette.runtime.health import SlidingHealth
from vedette.runtime.log import Level, LogLine
from vedette.runtime.process_memory import anonymous_bytes
from vedette.runtime.results import Retired, Seat
from vedette.runtime.swap_table import SwapEvent, SwapState, step, takes
from vedette.runtime.worker_process import WorkerProcess, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vedette.clock import Clock
    from vedette.engine.messages import WorkerSpec
    from vedette.frame.ring import Ring
    from vedette.runtime.camera import Camera
    from vedette.runtime.generation import Generation
    from vedette.runtime.health import ModelHealth
    from vedette.runtime.live import LiveModel, SwitchWish
    from vedette.runtime.plan import RunPlan
    from vedette.runtime.results import ResultsThread
    from vedette.runtime.shadow import Shadow

# A frame in a trial may take this many times what 95 of 100 frames took before.
HANG_FACTOR = 10.0


class Swap:
    """All workers but the one that serves. All calls come from the supervisor's thread."""

    def __init__(
        self,
        plan: RunPlan,
        *,
        clock: Clock,
        live: LiveModel,
        generation: Generation,
        shadow: Shadow,
        results: ResultsThread,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._live = live
        self._generation = generation
        self._shadow = shadow
        self._results = results
        self._say = say
        self.state = SwapState.IDLE
        self._new: Heir | None = None  # until it has the cameras; then it is the generation's worker
        self._old: Heir | None = None  # once it has none left
        self._departures = Departures(clock, results)
        self._trial = False
        self._health: ModelHealth = live.first_health
        self._handover = Handover(results)
        self._lost_rings: list[Ring] = []
        self._accounted: deque[str] = deque(maxlen=1)  # the results thread appends
        self._old_sliding: SlidingHealth | None = None
        generation.succession = self
        results.watchers = (live.sliding, self._health)

    # What the daemon asks ---------------------------------------------------------------------------------

    @property
    def others(self) -> list[WorkerProcess]:
        """Every worker process beside the one that serves."""
        found = [heir.worker for heir in (self._new, self._old) if heir is not None]
        found += [self._shadow.worker, *self._departures.workers]
        return [worker for worker in found if worker is not None]

    def tick(self, cameras: Iterable[Camera]) -> None:
        """Carry out wishes and go on with what was begun."""
        self._take_wishes()
        self._check_workers()
        if self.state is SwapState.LOADING:
            self._look_at_loading()
        if self.state is SwapState.MOVING:
            self._move({camera.name: camera for camera in cameras})
        elif self.state is SwapState.UNDOING:
            self._undo()
        elif self.state is SwapState.PROVING and self._health.answered > 0:
            self._answered()
        self._shadow.tick(cameras)
        self._publish()

    def _check_workers(self) -> None:
        for heir in (self._new, self._old):
            if heir is not None and heir.worker is not None:
                heir.worker.check()
        self._departures.check()

    def _publish(self) -> None:
        """What other threads are told."""
        generation, live = self._generation, self._live
        if generation.ready is not None and live.sliding.sha256 is None:
            live.sliding.sha256 = generation.ready.model.sha256
            live.first_health.sha256 = generation.ready.model.sha256
            live.first_health.begin()
        if self.state is SwapState.PROVING:
            live.bundle = (
                None if self._old is None or self._old.worker is None else Path(self._old.spec.bundle)
            )
        else:
            live.bundle = Path(generation.spec.bundle) if generation.serving else None

    # Wishes -----------------------------------------------------------------------------------------------

    def _take_wishes(self) -> None:
        wishes = self._live.take_wishes(may_switch=takes(self.state, SwapEvent.WISHED))
        if wishes.confirm and self.state is SwapState.TRIAL:
            self._confirmed()
        if wishes.switch is not None:
            self._wished(wishes.switch)
        if wishes.shadow is not None:
            if wishes.shadow.bundle is not None and wishes.shadow.health is not None:
                live_ms = self._live.sliding.stats().p95_ms or 0.0
                before = self._shadow.start(wishes.shadow.bundle, wishes.shadow.health, live_ms=live_ms)
                self._departures.let_go(before)
            else:
                self._departures.let_go(self._shadow.release()[0])

    def _wished(self, wish: SwitchWish) -> None:
        """Find a worker that has the bundle already, or start one."""
        shadow, shadow_bundle = self._shadow.release()
        self._trial, self._health = wish.trial, wish.health
        self._results.watchers = (self._live.sliding, wish.health)
        spec = replace(self._plan.worker, bundle=str(wish.bundle), pace=Pace.GENTLE)
        new, self._new = self._new, None
        waiting = (self._old, new, None if shadow is None else _heir(spec, shadow_bundle, shadow))
        known = [heir for heir in waiting if heir is not None and heir.worker is not None]
        if self._generation.serving and Path(self._generation.spec.bundle) == wish.bundle:
            self._departures.let_go(*(heir.worker for heir in known if heir is not self._old))
            self._stay(wish)
            return
        self.state = step(self.state, SwapEvent.WISHED)
        self._new = next((heir for heir in known if Path(heir.spec.bundle) == wish.bundle), None)
        self._departures.let_go(
            *(heir.worker for heir in known if heir is not self._new and heir is not self._old)
        )
        if self._new is None:
            self._load(spec)
        elif self._new is self._old:
            self._old = None

    def _stay(self, wish: SwitchWish) -> None:
        """The bundle serves already: its window begins anew; without a trial nobody is kept beside it."""
        if self._generation.ready is not None:
            wish.health.sha256 = self._generation.ready.model.sha256
        wish.health.begin(scene_varied=self._live.sliding.varied)
        if takes(self.state, SwapEvent.ANSWERED) or (self._trial and takes(self.state, SwapEvent.CONFIRMED)):
            return
        self.state = step(self.state, SwapEvent.STAYED)
        self._let_old_go()

    def _load(self, spec: WorkerSpec) -> None:
        try:
            worker = WorkerProcess(
                spec,
                self._clock,
                load_timeout_s=self._plan.load_timeout_s,
                hang_timeout_s=self._plan.hang_timeout_s,
                say=self._say,
            )
        except OSError as error:
            self._lost_new(f"load_fail: it could not be started: {error.strerror}")
            return
        self._new = Heir(spec, worker)
        self._results.add_worker(worker.results)

    # From one worker to the other -------------------------------------------------------------------------

    def _look_at_loading(self) -> None:
        """Begin to move once the new worker is ready, and nobody's death is being accounted for."""
        new = self._new
        if new is None or new.worker is None or new.worker.ready is None:
            return
        if not new.worker.ready.can_serve:  # a shadow that the system leaves at low priority
            self._departures.let_go(new.worker)
            self._load(new.spec)
            return
        if self._generation.phase is Phase.ACCOUNTING:
            return
        self._health.sha256 = new.worker.ready.model.sha256
        new.worker.serves()
        self._generation.paused = True
        self._handover = Handover(self._results)
        self.state = step(self.state, SwapEvent.READY)

    def _move(self, cameras: dict[str, Camera]) -> None:
        """One step further for each camera."""
        new, old = self._new, self._generation.worker
        if new is None or new.worker is None or self._generation.phase is Phase.ACCOUNTING:
            return
        if old is not None and old.state is WorkerState.READY:
            self._handover.ask(old)
            self._handover.collect(old)
        self._handover.give(new.worker, cameras)
        if self._handover.done(old):
            spec = self._generation.spec
            self._let_old_go()
            before = self._generation.take_over(new)
            if before is not None and before.state is not WorkerState.READY:
                self._departures.let_go(before)
                before = None
            self._old = Heir(spec, before)
            self._moved(new, SwapEvent.MOVED)

    def _moved(self, new: Heir, event: SwapEvent) -> None:
        """The new worker is the generation's, with no good answer yet."""
        self.state = step(self.state, event)
        self._new = None
        self._generation.paused = False
        before = self._live.sliding.stats().p95_ms or 0.0
        self._health.begin(
            scene_varied=self._live.sliding.varied,
            memory_bytes=None if new.worker is None else partial(anonymous_bytes, new.worker.child.pid),
        )
        self._old_sliding = self._live.sliding
        sliding = SlidingHealth(self._clock, self._plan.baseline_s)
        sliding.sha256 = self._health.sha256
        self._use_sliding(sliding)
        if new.worker is not None:
            patience_s = max(self._plan.trial_hang_s, HANG_FACTOR * before / 1e3)
            new.worker.limit_hang(min(patience_s, self._plan.hang_timeout_s))

    def _use_sliding(self, sliding: SlidingHealth) -> None:
        before = self._live.sliding
        self._live.sliding = sliding
        self._results.watchers = tuple(sliding if w is before else w for w in self._results.watchers)

    def _answered(self) -> None:
        self.state = step(self.state, SwapEvent.ANSWERED)
        if not self._trial:
            self._confirmed()
        elif self._old is not None and 0 < available_bytes() < self._plan.headroom_bytes:
            self._say("memory is short: the previous model is not kept ready, a way back would load it anew")
            self._departures.let_go(self._old.worker)
            self._old = Heir(self._old.spec, None)

    def _confirmed(self) -> None:
        self.state = step(self.state, SwapEvent.CONFIRMED)
        self._let_old_go()

    def _let_old_go(self) -> None:
        old, self._old, self._old_sliding = self._old, None, None
        self._departures.let_go(None if old is None else old.worker)
        if self._generation.worker is not None:
            self._generation.worker.limit_hang(self._plan.hang_timeout_s)

    # Deaths -----------------------------------------------------------------------------------------------

    def died(self, text: str) -> None:
        """See Succession."""
        ready = self._generation.ready
        if ready is not None and ready.model.sha256 == self._health.sha256:
            self._health.died(text)
        self._live.sliding.died(text)

    def heir(self) -> Heir | None:
        """See Succession: the old worker when the new one died, the new one when the old one did."""
        if self.state is SwapState.MOVING and self._new is not None:
            new = self._new
            self._let_old_go()
            self._old = Heir(self._generation.spec, None)
            self._moved(new, SwapEvent.OLD_LOST)
            return new
        if self.state is SwapState.LOADING and self._old is not None:
            # A trial that was about to be replaced by a third model anyway.
            old, self._old = self._old, None
            self.state = step(self.state, SwapEvent.OLD_LOST)
            return old
        if self.state in {SwapState.PROVING, SwapState.TRIAL} and self._old is not None:
            old, self._old = self._old, None
            self._health.give_up()
            self.state = step(self.state, SwapEvent.NEW_LOST)
            self._use_sliding(self._old_sliding or SlidingHealth(self._clock, self._plan.baseline_s))
            ready = None if old.worker is None else old.worker.ready
            name = "the model before" if ready is None else f"{ready.model.name} {ready.model.version}"
            text = f"the new model died in its trial; {name} serves again"
            self._say(LogLine(Level.WARNING, text))
            return old
        return None

    def buried(self, worker: WorkerProcess, status: int) -> None:
        """The process of one of `others` has ended."""
        worker.listen()
        cause, detail = worker.obituary(status)
        if worker is self._shadow.worker:
            self._shadow.buried(status)
        elif self._new is not None and worker is self._new.worker:
            text = f"{cause.value}: {detail}"
            if worker.fatal is not None or worker.ready is None:
                text = f"load_fail: {detail if worker.fatal is None else worker.fatal.cause}"
            self._bury_new(worker, status)
            self._lost_new(text)
        else:
            self._departures.buried(worker, status)
            if self._old is not None and worker is self._old.worker:
                self._old = Heir(self._old.spec, None)
                self.state = step(self.state, SwapEvent.OLD_LOST)

    def _bury_new(self, worker: WorkerProcess, status: int) -> None:
        """It may hold cameras already, and a frame in hand."""
        cause, detail = worker.obituary(status)
        if worker.ready is None or not worker.seats:
            retire_unseen(self._results, worker, status)
            self._accounted.append("none")
            return
        self._lost_rings = list(worker.seats.values())
        seats = [Seat(name, ring.taken) for name, ring in worker.seats.items()]
        ready, self._accounted = worker.ready, deque(maxlen=1)
        accounted = self._accounted
        self._results.retire_worker(
            Retired(
                worker.results,
                seats,
                cause,
                detail,
                ready.model,
                ready.task,
                worker.held,
                lambda: accounted.append("all"),
            )
        )
        worker.close()

    def _lost_new(self, text: str) -> None:
        """The old worker never stopped, or goes on."""
        self._health.died(text)
        self._health.give_up()
        self._say(LogLine(Level.WARNING, f"the new model is given up ({text})"))
        self._new = None
        self.state = step(self.state, SwapEvent.NEW_LOST)
        if self.state is SwapState.IDLE:
            self._let_old_go()

    def _undo(self) -> None:
        """Wait until nothing of either worker is on the way; then the generation seats its cameras again."""
        old = self._generation.worker
        if old is not None and old.state is WorkerState.READY:
            self._handover.collect(old)
            if not self._handover.settled():
                return
        if not self._accounted:
            return
        for ring in self._lost_rings:
            ring.revoke(LIVE_SEAT)
        self._lost_rings = []
        self._accounted.clear()
        self._generation.paused = False
        self.state = step(self.state, SwapEvent.UNDONE)

    # The end ----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask every worker to finish."""
        for worker in self.others:
            worker.stop()

    def bury_all(self) -> None:
        """All have ended, or were killed: what they said is read, what they held is accounted for."""
        new = None if self._new is None else self._new.worker
        for worker in self.others:
            worker.listen()
            status = worker.child.exited() or 0
            if worker is new:
                self._bury_new(worker, status)
            else:
                retire_unseen(self._results, worker, status)


def _heir(spec: WorkerSpec, bundle: Path | None, worker: WorkerProcess) -> Heir:
    return Heir(replace(spec, bundle=str(bundle)), worker)
