"""The part of the status screen that is about the large model. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.runtime.narration import size_text
from vedette.telemetry.summary import duration_text, outcome_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.api.messages import EscalationStatus
    from vedette.escalate.messages import Promise, Spend

_LABEL_COLUMNS = 10
_MODES = {
    "off": "off: no answer of this model is judged yet",
    "threshold": "a plain threshold, which promises nothing",
    "uncalibrated": "not calibrated yet: unsure by its own word, which promises nothing",
    "calibrated": "calibrated on audits of this very model",
}


def escalation_rows(found: EscalationStatus) -> Iterator[str]:
    """Label and text of each row: whom it asks, what is promised and holds, what became of it, the spend."""
    yield _row("escalates", f"to {found.model}" + ("" if found.state == "ready" else f", {found.state}"))
    if found.fault:
        yield _row("", f"! {found.fault}")
    if found.restarts:
        yield _row("", f"! the asking process was started again {found.restarts} times")
    if found.pause_s > 0:
        yield _row("", f"! it failed too often lately: not asked for {duration_text(found.pause_s)}")
    yield from _promise(found.promise)
    figures = found.figures
    asked = f"{figures.escalated[1]:,} unsure answers and {figures.audits[1]:,} at random"
    waiting = f", {figures.waiting:,} under way" if figures.waiting else ""
    yield _row("asked", f"about {asked}, {figures.calls[1]:,} calls{waiting}")
    for word, count in figures.outcomes.items():
        yield _row("", f"{count[1]:,} {outcome_text(word)}")
    if figures.rtt_ms[0]:
        median_ms, slow_ms = figures.rtt_ms
        yield _row("answers", f"in {median_ms:,.0f} ms, 9 of 10 in {slow_ms:,.0f} ms")
    if figures.backlog:
        yield _row("waiting", f"{figures.backlog:,} on the disk, {size_text(found.backlog_bytes)}")
    yield _row("spent", _spend(found.spend))
    if found.training_samples:
        yield _row("training", f"{found.training_samples:,} samples, {size_text(found.training_bytes)}")


def _promise(promise: Promise) -> Iterator[str]:
    yield _row("gate", f"{_MODES.get(promise.mode, promise.mode)}; threshold {promise.threshold:.3g}")
    if promise.samples < promise.samples_needed:
        yield _row("", f"{promise.samples:,} of {promise.samples_needed:,} audits that calibrating takes")
    if promise.guarantee != "none":
        kept = f"at most {promise.epsilon:.2%} below it, with confidence {1 - promise.delta:.0%}"
        yield _row("promise", kept)
        if promise.unmet_share > 0:
            unmet = f"! {promise.unmet_share:.2%} of the last hour's frames were unsure and unanswered by it"
            yield _row("", f"{unmet}: what holds is {promise.held_epsilon:.2%}")
    if promise.local_agreement is not None:
        share, low, high = promise.local_agreement
        yield _row("agreement", f"{share:.1%} of local answers (95 % interval {low:.1%} to {high:.1%})")
    if promise.agreement is not None:
        low, high = promise.agreement_low or 0.0, promise.agreement_high or 1.0
        what = f"{promise.agreement:.1%} with corrections, or more"
        yield _row("", f"{what} (95 % interval {low:.1%} to {high:.1%})")


def _spend(spend: Spend) -> str:
    parts = [f"{spend.calls_day:,}{_of(spend.calls_day_limit)} calls today"]
    if spend.bytes_day or spend.bytes_day_limit is not None:
        limit = "" if spend.bytes_day_limit is None else f" of {size_text(spend.bytes_day_limit)}"
        parts.append(f"{size_text(spend.bytes_day)}{limit}")
    if spend.money_day or spend.money_day_limit is not None:
        limit = "" if spend.money_day_limit is None else f" of {spend.money_day_limit:,.2f}"
        parts.append(f"{spend.money_day:,.4f}{limit} of money")
    return ", ".join(parts)


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {limit:,}"


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL_COLUMNS}} {text}"
