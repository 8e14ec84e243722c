"""How often the local answers agree with the large model's, without bias. Pure.

Frames that were escalated are the hard ones: their mean alone says too little. The audit's frames were drawn
before anybody looked, each with a known probability, so that each stands for 1 / probability frames (Horvitz
and Thompson, "A generalization of sampling without replacement from a finite universe", JASA 47, 1952).
"""

from __future__ import annotations

from typing import NamedTuple

from vedette.gate.binomial import wilson_interval


class Agreement(NamedTuple):
    """A share with its 95 % interval; `audits` is how many frames of the kept ones it rests on."""

    share: float
    low: float
    high: float
    audits: int


class AgreementTally:
    """Counts of one window; `local` agreement, and that of what the box answers with corrections."""

    def __init__(self) -> None:
        self._frames = 0
        self._corrected = 0
        self._weight = 0.0
        self._weight_squared = 0.0
        self._agreed = 0.0
        self._audits = 0
        self._all_weight = self._all_weight_squared = self._all_agreed = 0.0
        self._all_audits = 0

    def frame(self, *, corrected: bool) -> None:
        """A frame was answered; `corrected`: by the large model in the end, so that they agree."""
        self._frames += 1
        self._corrected += corrected

    def audit(self, *, agreed: bool, inclusion: float, kept: bool = True) -> None:
        """An audit came back; `kept`: the frame was, or would have been, answered locally in the end.

        Raises:
            ValueError: It could not have been drawn.
        """
        if not 0.0 < inclusion <= 1.0:
            raise ValueError(f"an audit drawn with probability {inclusion}")
        weight = 1.0 / inclusion
        self._all_weight += weight
        self._all_weight_squared += weight * weight
        self._all_agreed += weight * agreed
        self._all_audits += 1
        if not kept:
            return
        self._weight += weight
        self._weight_squared += weight * weight
        self._agreed += weight * agreed
        self._audits += 1

    def local(self) -> Agreement | None:
        """Of the local answers alone, whether they were kept or not; None before any audit."""
        if not self._all_audits:
            return None
        effective = self._all_weight**2 / self._all_weight_squared
        share = self._all_agreed / self._all_weight
        low, high = wilson_interval(share * effective, effective)
        return Agreement(share, low, high, self._all_audits)

    def estimate(self) -> Agreement | None:
        """Of what the box answers; None before any audit.

        With unequal weights the interval is that of the effective number of samples (Kish, 1965).
        """
        if not self._audits:
            return None
        effective = self._weight**2 / self._weight_squared
        kept = self._agreed / self._weight
        low, high = wilson_interval(kept * effective, effective)
        away = self._corrected / self._frames if self._frames else 0.0
        share, low, high = (away + (1.0 - away) * value for value in (kept, low, high))
        return Agreement(share, low, high, self._audits)
