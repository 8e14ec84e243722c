"""The asking process put together, without sockets and rings: cases in, messages out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import BundleError, StorageError
from vedette.escalate.answer_cache import AnswerCache
from vedette.escalate.asked_model import load_asked_model
from vedette.escalate.audit_book import AuditBook, book_path
from vedette.escalate.calibrating import ModelPromise
from vedette.escalate.desk import Desk, DeskParts
from vedette.escalate.gate_settings import SettingNumbers, setting_for, why_off
from vedette.escalate.learning import audit_sample, has_agreed, training_sample
from vedette.escalate.messages import EscalatorEvent, EscalatorFigures, NewSetting, Promise
from vedette.escalate.training import new_sample_id
from vedette.gate.setting import GateMode
from vedette.wire.escalation import Guarantee

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.clock import Clock
    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.asked_model import AskedModel
    from vedette.escalate.asker_pool import AskerPool
    from vedette.escalate.asking import RoundTrips
    from vedette.escalate.backlog_files import BacklogFiles
    from vedette.escalate.breaker import Breaker
    from vedette.escalate.calibrating import Happened
    from vedette.escalate.messages import EscalatorSpec, Feed
    from vedette.escalate.port import CloudAnswer
    from vedette.escalate.purse import Purse
    from vedette.escalate.ticket import Ticket
    from vedette.escalate.training import TrainingSet
    from vedette.gate.case import Case
    from vedette.wire.messages import Result

EVERY_NS = 1_000_000_000


class ServiceParts(NamedTuple):
    """What it works with; `audits` is the folder of books, None keeps none."""

    pool: AskerPool
    trips: RoundTrips
    purse: Purse
    breaker: Breaker
    backlog: BacklogFiles
    training: TrainingSet | None
    audits: Path | None
    clock: Clock
    utc_s: Callable[[], float]
    conclude: Callable[[Result, Result], None]
    tell: Callable[[NewSetting | EscalatorFigures | EscalatorEvent], None]


class Service:
    """One thread owns it; `turn` is called at least once a second."""

    def __init__(self, spec: EscalatorSpec, config: EscalationConfig, parts: ServiceParts) -> None:
        self._spec = spec
        self._config = config
        self._parts = parts
        self._cache = AnswerCache(config.cache.memory, config.cache.ttl_s)
        self._numbers = SettingNumbers(parts.clock)
        self.model: AskedModel | None = None
        self._promise: ModelPromise | None = None
        self._fed: Feed | None = None
        self._fault = ""
        self._due_ns = 0
        self.desk = Desk(
            config,
            DeskParts(
                parts.pool,
                parts.purse,
                parts.breaker,
                parts.trips,
                self._cache,
                parts.backlog,
                parts.clock,
                parts.utc_s,
                self._keeps,
                self._learn,
                parts.conclude,
                self._event,
            ),
        )
        if parts.purse.lost:
            lost = f"what was spent today is not known, so all of it is: {parts.purse.lost}"
            self._event("state_lost", lost)

    def feed(self, feed: Feed) -> None:
        """Cases of this model come from now on; those before keep their own."""
        if self.model is not None and self._fed == feed:
            self._due_ns = 0  # another worker of the same model has no setting yet
            return
        self._close_book()
        self._cache.clear()
        self.model = self._promise = self.desk.drained_for = None
        self._fault, self._fed = "", feed
        try:
            model = load_asked_model(feed.bundle, feed.model_sha256)
        except BundleError as error:
            self._fault = f"nobody can be asked about {feed.model.name} {feed.model.version}: {error.cause}"
            self.desk.tally.first("fault")
            self._event("unusable_bundle", self._fault)
            return
        self.model = self.desk.drained_for = model
        self._promise = ModelPromise(model, self._config.policy, self._book(feed.model_sha256))
        self._due_ns = 0
        self.turn()

    def turn(self) -> None:
        """Deal with what came and with what is due."""
        self.desk.turn()
        now_ns = self._parts.clock.monotonic_ns()
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + EVERY_NS
        self._parts.purse.tick()
        self._parts.backlog.expire(self._parts.utc_s())
        if self._parts.training is not None:
            self._parts.training.sync()
        if self._promise is not None:
            self._promise.book.sync()
        self._tell_setting()
        self._tell_spent()
        self._tell_faults()

    def next_turn_ns(self) -> int:
        """When `turn` has something to do at the latest."""
        deadline_ns = self.desk.next_deadline_ns()
        return self._due_ns if deadline_ns is None else min(self._due_ns, deadline_ns)

    def stop(self) -> None:
        """End every case, and put down what is to be kept."""
        self.desk.stop()
        self._parts.purse.close()
        self._close_book()
        if self._parts.training is not None:
            self._parts.training.close()

    def figures(self) -> EscalatorFigures:
        """How it goes."""
        parts, desk, now_ns = self._parts, self.desk, self._parts.clock.monotonic_ns()
        training = parts.training
        return EscalatorFigures(
            promise=self._promised(),
            spend=parts.purse.spend(),
            asked=desk.asked,
            outcomes=dict(desk.tally.counts),
            audits=desk.audits,
            audits_censored=desk.censored,
            in_flight=desk.in_flight,
            backlog=len(parts.backlog),
            backlog_bytes=parts.backlog.size_bytes,
            breaker=parts.breaker.state(now_ns).value,
            pause_s=round(parts.breaker.pause_s(now_ns), 3),
            rtt_p50_ms=round(parts.trips.quantile(0.5) * 1e3, 3),
            rtt_p90_ms=round(parts.trips.quantile(0.9) * 1e3, 3),
            cache_hits=self._cache.hits,
            cache_misses=self._cache.misses,
            training_samples=0 if training is None else training.samples,
            training_bytes=0 if training is None else training.size_bytes,
            sent_bytes=desk.sent_bytes,
            fault=self._faults(),
        )

    def _tell_setting(self) -> None:
        if self._promise is None:
            return
        grant = self._parts.purse.grant(*self.desk.on_their_way)
        setting = setting_for(self._promise, self._config, grant, self._numbers.next())
        self._parts.tell(NewSetting(setting))

    def _tell_faults(self) -> None:
        """Figures each second, and an event when something begins to be wrong."""
        figures = self.figures()
        self._parts.tell(figures)
        if not figures.fault:
            self.desk.tally.over("fault")
        elif self.desk.tally.first("fault"):
            self._event("fault", figures.fault)

    def _tell_spent(self) -> None:
        """Say once a day that there is nothing left."""
        spend = self._parts.purse.spend()
        limits = (
            ("calls", spend.calls_day, spend.calls_day_limit),
            ("bytes", spend.bytes_day, spend.bytes_day_limit),
            ("money", spend.money_day, spend.money_day_limit),
        )
        gone = [word for word, used, limit in limits if limit is not None and used >= limit]
        if not gone:
            self.desk.tally.over("budget_spent")
        elif self.desk.tally.first("budget_spent"):
            self._event("budget_spent", f"today's {', '.join(gone)}; unsure frames are answered locally")

    def _promised(self) -> Promise:
        """What is promised; the share that was unmet is for the daemon to add, which sees all frames."""
        promise = self._promise
        if promise is None or why_off(promise, self._config):
            return Promise()
        found, agreement, local = promise.calibration, promise.agreement, promise.local_agreement
        promised = self._config.policy.threshold is None
        return Promise(
            guarantee=found.guarantee.value if found.mode is GateMode.CALIBRATED else Guarantee.NONE.value,
            mode=found.mode.value,
            epsilon=promise.promise.epsilon if promised else 0.0,
            delta=self._config.policy.delta,
            threshold=found.threshold,
            temperature=found.temperature,
            samples=found.samples,
            samples_needed=found.needed,
            held_epsilon=promise.promise.epsilon if promised else 0.0,
            agreement=None if agreement is None else agreement.share,
            agreement_low=None if agreement is None else agreement.low,
            agreement_high=None if agreement is None else agreement.high,
            local_agreement=None if local is None else (local.share, local.low, local.high),
        )

    def _faults(self) -> str:
        training = self._parts.training
        off = "" if self._promise is None else why_off(self._promise, self._config)
        found = [
            self._fault,
            off,
            "" if self._promise is None else self._promise.book.fault,
            self._parts.purse.fault,
            self._parts.backlog.fault,
            "" if training is None else training.fault,
        ]
        return "; ".join(one for one in found if one)

    # What the desk asks and tells --------------------------------------------------------------------------

    def _keeps(self, case: Case) -> bool:
        return self._promise is not None and self._promise.keeps(case.score, case.uncertainty)

    def _learn(self, ticket: Ticket, answer: CloudAnswer, result: Result) -> None:
        promise = self._promise
        if promise is not None and promise.model.sha256 == ticket.model.sha256:
            self._teach(promise, ticket, result)
        training = self._parts.training
        if training is not None:
            sample = training_sample(
                ticket,
                answer,
                result,
                self._config,
                sample_id=new_sample_id(),
                device=self._spec.device,
                site=self._spec.site,
            )
            training.add(sample, ticket.kept_case.picture.jpeg)

    def _teach(self, promise: ModelPromise, ticket: Ticket, result: Result) -> None:
        happened: list[Happened]
        if ticket.audit:
            happened = promise.audited(audit_sample(ticket, result))
        else:
            happened = promise.escalated(agreed=has_agreed(result), utc_s=ticket.kept_case.utc_s)
        for one in happened:
            self._event(one.word, one.detail)
        if happened:
            self._tell_setting()

    def _event(self, word: str, detail: str) -> None:
        self._parts.tell(EscalatorEvent(word, detail[:1000]))

    # Books -------------------------------------------------------------------------------------------------

    def _book(self, model_sha256: str) -> AuditBook:
        folder = self._parts.audits
        book = AuditBook(None)
        try:
            if folder is not None:
                book = AuditBook(book_path(folder, model_sha256))
                book.open()
        except (OSError, StorageError) as error:
            self._fault = f"audits are not kept: {error}"
            return AuditBook(None)
        if book.damage:
            self._event("state_lost", f"of the book of audits the end was cut off: {book.damage}")
        return book

    def _close_book(self) -> None:
        if self._promise is not None:
            self._promise.book.close()
