"""When an earlier answer may be given again, and how often that was wrong. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette.gate.binomial import wilson_interval
from vedette.gate.reuse_rules import Change, Use

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.gate.reuse_rules import ReuseRules


class ReuseFigures(NamedTuple):
    """Counts since the start; `wrong_*`: the share of checks whose answer had changed, with its interval."""

    again: int
    anew: int
    checks: int
    wrong_share: float
    wrong_low: float
    wrong_high: float


class Reuse:
    """One camera; `draw` gives a random number in [0, 1). Times are CLOCK_MONOTONIC."""

    def __init__(self, rules: ReuseRules, draw: Callable[[], float]) -> None:
        self._rules = rules
        self._draw = draw
        self._model = ""
        self._answered_ns: int | None = None
        self._answer = ""
        self._again = self._anew = self._checks = self._wrong = 0

    def decide(self, change: Change, model: str, now_ns: int) -> Use:
        """What to do with a frame.

        Args:
            change: What the frame gate saw.
            model: Digest of the model that would answer; an answer of another one is never given again.
            now_ns: Now.
        """
        answered_ns = self._answered_ns
        too_old = answered_ns is None or now_ns - answered_ns > self._rules.max_age_s * 1e9
        if change is not Change.NONE or too_old or model != self._model:
            return Use.ANEW
        return Use.CHECK if self._draw() < self._rules.check_share else Use.AGAIN

    def given(self, use: Use, model: str, answer: str, now_ns: int) -> None:
        """A frame was dealt with; `answer` is text that is equal for equal answers."""
        if use is Use.AGAIN:
            self._again += 1
            return
        if use is Use.CHECK:
            self._checks += 1
            self._wrong += answer != self._answer
        self._anew += 1
        self._model, self._answer, self._answered_ns = model, answer, now_ns

    def failed(self) -> None:
        """The model gave no answer: there is none to give again."""
        self._answered_ns = None

    @property
    def wrong(self) -> int:
        """Checks whose answer had changed."""
        return self._wrong

    def figures(self) -> ReuseFigures:
        """Counts so far."""
        low, high = wilson_interval(self._wrong, self._checks)
        share = self._wrong / self._checks if self._checks else 0.0
        return ReuseFigures(self._again, self._anew, self._checks, share, low, high)
