"""Lines about escalations, beside those of frames; belongs to the results thread."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from vedette.runtime.escalation_ledger import EscalationLedger
from vedette.wire.escalation import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from vedette.clock import Clock
    from vedette.engine.messages import Answered, Unasked
    from vedette.runtime.escalation_ledger import Ending
    from vedette.runtime.plan import EscalationPlan
    from vedette.telemetry.escalation_window import EscalationCounts
    from vedette.wire.messages import Result

# Beyond the deadline: how long an outcome may be on its way from the asking process.
GRACE_S = 10.0
SHARE_EVERY_NS = 1_000_000_000


class EscalationLines:
    """Decides which line is written when; counts may be read by any thread."""

    def __init__(self, plan: EscalationPlan, clock: Clock) -> None:
        self._clock = clock
        self._ledger = EscalationLedger()
        self.use(plan)
        self._lock = threading.Lock()
        self._asking = False
        self._counts: dict[str, EscalationCounts] = {}
        self._unmet_share = 0.0
        self._share_due_ns = 0
        self._due_ns: int | None = None

    def use(self, plan: EscalationPlan) -> None:
        """Go by this from now on."""
        config = plan.config
        deadline_ns = round(config.deadline_ms * 1e6)
        self._hold_ns = deadline_ns if config.hold else None
        self._never_held = frozenset(config.urgent)
        self._ledger.patience_ns = deadline_ns + round(GRACE_S * 1e9)

    def counts(self) -> dict[str, EscalationCounts]:
        """Of each camera, as of the last change."""
        with self._lock:
            return self._counts

    def unmet_share(self) -> float:
        """Of the last hour's judged frames: unsure, and without an answer of the large model."""
        with self._lock:
            return self._unmet_share

    def holds(self, message: Answered) -> bool:
        """Whether a local answer waits for the outcome, and is no line yet."""
        return (
            self._hold_ns is not None
            and self._asking
            and message.asked is Reason.UNCERTAIN
            and message.result.camera not in self._never_held
        )

    def asking(self, *, on: bool) -> list[Ending]:
        """Whether somebody takes what is handed over; without anybody, all that is open ends."""
        self._asking = on
        return [] if on else self._changed(self._ledger.stopped(self._clock.monotonic_ns()))

    def answered(self, message: Answered) -> list[Ending]:
        """A frame's local answer was accounted for."""
        local, now_ns = message.result, self._clock.monotonic_ns()
        if message.unsure is not None:
            self._ledger.judged(now_ns)
        if message.asked is None:
            if local.escalation is not None:
                self._ledger.kept(local, now_ns)
                self._changed([])
            return []
        hold_ns = self._hold_ns if self.holds(message) else None
        unsure = bool(message.unsure)
        ended = self._ledger.opened(local, message.asked, now_ns, hold_ns=hold_ns, unsure=unsure)
        if not self._asking:
            ended += self._ledger.stopped(now_ns)
        return self._changed(ended)

    def unasked(self, message: Unasked) -> list[Ending]:
        """There was no room for it."""
        ending = self._ledger.unasked(message.camera, message.seq, self._clock.monotonic_ns())
        return self._changed([] if ending is None else [ending])

    def concluded(self, lines: Iterable[Result]) -> list[Ending]:
        """The asking process says how some ended."""
        now_ns = self._clock.monotonic_ns()
        endings = [self._ledger.ended(line, now_ns) for line in lines]
        return self._changed([ending for ending in endings if ending is not None])

    def due(self) -> list[Ending]:
        """What time has decided."""
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._share_due_ns:
            self._share_due_ns = now_ns + SHARE_EVERY_NS
            with self._lock:
                self._unmet_share = self._ledger.unmet_share(now_ns)
        if self._due_ns is None or now_ns < self._due_ns:
            return []
        return self._changed([*self._ledger.released(now_ns), *self._ledger.overdue(now_ns)])

    def wait_s(self, most_s: float) -> float:
        """Until `due` has something to say, at most `most_s`."""
        if self._due_ns is None:
            return most_s
        return min(most_s, max(0.0, (self._due_ns - self._clock.monotonic_ns()) / 1e9))

    def _changed(self, endings: Sequence[Ending]) -> list[Ending]:
        self._due_ns = self._ledger.due_ns()
        with self._lock:
            self._counts = self._ledger.counts()
        return list(endings)
