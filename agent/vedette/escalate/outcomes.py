"""How escalations ended, counted, and what an operator is told once and not each time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from vedette.escalate.port import CloudError
    from vedette.wire.messages import Result

QUOTA_PAUSE_S = 3600.0
FINAL_PAUSE_S = 600.0
# The server did its part: another question may well be answered.
_ANSWERS = frozenset({CloudFault.MALFORMED, CloudFault.REFUSED, CloudFault.CUT, CloudFault.UNMAPPED})
# Another time the same question may be answered.
LATER = frozenset(
    {CloudFault.DEADLINE, CloudFault.CONNECT, CloudFault.BROKEN, CloudFault.BUSY, CloudFault.SERVER}
)
_EVENTS = {
    CloudFault.QUOTA: ("quota", "the large model's quota is spent; it is asked again in an hour"),
    CloudFault.FORBIDDEN: ("forbidden", "the large model refuses the key; check `escalation.key`"),
    CloudFault.REJECTED: ("rejected", "the large model refuses the request; check `url` and `model`"),
}


class Blame(NamedTuple):
    """What an error means for those after it: whether the server failed, and how long to leave it alone."""

    server_failed: bool
    pause_s: float


def blame_of(error: CloudError) -> Blame:
    """Read an error."""
    own_fault = error.fault in _ANSWERS or (error.fault is CloudFault.REJECTED and not error.final)
    pause_s = error.retry_after_s or 0.0
    if error.fault is CloudFault.QUOTA:
        pause_s = max(pause_s, QUOTA_PAUSE_S)
    elif error.final:
        pause_s = max(pause_s, FINAL_PAUSE_S)
    return Blame(not own_fault, pause_s)


class OutcomeTally:
    """Counts outcomes; `told` remembers what was said until it is over."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._told: set[str] = set()

    def count(self, result: Result) -> None:
        """One escalation ended."""
        ended = result.escalation
        if ended is not None:
            cause = "" if ended.cause is UNSET else f"_{ended.cause}"
            self.counts[ended.outcome + cause] += 1

    def event_of(self, error: CloudError) -> tuple[str, str] | None:
        """An event where an operator has to do something, once."""
        if error.fault not in _EVENTS or not (error.final or error.fault is CloudFault.QUOTA):
            return None
        word, advice = _EVENTS[error.fault]
        return (word, f"{advice} ({error})") if self.first(word) else None

    def first(self, word: str) -> bool:
        """Whether this is said for the first time since it was over."""
        if word in self._told:
            return False
        self._told.add(word)
        return True

    def over(self, *words: str) -> None:
        """These may be said again when they come back."""
        self._told.difference_update(words)

    def answered(self) -> None:
        """The large model answers: what was wrong with it is over."""
        self.over(*(word for word, _ in _EVENTS.values()))
