"""Quantiles that can be merged. Pure.

Percentiles of parts cannot be averaged (casebook 43): the mean of two p99 values is the p99 of nothing. A
DDSketch keeps counts in logarithmic bins; bins add up, and every quantile is within 1 % of a true value.
Source: Masson, Rim, Lee, "DDSketch", PVLDB 12(12), 2019.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ddsketch import LogCollapsingLowestDenseDDSketch

if TYPE_CHECKING:
    from collections.abc import Iterable

RELATIVE_ACCURACY = 0.01
# e^(2048 * 0.02), a ratio of 10^17 between largest and smallest, before the smallest bins are joined.
_MAX_BINS = 2048


class Sketch:
    """A distribution of values >= 0 in bounded memory. Not safe for two threads."""

    def __init__(self) -> None:
        self._bins = LogCollapsingLowestDenseDDSketch(RELATIVE_ACCURACY, _MAX_BINS)

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """One sketch of everything that the given ones saw; they stay as they are."""
        whole = cls()
        for sketch in sketches:
            whole.merge(sketch)
        return whole

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self._bins.count)

    @property
    def sum(self) -> float:
        """Sum of the values, exact up to rounding."""
        return float(self._bins.sum)

    def record(self, value: float) -> None:
        """Add one value.

        Raises:
            ValueError: Negative or not finite; nothing is recorded.
        """
        # The library would count NaN as zero and spoil the sum for good.
        if not 0.0 <= value < math.inf:
            raise ValueError(f"{value} is no duration")
        self._bins.add(value)

    def merge(self, other: Sketch) -> None:
        """Add everything that another sketch saw."""
        self._bins.merge(other._bins)

    def quantile(self, q: float) -> float | None:
        """The value of rank q * (count - 1), within 1 %; None when nothing was recorded.

        Raises:
            ValueError: q is outside 0..1.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"quantile {q} is outside 0..1")
        if self.count == 0:
            return None
        return float(self._bins.get_quantile_value(q))
