"""Quantiles that can be merged. Pure.

Percentiles of parts cannot be averaged (casebook 43): the mean of two p99 values is the p99 of nothing. A
DDSketch keeps counts in logarithmic bins; bins add up, and every quantile is within 1 % of a true value.
Source: Masson, Rim, Lee, "DDSketch", PVLDB 12(12), 2019. Durations have a smallest and a largest sensible
value, so the bins are bounded without ever being collapsed; `wire.sketch_bits` says where they lie.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vedette.wire.sketch_bits import (
    LOG_GAMMA,
    MAX_VALUE_MS,
    MIN_VALUE_MS,
    RELATIVE_ACCURACY,
    Histogram,
    accuracy,
    joined,
    value_ms,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["MAX_VALUE_MS", "RELATIVE_ACCURACY", "Sketch"]

_BINS_PER_E = 1 / LOG_GAMMA
_NS = 1e6


class Sketch:
    """A distribution of durations in milliseconds, in bounded memory. Not safe for two threads."""

    __slots__ = ("_bins", "_count", "_max", "_min", "_scale", "_sum", "_zeros")

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self._zeros = 0
        self._count = 0
        self._sum = 0.0
        self._min = math.inf
        self._max = -math.inf
        self._scale = 0

    @classmethod
    def merged(cls, sketches: Iterable[Sketch]) -> Sketch:
        """One sketch of everything that the given ones saw; they stay as they are."""
        whole = cls()
        for sketch in sketches:
            whole.merge(sketch)
        return whole

    @classmethod
    def of(cls, histogram: Histogram) -> Sketch:
        """The sketch that a histogram from elsewhere describes."""
        sketch = cls()
        sketch._scale = histogram.scale
        if histogram.count:
            sketch._bins = dict(histogram.bins)
            sketch._zeros = histogram.zeros
            sketch._count = histogram.count
            sketch._sum = histogram.sum_ns / _NS
            sketch._min, sketch._max = histogram.min_ns / _NS, histogram.max_ns / _NS
        return sketch

    @property
    def count(self) -> int:
        """Number of values."""
        return self._count

    @property
    def sum(self) -> float:
        """Sum of the values, exact up to rounding."""
        return self._sum

    @property
    def min(self) -> float | None:
        """Smallest value; None when nothing was recorded."""
        return self._min if self._count else None

    @property
    def max(self) -> float | None:
        """Largest value; None when nothing was recorded."""
        return self._max if self._count else None

    @property
    def accuracy(self) -> float:
        """Largest relative error of a quantile: 1 %, unless something coarser was merged in."""
        return accuracy(self._scale)

    def record(self, value: float) -> None:
        """Add one value.

        Raises:
            ValueError: Negative, not finite, or more than `MAX_VALUE_MS`; nothing is recorded.
        """
        if not 0.0 <= value <= MAX_VALUE_MS:
            raise ValueError(f"{value} is no duration")
        if value < MIN_VALUE_MS:
            self._zeros += 1
        else:
            key = math.ceil(math.log(value) * _BINS_PER_E)
            if self._scale:
                key = -(-key >> self._scale)
            self._bins[key] = self._bins.get(key, 0) + 1
        self._count += 1
        self._sum += value
        if value < self._min:  # noqa: PLR1730 - a call of min costs as much as the rest
            self._min = value
        if value > self._max:  # noqa: PLR1730 - as above
            self._max = value

    def merge(self, other: Sketch) -> None:
        """Add everything that another sketch saw; of two scales the coarser one is kept."""
        if not other._count:
            return
        bins = other._bins
        if other._scale > self._scale:
            self._bins = joined(self._bins, other._scale - self._scale)
            self._scale = other._scale
        elif other._scale < self._scale:
            bins = joined(bins, self._scale - other._scale)
        for key, count in bins.items():
            self._bins[key] = self._bins.get(key, 0) + count
        self._zeros += other._zeros
        self._count += other._count
        self._sum += other._sum
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)

    def quantile(self, q: float) -> float | None:
        """The value of rank floor(q * (count - 1)), within `accuracy`; None when nothing was recorded.

        Raises:
            ValueError: q is outside 0..1.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"quantile {q} is outside 0..1")
        if not self._count:
            return None
        left = math.floor(q * (self._count - 1)) - self._zeros
        if left < 0:
            return 0.0
        for key in sorted(self._bins):
            left -= self._bins[key]
            if left < 0:
                return value_ms(key, self._scale)
        return self._max

    def counts_up_to(self, bounds: Sequence[float]) -> list[int]:
        """For each of the ascending bounds, how many values are not above it, give or take a bin."""
        counts = []
        total = self._zeros
        waiting = sorted(self._bins.items(), reverse=True)
        for bound in bounds:
            while waiting and value_ms(waiting[-1][0], self._scale) <= bound:
                total += waiting.pop()[1]
            counts.append(total)
        return counts

    def histogram(self) -> Histogram:
        """What goes to another machine; sum, least and most to the nearest nanosecond."""
        if not self._count:
            return Histogram(scale=self._scale)
        return Histogram(
            zeros=self._zeros,
            bins=dict(self._bins),
            sum_ns=round(self._sum * _NS),
            min_ns=round(self._min * _NS),
            max_ns=round(self._max * _NS),
            scale=self._scale,
        )
