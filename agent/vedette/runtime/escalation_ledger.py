"""The escalation ledger: every frame that the large model was to see ends in exactly one outcome. Pure.

An escalation is opened when the engine worker says that it hands the frame over, and ended by the asking
process, by the worker (no room on the way), or here: when the asking process is gone, or when nothing was
heard for longer than it may take. Whatever comes after that is counted as stray, and shown to nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from vedette.gate.coverage import Coverage
from vedette.telemetry.escalation_window import EscalationCounts
from vedette.wire.escalation import DeclineCause, OutcomeWord, Reason
from vedette.wire.messages import Escalation

if TYPE_CHECKING:
    from vedette.wire.messages import Result

MAX_OPEN_BYTES = 4 << 20
# What a local answer takes beside its labels and boxes, and each of those; generous guesses.
_ANSWER_BYTES, _ENTRY_BYTES = 600, 200
_COVERED = frozenset({OutcomeWord.ANSWERED.value, OutcomeWord.AGREED.value})


class Ending(NamedTuple):
    """What is to be written; `settles`: the frame's first line, which was held until now."""

    line: Result
    settles: bool


class _Open(NamedTuple):
    local: Result
    reason: Reason
    opened_ns: int
    held_until_ns: int | None
    size_bytes: int
    unsure: bool


class _Account:
    def __init__(self) -> None:
        self.opened = dict.fromkeys(Reason, 0)
        self.under_way = 0
        self.outcomes: dict[str, int] = {}
        self.scene_covered = True  # whether the question that ended last was answered


