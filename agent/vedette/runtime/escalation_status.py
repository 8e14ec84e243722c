"""How escalation does, as the status, telemetry and the summary say it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from vedette.api.messages import EscalationStatus
from vedette.gate.coverage import held_epsilon
from vedette.telemetry.escalation_window import total
from vedette.wire.telemetry import EscalationFigures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vedette.escalate.messages import EscalatorFigures, Promise
    from vedette.runtime.daemon import Daemon
    from vedette.telemetry.escalation_window import EscalationCounts

_MAX_WORD, _MAX_TEXT = 64, 256
_COUNTERS = ("asked", "audits", "audits_censored", "cache_hits", "cache_misses", "sent_bytes")


def joined(before: EscalatorFigures, now: EscalatorFigures) -> EscalatorFigures:
    """Figures of a process, and the counters of those that served before it."""
    outcomes = dict(before.outcomes)
    for word, count in now.outcomes.items():
        outcomes[word] = outcomes.get(word, 0) + count
    added = {name: getattr(before, name) + getattr(now, name) for name in _COUNTERS}
    return replace(now, outcomes=outcomes, **added)


def describe_escalation(daemon: Daemon) -> EscalationStatus | None:
    """The status; on the supervisor's thread. None where no large model is configured."""
    escalator, lines = daemon.escalator, daemon.escalations
    if escalator is None or lines is None:
        return None
    cameras = lines.counts()
    figures = replace(escalator.totals, promise=as_it_holds(escalator.totals.promise, lines.unmet_share()))
    return EscalationStatus(
        model=escalator.model,
        state=escalator.state.value,
        fault=escalator.fault or figures.fault,
        restarts=escalator.restarts.total,
        cameras=cameras,
        promise=figures.promise,
        spend=figures.spend,
        figures=as_figures(figures, cameras),
        pause_s=figures.pause_s,
        backlog_bytes=figures.backlog_bytes,
        training_samples=figures.training_samples,
        training_bytes=figures.training_bytes,
    )


def as_it_holds(promise: Promise, unmet_share: float) -> Promise:
    """The promise and the agreement less what they do not cover: unsure frames that nobody answered.

    Each of them counts as wrong, in the promise and in the agreement's lower end: what else it was, nobody
    knows. Where nothing is promised, anything may differ.
    """
    holds = held_epsilon(promise.epsilon, unmet_share) if promise.guarantee != "none" else 1.0
    agreement, low = promise.agreement, promise.agreement_low
    return replace(
        promise,
        unmet_share=unmet_share,
        held_epsilon=holds if promise.epsilon else 0.0,
        agreement=None if agreement is None else max(0.0, agreement - unmet_share),
        agreement_low=None if low is None else max(0.0, low - unmet_share),
    )


def as_figures(figures: EscalatorFigures, cameras: Mapping[str, EscalationCounts]) -> EscalationFigures:
    """What a report, a scrape and the summary say; all counts are totals."""
    outcomes: dict[str, int] = {}
    for counts in cameras.values():
        for word, count in counts.outcomes.items():
            outcomes[word] = outcomes.get(word, 0) + count
    promise, spend = figures.promise, figures.spend
    local = promise.local_agreement
    return EscalationFigures(
        outcomes={word[:_MAX_WORD]: total(count) for word, count in sorted(outcomes.items())},
        escalated=total(sum(counts.escalated for counts in cameras.values())),
        calls=total(figures.asked),
        audits=total(sum(counts.audited for counts in cameras.values())),
        sent_bytes=total(figures.sent_bytes),
        cache_hits=total(figures.cache_hits),
        cache_misses=total(figures.cache_misses),
        waiting=sum(counts.under_way for counts in cameras.values()),
        backlog=figures.backlog,
        mode=promise.mode,
        epsilon=promise.epsilon,
        held_epsilon=round(promise.held_epsilon, 5),
        agreement=_agreement(promise),
        local_agreement=None
        if local is None
        else (round(local[0], 5), round(local[1], 5), round(local[2], 5)),
        calls_day=spend.calls_day,
        money_day=round(spend.money_day, 6),
        rtt_ms=(round(figures.rtt_p50_ms, 1), round(figures.rtt_p90_ms, 1)),
        breaker=figures.breaker,
        fault=figures.fault[:_MAX_TEXT],
    )


def _agreement(promise: Promise) -> tuple[float, float, float] | None:
    share, low, high = promise.agreement, promise.agreement_low, promise.agreement_high
    if share is None:
        return None
    return round(share, 5), round(share if low is None else low, 5), round(share if high is None else high, 5)
