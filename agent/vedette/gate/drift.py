"""Has the world changed since the threshold was chosen? Two detectors. Pure.

ADWIN (Bifet and Gavalda, "Learning from Time-Changing Data with Adaptive Windowing", SDM 2007) watches the
confidence of all frames, which costs nothing; Page's test (Page, "Continuous inspection schemes", Biometrika
41, 1954, in the form of Mouss et al., 2004) watches errors that only the large model's answers show.
"""

from __future__ import annotations

import math

BUCKETS_EACH = 5
CHECK_EVERY = 32
LEAST_WINDOW = 10
LEAST_SIDE = 5


class Adwin:
    """A window over values from 0 to 1 that drops its older part when the two differ; memory O(log n)."""

    def __init__(self, delta: float = 0.002) -> None:
        self._delta = delta
        # Of 2^i values each: their sum and their squared deviations, oldest first.
        self._rows: list[list[tuple[float, float]]] = [[]]
        self._count = 0
        self._sum = 0.0
        self._deviations = 0.0
        self._since_check = 0

    @property
    def mean(self) -> float:
        """Of the window."""
        return self._sum / self._count if self._count else 0.0

    @property
    def width(self) -> int:
        """How many values the window holds."""
        return self._count

    def add(self, value: float) -> bool:
        """Take a value in; True where the window was cut: something changed."""
        if self._count:
            self._deviations += self._count * (value - self.mean) ** 2 / (self._count + 1)
        self._count += 1
        self._sum += value
        self._rows[0].append((value, 0.0))
        self._merge()
        self._since_check += 1
        if self._since_check < CHECK_EVERY or self._count <= LEAST_WINDOW:
            return False
        self._since_check = 0
        return self._cut()

    def _merge(self) -> None:
        size = 1
        for level, row in enumerate(self._rows):
            if len(row) <= BUCKETS_EACH:
                return
            one, other = row.pop(0), row.pop(0)
            apart = (one[0] - other[0]) / size
            if level + 1 == len(self._rows):
                self._rows.append([])
            self._rows[level + 1].append((one[0] + other[0], one[1] + other[1] + size * apart**2 / 2))
            size *= 2

    def _cut(self) -> bool:
        changed = False
        while self._count > LEAST_WINDOW and self._oldest_differs():
            self._drop_oldest()
            changed = True
        return changed

    def _oldest_differs(self) -> bool:
        """Whether any split into older and newer values has means too far apart."""
        older_count, older_sum = 0, 0.0
        for level in range(len(self._rows) - 1, -1, -1):
            for bucket_sum, _ in self._rows[level]:
                older_count += 1 << level
                older_sum += bucket_sum
                newer_count = self._count - older_count
                if newer_count < LEAST_SIDE:
                    return False
                if older_count >= LEAST_SIDE and self._apart(older_count, older_sum, newer_count):
                    return True
        return False

    def _apart(self, older_count: int, older_sum: float, newer_count: int) -> bool:
        difference = abs(older_sum / older_count - (self._sum - older_sum) / newer_count)
        harmonic = 1.0 / (1.0 / older_count + 1.0 / newer_count)
        confidence = math.log(2.0 * math.log(self._count) / self._delta)
        variance = self._deviations / self._count
        bound = math.sqrt(2.0 * variance * confidence / harmonic) + 2.0 * confidence / (3.0 * harmonic)
        return difference > bound

    def _drop_oldest(self) -> None:
        level = len(self._rows) - 1
        bucket_sum, deviations = self._rows[level].pop(0)
        size = 1 << level
        rest = self._count - size
        if rest:
            apart = bucket_sum / size - (self._sum - bucket_sum) / rest
            self._deviations -= deviations + size * rest * apart**2 / (size + rest)
            self._deviations = max(0.0, self._deviations)
        self._count, self._sum = rest, self._sum - bucket_sum
        while len(self._rows) > 1 and not self._rows[-1]:
            self._rows.pop()


class PageHinkley:
    """Alarms when errors, 0 or 1, have been more frequent than their mean for a while."""

    def __init__(self, *, least: int = 30, tolerance: float = 0.005, limit: float = 10.0) -> None:
        self._least = least
        self._tolerance = tolerance
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._count = 0
        self._mean = 0.0
        self._cumulated = 0.0
        self._lowest = 0.0

    def add(self, value: float) -> bool:
        """Take a value in; True is an alarm, after which it begins anew."""
        self._count += 1
        self._mean += (value - self._mean) / self._count
        self._cumulated += value - self._mean - self._tolerance
        self._lowest = min(self._lowest, self._cumulated)
        if self._count < self._least or self._cumulated - self._lowest <= self._limit:
            return False
        self.reset()
        return True