class EscalationLedger:
    """One thread owns it; times are monotonic nanoseconds.

    After `patience_ns` without an outcome there will be none.
    """

    def __init__(self, *, patience_ns: int = 60_000_000_000) -> None:
        self.patience_ns = patience_ns
        self._open: OrderedDict[tuple[str, int], _Open] = OrderedDict()
        self._open_bytes = 0
        self._accounts: dict[str, _Account] = {}
        self._coverage = Coverage()
        self.stray = 0

    def judged(self, now_ns: int) -> None:
        """The gate judged a frame, however it did."""
        self._coverage.judged(now_ns)

    def unmet_share(self, now_ns: int) -> float:
        """Of the last hour's judged frames: those of which the promise says nothing; see `Coverage`."""
        return self._coverage.unmet_share(now_ns)

    def opened(
        self, local: Result, reason: Reason, now_ns: int, *, hold_ns: int | None, unsure: bool = True
    ) -> list[Ending]:
        """A frame is on its way to the large model.

        Args:
            local: The local answer.
            reason: Why it is to be asked.
            now_ns: Now.
            hold_ns: How long the local answer is held for the outcome; None: it went out.
            unsure: The promise counts on the outcome; audits are drawn from all frames.

        Returns:
            Others that had to end, because too many are under way.
        """
        key = local.camera, local.seq
        if key in self._open:
            self.stray += 1
            return []
        account = self._of(local.camera)
        account.opened[reason] += 1
        account.under_way += 1
        size_bytes = _size_bytes(local)
        held_until_ns = None if hold_ns is None else now_ns + hold_ns
        self._open[key] = _Open(local, reason, now_ns, held_until_ns, size_bytes, unsure)
        self._open_bytes += size_bytes
        ended: list[Ending] = []
        while self._open_bytes > MAX_OPEN_BYTES:
            ended.append(self._stop(next(iter(self._open)), now_ns))
        return ended

    def kept(self, local: Result, now_ns: int) -> None:
        """The gate declined it: the outcome stands in the frame's own line.

        A scene counts once, in calibration and here: what its question brought covers the frames after it.
        """
        if local.escalation is None:
            return
        self._count(local.camera, local.escalation)
        scene = local.escalation.cause == DeclineCause.COOL_DOWN.value
        if not (scene and self._of(local.camera).scene_covered):
            self._coverage.uncovered(now_ns)

    def ended(self, line: Result, now_ns: int) -> Ending | None:
        """The asking process says how one ended; None where that is no news."""
        key = line.camera, line.seq
        if key not in self._open or line.escalation is None:
            self.stray += 1
            return None
        return self._end(key, line, now_ns)

    def unasked(self, camera: str, seq: int, now_ns: int) -> Ending | None:
        """The worker found no room for it on its way."""
        if (camera, seq) not in self._open:
            self.stray += 1
            return None
        return self._decline((camera, seq), DeclineCause.BUSY, now_ns)

    def stopped(self, now_ns: int) -> list[Ending]:
        """Nobody is left who could end what is open."""
        return [self._stop(key, now_ns) for key in tuple(self._open)]

    def overdue(self, now_ns: int) -> list[Ending]:
        """Those of which nothing will be heard any more."""
        ended: list[Ending] = []
        while self._open:
            key, oldest = next(iter(self._open.items()))
            if now_ns - oldest.opened_ns < self.patience_ns:
                break
            ended.append(self._stop(key, now_ns))
        return ended

    def released(self, now_ns: int) -> list[Ending]:
        """Local answers that were held long enough; their outcome follows in a line of its own."""
        due = [
            key
            for key, one in self._open.items()
            if one.held_until_ns is not None and one.held_until_ns <= now_ns
        ]
        for key in due:
            self._open[key] = self._open[key]._replace(held_until_ns=None)
        return [Ending(self._open[key].local, settles=True) for key in due]

    def due_ns(self) -> int | None:
        """When `released` or `overdue` has something next; None: not before something is opened."""
        if not self._open:
            return None
        first_ns = next(iter(self._open.values())).opened_ns + self.patience_ns
        held = [one.held_until_ns for one in self._open.values() if one.held_until_ns is not None]
        return min([first_ns, *held])

    def counts(self) -> dict[str, EscalationCounts]:
        """Of every camera that anything was said of."""
        held: dict[str, int] = {}
        for (camera, _), one in self._open.items():
            held[camera] = held.get(camera, 0) + (one.held_until_ns is not None)
        return {
            camera: EscalationCounts(
                account.opened[Reason.UNCERTAIN],
                account.opened[Reason.AUDIT],
                account.under_way,
                held.get(camera, 0),
                dict(account.outcomes),
            )
            for camera, account in self._accounts.items()
        }

    def _of(self, camera: str) -> _Account:
        return self._accounts.setdefault(camera, _Account())

    def _end(self, key: tuple[str, int], line: Result, now_ns: int) -> Ending:
        one = self._open.pop(key)
        self._open_bytes -= one.size_bytes
        account = self._of(key[0])
        account.under_way -= 1
        if line.escalation is not None:
            self._count(key[0], line.escalation)
            account.scene_covered = line.escalation.outcome in _COVERED
        if one.unsure and not account.scene_covered:
            self._coverage.uncovered(now_ns)
        return Ending(line, settles=one.held_until_ns is not None)

    def _stop(self, key: tuple[str, int], now_ns: int) -> Ending:
        return self._decline(key, DeclineCause.STOPPED, now_ns)

    def _decline(self, key: tuple[str, int], cause: DeclineCause, now_ns: int) -> Ending:
        one = self._open[key]
        took_ms = (now_ns - one.opened_ns) // 1000 / 1000
        outcome = Escalation(OutcomeWord.DECLINED.value, cause.value, one.reason.value, took_ms)
        return self._end(key, replace(one.local, escalation=outcome), now_ns)

    def _count(self, camera: str, outcome: Escalation) -> None:
        word = outcome.outcome if outcome.cause is UNSET else f"{outcome.outcome}_{outcome.cause}"
        outcomes = self._of(camera).outcomes
        outcomes[word] = outcomes.get(word, 0) + 1


def _size_bytes(local: Result) -> int:
    labels = 0 if local.top is UNSET else len(local.top)
    boxes = 0 if local.detections is UNSET else len(local.detections)
    return _ANSWER_BYTES + _ENTRY_BYTES * (labels + boxes)
