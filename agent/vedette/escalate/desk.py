"""Where cases are dealt with: who is asked about, who waits, and how each of them ends, exactly once.

One thread owns all of this; the network is the pool's affair. A case is `open` from its arrival until it is
concluded, whatever its question does afterwards: an answer that comes too late still teaches.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import VedetteError
from vedette.escalate.asker_pool import Job
from vedette.escalate.breaker import BreakerState
from vedette.escalate.conclusion import answered, declined, failed
from vedette.escalate.intake import Intake, answered_ns
from vedette.escalate.outcomes import LATER, OutcomeTally, blame_of
from vedette.escalate.port import CloudError, Question
from vedette.escalate.privacy import why_not
from vedette.escalate.ticket import Ticket, Waiting
from vedette.wire.escalation import CloudFault, DeclineCause, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from vedette.clock import Clock
    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.answer_cache import AnswerCache
    from vedette.escalate.asked_model import AskedModel
    from vedette.escalate.asker_pool import AskerPool, Reply
    from vedette.escalate.asking import RoundTrips
    from vedette.escalate.backlog_files import BacklogFiles
    from vedette.escalate.breaker import Breaker
    from vedette.escalate.port import CloudAnswer
    from vedette.escalate.purse import Purse
    from vedette.gate.case import Case
    from vedette.wire.messages import Result

WAITING_BYTES = 32 << 20
LEAST_ASK_NS = 20_000_000
# An answer that comes a little late is paid for all the same, and still teaches.
GRACE_SHARE = 0.5
# After a failure what waits on the disk waits for so long, or for somebody else's success.
DRAIN_REST_NS = 30 * 1_000_000_000


class DeskParts(NamedTuple):
    """What the desk works with; `learn` hears every answer, `tell_event` what an operator should know."""

    pool: AskerPool
    purse: Purse
    breaker: Breaker
    trips: RoundTrips
    cache: AnswerCache
    backlog: BacklogFiles
    clock: Clock
    utc_s: Callable[[], float]
    keeps: Callable[[Case], bool]
    learn: Callable[[Ticket, CloudAnswer, Result], None]
    conclude: Callable[[Result, Result], None]
    tell_event: Callable[[str, str], None]


class Desk:
    """All cases of this process."""

    def __init__(self, config: EscalationConfig, parts: DeskParts) -> None:
        self._config = config
        self._parts = parts
        self._waiting = Waiting(WAITING_BYTES)
        self._open: dict[int, Ticket] = {}
        self._asked: dict[int, Ticket] = {}
        self._intake = Intake(config, parts.utc_s)
        self._drain_after_ns = 0
        self.tally = OutcomeTally()
        self.drained_for: AskedModel | None = None  # whose cases of the backlog are asked about
        self.asked = self.audits = self.censored = self.sent_bytes = 0

    @property
    def open(self) -> int:
        """Cases that have not ended."""
        return len(self._open)

    @property
    def in_flight(self) -> int:
        """Questions that are being asked."""
        return len(self._asked)

    @property
    def on_their_way(self) -> tuple[int, int]:
        """Cases that wait and will be paid for: escalations and audits."""
        audits = self._waiting.audits()
        return len(self._waiting) - audits, audits

    def next_deadline_ns(self) -> int | None:
        """When the next open case has to end; None where there is none."""
        return min((ticket.deadline_ns for ticket in self._open.values()), default=None)

    # Cases come in ----------------------------------------------------------------------------------------

    def take(self, case: Case, model: AskedModel | None, frame: Callable[[], NDArray[np.uint8]]) -> None:
        """Deal with a new case; `frame` gives its picture, which may be gone when this returns."""
        now_ns = self._parts.clock.monotonic_ns()
        self.audits += case.reason is Reason.AUDIT
        why = self._why_not(case, model, now_ns)
        if why is not None or model is None:
            self.decline(case, why or DeclineCause.UNSUPPORTED, now_ns)
            return
        try:
            ticket = self._intake.ticket(case, model, frame(), kept=self._parts.keeps(case))
        except VedetteError as error:
            if self.tally.first("unusable_picture"):
                self._parts.tell_event("unusable_picture", str(error))
            self.decline(case, DeclineCause.UNSUPPORTED, now_ns)
            return
        self._open[ticket.number] = ticket
        if not ticket.audit:  # an audit's answer has to be of its own
            known = self._parts.cache.get(ticket.cache_key, now_ns)
            if known is not None:
                self._conclude(ticket, self._result(ticket, known))
                return
        for gone in self._waiting.push(ticket):
            self._decline(gone, DeclineCause.BUSY)
        self.dispatch()

    def decline(self, case: Case, cause: DeclineCause, now_ns: int) -> None:
        """End a case that never came to the desk."""
        self.censored += case.reason is Reason.AUDIT and cause is DeclineCause.PRIVACY
        result = declined(case, cause, _ms(now_ns - answered_ns(case)))
        self.tally.count(result)
        self._parts.conclude(result, case.result)

    # Time passes ------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Hear the pool, end what is due, ask what may be asked."""
        for reply in self._parts.pool.replies():
            self._heard(reply)
        now_ns = self._parts.clock.monotonic_ns()
        for ticket in [one for one in self._open.values() if now_ns >= one.deadline_ns]:
            if ticket.number in self._asked:
                late = CloudError(CloudFault.DEADLINE, "no answer within the deadline")
                self._conclude(ticket, failed(ticket.case, late, self._took_ms(ticket)))
            else:
                self._decline(ticket, DeclineCause.TOO_OLD)
        self.dispatch()
        self._drain(now_ns)

    def dispatch(self) -> None:
        """Give free threads what is most worth asking."""
        while self._parts.pool.free > 0 and (ticket := self._waiting.pop()) is not None:
            if not self._try(ticket):
                return

    def stop(self) -> None:
        """End every case now."""
        while self._waiting.pop() is not None:
            pass
        for ticket in tuple(self._open.values()):
            self._decline(ticket, DeclineCause.STOPPED)

    def _why_not(self, case: Case, model: AskedModel | None, now_ns: int) -> DeclineCause | None:
        if model is None or model.sha256 != case.model_sha256 or model.task.value != case.result.task:
            return DeclineCause.UNSUPPORTED
        cause = why_not(case.result, self._config.privacy)
        if cause is not None:
            return cause
        deadline_ns = self._intake.deadline_ns(case)
        if now_ns + LEAST_ASK_NS > deadline_ns:
            return DeclineCause.TOO_OLD
        if self._intake.is_urgent(case) and now_ns + self._usual_ns() > deadline_ns:
            return DeclineCause.URGENT
        return None

    def _try(self, ticket: Ticket) -> bool:
        """Ask, or end it; False where all have to wait."""
        parts, now_ns = self._parts, self._parts.clock.monotonic_ns()
        if now_ns + LEAST_ASK_NS > ticket.deadline_ns:
            self._decline(ticket, DeclineCause.TOO_OLD)
        elif ticket.urgent and now_ns + self._usual_ns() > ticket.deadline_ns:
            self._decline(ticket, DeclineCause.URGENT)
        elif not parts.breaker.may_call(now_ns):
            self._keep(ticket)
            self._decline(ticket, DeclineCause.OFFLINE)
        elif parts.purse.take(audit=ticket.audit):
            grace_ns = round(GRACE_SHARE * self._config.deadline_ms * 1e6)
            self._ask(ticket, ticket.deadline_ns + grace_ns)
        else:
            parts.breaker.abandoned()
            if not parts.purse.exhausted(audit=ticket.audit):  # it is written down first what is to be spent
                self._waiting.push(ticket)
                return False
            self._decline(ticket, DeclineCause.BUDGET)
        return True

    def _ask(self, ticket: Ticket, deadline_ns: int) -> None:
        picture, model = ticket.kept_case.picture, ticket.model
        question = Question(
            secrets.token_hex(16),
            model.task,
            picture.jpeg,
            picture.width,
            picture.height,
            model.labels,
            model.prompt,
        )
        self._asked[ticket.number] = ticket
        self.asked += 1
        self._parts.pool.start(Job(ticket.number, question, deadline_ns / 1e9, ticket.audit))

    def _heard(self, reply: Reply) -> None:
        ticket = self._asked.pop(reply.number)
        answer, parts = reply.answer, self._parts
        self.sent_bytes += answer.sent_bytes
        if reply.crash and self.tally.first("own_fault"):
            parts.tell_event("own_fault", reply.crash)
        if isinstance(answer, CloudError):
            self._blame(answer, own=bool(reply.crash))
            self._conclude(ticket, failed(ticket.case, answer, self._took_ms(ticket)))
            if ticket.file:
                parts.backlog.done(ticket.file, answered=answer.fault not in LATER)
            elif answer.fault in LATER:
                self._keep(ticket)
            return
        parts.breaker.succeeded()
        self._drain_after_ns = 0
        self.tally.answered()
        result = self._result(ticket, answer)
        self._conclude(ticket, result)
        parts.cache.put(ticket.cache_key, answer, parts.clock.monotonic_ns())
        parts.learn(ticket, answer, result)
        if ticket.file:
            parts.backlog.done(ticket.file, answered=True)

    def _blame(self, error: CloudError, *, own: bool) -> None:
        parts, now_ns = self._parts, self._parts.clock.monotonic_ns()
        blame = blame_of(error)
        if own:
            parts.breaker.abandoned()
        elif blame.server_failed:
            parts.breaker.failed(now_ns)
            self._drain_after_ns = now_ns + DRAIN_REST_NS
        else:
            parts.breaker.succeeded()
        if blame.pause_s > 0:
            parts.breaker.wait(blame.pause_s, now_ns)
        event = self.tally.event_of(error)
        if event is not None:
            parts.tell_event(*event)

    def _drain(self, now_ns: int) -> None:
        """Ask about one that waits on the disk, when nothing else is to be done and the way is open."""
        parts = self._parts
        model = self.drained_for
        idle = parts.pool.free > 0 and not len(self._waiting) and now_ns >= self._drain_after_ns
        if model is None or not idle or parts.breaker.state(now_ns) is BreakerState.OPEN:
            return
        if parts.breaker.pause_s(now_ns) > 0:
            return
        found = parts.backlog.next_due(now_ns / 1e9, model.sha256)
        if found is None:
            return
        name, kept = found
        ticket = self._intake.numbered(kept, model, name)
        if not parts.breaker.may_call(now_ns) or not parts.purse.take(audit=ticket.audit):
            parts.breaker.abandoned()
            parts.backlog.done(name, answered=False)
            return
        self._ask(ticket, now_ns + round(self._config.deadline_ms * 1e6))

    def _keep(self, ticket: Ticket) -> None:
        if not ticket.file:
            self._parts.backlog.keep(ticket.kept_case, ticket.rank)

    def _result(self, ticket: Ticket, answer: CloudAnswer) -> Result:
        return answered(ticket.case, answer, ticket.model.words, ticket.sent, self._took_ms(ticket))

    def _decline(self, ticket: Ticket, cause: DeclineCause) -> None:
        self._conclude(ticket, declined(ticket.case, cause, self._took_ms(ticket)))

    def _conclude(self, ticket: Ticket, result: Result) -> None:
        """The only way out; a second outcome of one case goes nowhere."""
        self._waiting.remove(ticket)
        if self._open.pop(ticket.number, None) is None:
            return
        self.tally.count(result)
        self._parts.conclude(result, ticket.case.result)

    def _usual_ns(self) -> int:
        return round(self._parts.trips.quantile(0.9) * 1e9)

    def _took_ms(self, ticket: Ticket) -> float:
        return _ms(self._parts.clock.monotonic_ns() - ticket.answered_ns)


def _ms(elapsed_ns: int) -> float:
    return max(0.0, elapsed_ns / 1e6)
