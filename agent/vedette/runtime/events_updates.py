"""What the fleet hears of updates: how they stand, each step, and the results, handed over for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from vedette.errors import StorageError
from vedette.link.port import Keep
from vedette.runtime.events import Happening
from vedette.runtime.log import Level, LogLine
from vedette.update.phases import Phase
from vedette.wire.plane import ModelState, Reported

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.link.entries import Moment
    from vedette.link.port import Link
    from vedette.runtime.updating import Updates
    from vedette.update.outbox import Outbox, OutboxEntry
    from vedette.update.record import UpdateRecord
    from vedette.update.status import UpdateStatus

HAND_OVER_EVERY_S = 2.0
RETRY_MIN_S = 5.0
RETRY_MAX_S = 300.0
# How far a fetch is changes all the time, and is worth a message only now and then.
PROGRESS_EVERY_S = 5.0
NO_UPDATES = "none"
# Steps that come and go with each look for updates.
_QUIET = frozenset({Phase.IDLE, Phase.TRUST, Phase.PLAN})


class Custody:
    """Moves results and notices from the outbox of updates into the link's, each one once. One thread.

    An entry leaves the first only when the second has it on the disk; a power cut in between hands it over
    again, under the same id.
    """

    def __init__(
        self,
        outbox: Outbox,
        link: Link,
        *,
        model: Callable[[str], ModelState],
        uniform: Callable[[float, float], float],
        say: Callable[[str], None],
    ) -> None:
        """Prepare to hand over.

        Args:
            outbox: Of updates.
            link: Who has it afterwards.
            model: A bundle's name and version by its digest, as far as they are known.
            uniform: Draws from a range.
            say: For people.
        """
        self._outbox = outbox
        self._link = link
        self._model = model
        self._uniform = uniform
        self._say = say
        self._due_ns = 0
        self._failures = 0

    def turn(self, now_ns: int) -> None:
        """Hand over what waits, when it is time to look."""
        if now_ns < self._due_ns:
            return
        try:
            self.hand_over()
        except StorageError as error:
            if not self._failures:
                self._say(LogLine(Level.WARNING, f"results of updates wait: {error.cause}"))
            self._failures += 1
            ceiling_s = min(RETRY_MAX_S, RETRY_MIN_S * 2.0 ** min(self._failures - 1, 16))
            self._due_ns = now_ns + round(max(1.0, self._uniform(0.0, ceiling_s)) * 1e9)
        else:
            self._failures = 0
            self._due_ns = now_ns + round(HAND_OVER_EVERY_S * 1e9)

    def hand_over(self) -> None:
        """Move everything that waits.

        Raises:
            StorageError: No room in the link's outbox, or a disk refuses; the rest waits.
        """
        for entry in self._outbox.entries():
            kind, data = self._event_of(entry)
            keep = Keep.ALWAYS if entry.result is not None else Keep.NEWEST
            self._link.event(kind, data, keep=keep, event_id=entry.event_id)
            self._outbox.acknowledge(entry)

    def _event_of(self, entry: OutboxEntry) -> tuple[str, dict[str, Any]]:
        result = entry.result
        if result is None:
            return "update_notice", msgspec.to_builtins(entry.notice)
        model = self._model(result.sha256)
        named = {"name": model.name, "version": model.version} if model.name else {}
        return "update_result", {**msgspec.to_builtins(result), **named}


def step_of(before: UpdateRecord, after: UpdateRecord) -> Happening | None:
    """The change of phase as an event; None for one that says nothing of an update."""
    candidate = after.candidate or before.candidate
    if candidate is None or (before.phase in _QUIET and after.phase in _QUIET):
        return None
    data: dict[str, Any] = {
        "update_id": after.update_id or before.update_id,
        "rollout": candidate.rollout,
        "sha256": candidate.sha256,
        "from": before.phase.value,
        "to": after.phase.value,
    }
    if after.cause is not None:
        data |= {"cause": after.cause.value, "detail": after.detail}
    return Happening("update_phase", "", data, Keep.ALWAYS)


class ReportedState:
    """Implements `link.port.StateSource`; `turn` is the reporting thread's, `reported` the link's."""

    def __init__(
        self,
        updates: Updates | None,
        *,
        serving: Callable[[], ModelState | None],
        labels: dict[str, str],
        now: Callable[[], Moment],
        clock: Clock,
    ) -> None:
        self._updates = updates
        self._serving = serving
        self._labels = labels
        self._now = now
        self._clock = clock
        self._state = self._describe()
        self._told_ns = clock.monotonic_ns()

    def reported(self, seq: int) -> Reported:
        """See StateSource."""
        return msgspec.structs.replace(self._state, seq=seq, utc_s=round(self._now().utc_s, 3))

    def turn(self, link: Link, now_ns: int) -> None:
        """Look, and tell the link when something is new: progress alone not each time."""
        state = self._describe()
        if state == self._state:
            return
        progressed = msgspec.structs.replace(self._state, bytes_fetched=state.bytes_fetched)
        if progressed == state and now_ns - self._told_ns < PROGRESS_EVERY_S * 1e9:
            return
        self._state, self._told_ns = state, now_ns
        link.state_changed()

    def _describe(self) -> Reported:
        """Everything but the number and the time."""
        boot_id = self._now().boot_id
        updates = self._updates
        driver = None if updates is None else updates.driver
        if updates is None or driver is None:
            return Reported(
                seq=0,
                boot_id=boot_id,
                utc_s=0.0,
                phase=NO_UPDATES,
                active=self._serving(),
                look_fault="" if updates is None else updates.look_fault,
                labels=self._labels,
            )
        return self._of_updates(updates, driver.snapshot(), driver.record, boot_id)

    def _of_updates(
        self, updates: Updates, status: UpdateStatus, record: UpdateRecord, boot_id: str
    ) -> Reported:
        last = status.last_result
        rollout = status.candidate.rollout if status.candidate else last.rollout if last else ""
        return Reported(
            seq=0,
            boot_id=boot_id,
            utc_s=0.0,
            phase=status.phase.value,
            active=None if status.active is None else updates.model(status.active.sha256),
            previous=None if status.previous is None else updates.model(status.previous.sha256),
            candidate=None if status.candidate is None else updates.model(status.candidate.sha256),
            update_id=status.update_id or ("" if last is None else last.update_id),
            rollout=rollout,
            counter=record.seen.counter,
            bytes_fetched=status.bytes_fetched,
            bytes_needed=status.bytes_needed,
            result="" if last is None else last.result.value,
            cause="" if last is None or last.cause is None else last.cause.value,
            detail=status.detail or ("" if last is None else last.detail),
            look_fault=updates.look_fault,
            clock_doubt=updates.clock_doubt,
            labels=self._labels,
        )
