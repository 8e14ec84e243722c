"""Drives the update machine: takes an event, steps, carries the effects out, one after the other.

A plain object: `run_once` does the next small thing and says how long to wait for the one after. It owns the
record; nobody else writes it. A record that cannot be written holds everything up but serving: the event is
taken again later, and meanwhile some proven model serves.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.errors import BundleError, StorageError, UnavailableError
from vedette.fsops import Point
from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update.carrying import Carrying
from vedette.update.causes import Cause
from vedette.update.guards import TRIES
from vedette.update.jobs import NOW, Wait
from vedette.update.machine import step
from vedette.update.mailbox import Mailbox
from vedette.update.phases import AWAY, HOME, LIVE, STAGED, Phase
from vedette.update.slots import Slots
from vedette.update.status import FetchState, UpdateStatus, describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from vedette.update.driver_parts import DriverParts
    from vedette.update.looking import Road
    from vedette.update.outbox import Outbox
    from vedette.update.record import UpdateRecord

JITTER = 0.25
RECORD_RETRY_S = 5.0
RECORD_RETRY_MAX_S = 300.0
PROVEN_LOOK_S = 5.0
MUTE_S = 300.0  # a restart of the worker may have to compile a model again
STATUS_S = 0.5
DEAF_LOOK_S = 30.0  # an announcement in the phases that take none is remembered for so long
_DEAF = (Phase.CONFIRM, Phase.ROLLBACK, Phase.REPORT)
_LOOKS = (*HOME, Phase.DEFERRED, *STAGED, *LIVE)
_TAKES_OFFERS = (Phase.TRUST, *STAGED, *LIVE, *_DEAF)
_QUIET = {ef.Persist, ef.RefreshTrust, ef.StoreNotice}  # what may be done beside a fetch
_SERVES = (ef.ServeActive, ef.ServeConfirmed, ef.ServeFactory)


@dataclass(frozen=True)
class _Stuck:
    """An event whose record could not be written, monotonic times."""

    event: ev.Event
    since_ns: int
    due_ns: int
    tries: int
    cause: Cause


class UpdateDriver:
    """One model's updates. The methods under "what anybody may call" are any thread's, the rest one's.

    `moved` is told of each change of the phase, once it is durable; it only enqueues.
    """

    def __init__(self, parts: DriverParts) -> None:
        self._parts = parts
        self._ports = parts.ports
        self._clock = parts.ports.clock
        self.mailbox = Mailbox(self._ports.interruption)
        self._record = parts.opened.record
        self._must_reset = parts.opened.must_reset
        self._events: deque[ev.Event] = deque()
        self._slots = Slots(self._clock, self._events.append)
        self._carrying = Carrying(parts, self._slots, emit=self._events.append)
        self._carrying.schedule = self._schedule
        parts.fetching.breathe = self._breathe
        self.moved: Callable[[UpdateRecord, UpdateRecord], None] = lambda _before, _after: None
        parts.looking.ended = self.mailbox.poke
        self._again: tuple[int, ef.Effect] | None = None
        self._stuck: _Stuck | None = None
        self._trouble = ""
        self._mute_since_ns: int | None = None
        self._proven_look_ns = 0
        self._status_ns = 0
        first_s = self._ports.settings.first_look_s * self._ports.draw()
        self._look_ns = self._clock.monotonic_ns() + round(first_s * 1e9)
        self._status = self._describe()

    @property
    def record(self) -> UpdateRecord:
        """What is known now."""
        return self._record

    # What anybody may call --------------------------------------------------------------------------------

    def announce(self, announced: ev.Announced | None = None) -> None:
        """Something may be new: look soon."""
        self.mailbox.announce(announced or ev.Announced())

    def abort(self) -> Future[str]:
        """Stop the update under way; the future will hold `accepted` or why not.

        A fetch or a look that is blocked by a server ends at once.
        """
        return self.mailbox.abort()

    def check(self) -> Future[str]:
        """Look now, and wait for nothing that an update waits for; the future will hold what comes of it."""
        return self.mailbox.look()

    def import_from(self, road: Road) -> Future[str]:
        """Look, and fetch, by another road than the usual one; the future will hold what comes of it."""
        return self.mailbox.look(road)

    def leave(self) -> None:
        """The end is near: begin no fetch any more, and give up the one under way; what came is kept."""
        self._ports.interruption.set(for_good=True)

    def snapshot(self) -> UpdateStatus:
        """How updates stand, as of a moment ago."""
        return self._status

    @property
    def outbox(self) -> Outbox:
        """Results and notices that wait for somebody to take them."""
        return self._parts.outbox

    # The loop ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what the record says."""
        self._parts.looking.recall(self._record)
        with contextlib.suppress(StorageError):  # tried again when there is something to put in
            self._parts.outbox.open()
        self._events.append(ev.Started())

    def run_once(self) -> Wait:
        """Do the next small thing; how long to wait before the next call.

        Raises:
            InternalError: Our bug. The supervisor ends the process, and the next one recovers.
        """
        self._fire_timers()
        event = self._next_event()
        if event is not None:
            self._take(event)
        else:
            self._slots.run_serving()
            self._slots.run_work()
            self._watch_proven()
        self._status = self._describe()
        return self._until_next()

    def close(self) -> None:
        """End the jobs and let another process update this box; what is durable stays."""
        self._slots.end_work()
        self._slots.end_serving()
        self.mailbox.close()
        self._parts.replies.fail(UnavailableError("updates are stopping", cure="ask again later"))
        self._parts.opened.close()

    def _next_event(self) -> ev.Event | None:
        if self._stuck is not None:
            return self._stuck.event if self._clock.monotonic_ns() >= self._stuck.due_ns else None
        self._collect()
        if self._events:
            return self._events.popleft()
        taken = self.mailbox.take(looks=self._may_look())
        if taken is None:
            return None
        if isinstance(taken.event, ev.Aborted):
            self._carrying.abort_answer = taken.answer
            return taken.event
        if taken.answer is not None:
            self._parts.replies.wait_for(taken.answer)
            self._parts.looking.ask(taken.road)
        self._hurry()
        return taken.event

    def _collect(self) -> None:
        """What a look found, as soon as the machine is where it takes it."""
        looking = self._parts.looking
        if self._events or not looking.ready:
            return
        if self._record.phase in (*HOME, Phase.DEFERRED):  # it was begun in an update that has ended since
            self._events.append(ev.Announced())
        elif self._record.phase in _TAKES_OFFERS:
            self._events.extend(looking.collect(self._record))

    def _can_collect(self) -> bool:
        takes = self._record.phase in (*HOME, Phase.DEFERRED, *_TAKES_OFFERS)
        return takes and self._parts.looking.ready

    def _may_look(self) -> bool:
        """Whether a request to look would be taken up, and now; else it waits in its box."""
        return self._record.phase in _LOOKS and not self._parts.looking.under_way

    def _hurry(self) -> None:
        """Somebody says that things have changed: what waits for a server is tried now."""
        if self._record.phase is not Phase.FETCH:
            return
        self._slots.hurry_work()
        if self._again is not None:
            self._again = (self._clock.monotonic_ns(), self._again[1])

    def _take(self, event: ev.Event) -> None:
        """Step, make it durable, then do what follows, in order."""
        before = self._record
        looks_already = self._parts.looking.under_way
        after, effects = step(before, event)
        if effects and isinstance(effects[0], ef.Persist):
            try:
                self._write(effects[0].record)
            except StorageError as error:
                self._hold(event, error, effects)
                return
        self._let_go()
        self._record = self._carrying.record = after
        self._parts.replies.follow(before, event, after)
        if after.active is not None:
            self._carrying.unavailable = False
        if after.phase is not before.phase:
            self._slots.end_work()
            self._again = None
            self.moved(before, after)
        elif isinstance(event, ev.Announced) and (after.phase in _DEAF or looks_already):
            self._schedule(ef.Schedule(DEAF_LOOK_S))
        for effect in effects:
            self._carrying.carry_out(effect)
        if after.phase in HOME and not self._events:
            self._parts.looking.usual_road()

    # The record -------------------------------------------------------------------------------------------

    def _write(self, record: UpdateRecord) -> None:
        journal = self._parts.opened.journal
        if self._must_reset:
            journal.reset(record)
            self._must_reset = False
            return
        point = Point.RECORD
        if record.phase is Phase.SWITCH:
            point = Point.SWITCH if record.tries_left == TRIES - 1 else Point.TRIES
        journal.write(record, point=point)

    def _hold(self, event: ev.Event, error: StorageError, effects: tuple[ef.Effect, ...]) -> None:
        """Keep the event for later. What serves must be proven meanwhile, which needs no record."""
        now_ns = self._clock.monotonic_ns()
        before = self._stuck or _Stuck(event, now_ns, 0, 0, Cause.IO_ERROR)
        wait_s = min(RECORD_RETRY_S * 2.0 ** min(before.tries, 16), RECORD_RETRY_MAX_S)
        wait_s *= 1 + JITTER * self._ports.draw()
        due_ns = now_ns + round(wait_s * 1e9)
        first = self._stuck is None
        self._stuck = _Stuck(event, before.since_ns, due_ns, before.tries + 1, Cause(error.kind))
        self._trouble = error.cause
        if first and any(isinstance(effect, _SERVES) for effect in effects):
            active = self._record.active
            self._slots.begin_serving(
                self._parts.serving.any_proven(None if active is None else active.sha256)
            )

    def _let_go(self) -> None:
        stuck, self._stuck = self._stuck, None
        if stuck is not None:
            self._trouble = ""
            held_s = (self._clock.monotonic_ns() - stuck.since_ns) / 1e9
            self._carrying.notice(stuck.cause, f"the update record could not be written for {held_s:.0f} s")

    # Time -------------------------------------------------------------------------------------------------

    def _schedule(self, effect: ef.Schedule) -> None:
        """Later by up to a quarter, never earlier: what is waited for has a time of its own."""
        delay_s = effect.delay_s * (1 + JITTER * self._ports.draw())
        due_ns = self._clock.monotonic_ns() + round(delay_s * 1e9)
        if effect.again is None:
            self._look_ns = min(self._look_ns, due_ns)
        else:
            self._again = (due_ns, effect.again)

    def _fire_timers(self) -> None:
        now_ns = self._clock.monotonic_ns()
        if self._stuck is not None:
            return
        if now_ns >= self._look_ns:
            # Around the poll: a fleet started together must not look together for ever (casebook 61).
            around = 1 + JITTER * (2 * self._ports.draw() - 1)
            self._look_ns = now_ns + round(self._ports.settings.poll_s * around * 1e9)
            self._events.append(ev.Announced())
        if self._again is not None and now_ns >= self._again[0]:
            (_due_ns, effect), self._again = self._again, None
            self._carrying.carry_out(effect)

    def _breathe(self) -> bool:
        """Between two pieces of a long fetch: let the other slot go on; whether something wants attention."""
        self._fire_timers()
        self._slots.run_serving()
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._status_ns:
            self._status_ns = now_ns + round(STATUS_S * 1e9)
            self._status = self._describe()
        if self._stuck is not None:
            return now_ns >= self._stuck.due_ns
        self._take_quietly()
        return bool(self._events) or self.mailbox.waiting(looks=self._may_look())

    def _take_quietly(self) -> None:
        """Take what costs the fetch under way nothing: a look that begins, or that found nothing new."""
        self._collect()
        announced = None if self._events else self.mailbox.take_announced()
        if announced is not None:
            self._events.append(announced)
        while self._events and self._stuck is None:
            after, effects = step(self._record, self._events[0])
            if after.phase is not self._record.phase or any(type(one) not in _QUIET for one in effects):
                return
            self._take(self._events.popleft())

    def _until_next(self) -> Wait:
        due_ns = self._slots.due_ns()
        if self._stuck is not None:
            due_ns.append(self._stuck.due_ns)
        elif self._events or self.mailbox.waiting(looks=self._may_look()) or self._can_collect():
            return NOW
        else:
            due_ns.append(self._look_ns)
            if self._again is not None:
                due_ns.append(self._again[0])
            if self._record.active is not None and self._record.phase in (*HOME, *AWAY):
                due_ns.append(self._proven_look_ns)
        wait_ns = min(due_ns) - self._clock.monotonic_ns()
        return Wait(max(0.0, wait_ns / 1e9), self._slots.fd())

    def _watch_proven(self) -> None:
        """A proven model that fell silent for good, or whose files rotted, is a fact for the machine.

        What a job has just said comes first: said twice, one fault would cost two rungs of the ladder.
        """
        if self._events:
            return
        now_ns = self._clock.monotonic_ns()
        record, serving = self._record, self._parts.serving
        if now_ns < self._proven_look_ns or record.active is None or record.phase not in (*HOME, *AWAY):
            return
        self._proven_look_ns = now_ns + round(PROVEN_LOOK_S * 1e9)
        bad = serving.mute()
        if bad is None or self._slots.serving or self._stuck is not None:
            self._mute_since_ns = None
            return
        since_ns = self._mute_since_ns = self._mute_since_ns or now_ns
        try:
            serving.locate(record.active.sha256)
        except (BundleError, StorageError) as error:
            bad = ev.ProvenBad(Cause.HASH_MISMATCH, error.cause)
        else:
            if now_ns - since_ns < MUTE_S * 1e9:
                return
        self._mute_since_ns = None
        self._events.append(bad)

    def _next_try_s(self) -> float | None:
        """When what is waited for is tried again; None while nothing is."""
        if self._again is not None:
            return self._until_s(self._again[0])
        if self._record.phase is Phase.DEFERRED:
            return self._until_s(self._look_ns)
        if self._record.phase is Phase.FETCH and self._parts.fetching.fault:
            return self._slots.work_due_s()
        return None

    def _until_s(self, due_ns: int) -> float:
        return max(0.0, (due_ns - self._clock.monotonic_ns()) / 1e9)

    def _describe(self) -> UpdateStatus:
        offer = self._parts.looking.offer
        trouble = self._trouble
        if not trouble and self._carrying.unavailable:
            trouble = "no model is good; an update may bring one"
        fetching = self._parts.fetching
        return describe(
            self._record,
            None if offer is None or self._record.candidate is None else offer.manifest,
            fetching=FetchState(fetching.moved_bytes, fetching.held_bytes, fetching.fault),
            next_look_s=self._until_s(self._look_ns),
            next_try_s=self._next_try_s(),
            looking_s=self._parts.looking.since_s,
            trouble=trouble,
            notes=tuple(self._parts.opened.notes),
            watched=self._parts.serving.watched,
            changes=self._carrying.changes if self._record.candidate is not None else "",
        )
