"""Exact binomial bounds: how many errors among n samples still prove a rate, and Wilson's interval. Pure.

Sources: Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
binomial" (Biometrika 26, 1934); Wilson, "Probable inference, the law of succession, and statistical
inference" (JASA 22, 1927).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SAMPLES = 200_000


@lru_cache(maxsize=4)
def _log_factorials(count: int) -> NDArray[np.float64]:
    """Of 0 to `count`."""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1, dtype=np.float64)))))


def _log_terms(most: int, trials: int, rate: float) -> NDArray[np.float64]:
    """Logarithms of P(X = 0) to P(X = most), X ~ Binomial(trials, rate), 0 < rate < 1."""
    logs = _log_factorials(1 << max(10, (trials + 1).bit_length()))
    k = np.arange(most + 1)
    choose = logs[trials] - logs[k] - logs[trials - k]
    terms: NDArray[np.float64] = choose + k * math.log(rate) + (trials - k) * math.log1p(-rate)
    return terms


def binomial_cdf(most: int, trials: int, rate: float) -> float:
    """P(X <= most) for X ~ Binomial(trials, rate).

    Raises:
        ValueError: More than MAX_SAMPLES trials, or a rate that is none.
    """
    if not 0 <= trials <= MAX_SAMPLES or not 0.0 <= rate <= 1.0:
        raise ValueError(f"{trials} trials at rate {rate}")
    if most < 0:
        return 0.0
    if most >= trials or rate == 0.0:
        return 1.0
    if rate == 1.0:
        return 0.0
    return min(1.0, float(np.exp(_log_terms(most, trials, rate)).sum()))


def allowed_errors(samples: int, epsilon: float, delta: float) -> int:
    """The most errors among `samples` that prove a rate of at most `epsilon` with probability 1 - `delta`.

    The largest k with P(X <= k) <= delta, X ~ Binomial(samples, epsilon): the upper Clopper-Pearson bound of
    k errors is then at most epsilon.

    Returns:
        -1 where even no error at all proves nothing: there are fewer than `least_samples`.
    """
    if samples <= 0:
        return -1
    reach = min(
        samples - 1, math.ceil(samples * epsilon)
    )  # the median is there or below, and delta below a half
    below = np.cumsum(np.exp(_log_terms(reach, samples, epsilon)))
    return int(np.searchsorted(below, delta, side="right")) - 1


def least_samples(epsilon: float, delta: float) -> int:
    """How many samples without a single error prove a rate of at most `epsilon`."""
    return math.ceil(math.log(delta) / math.log1p(-epsilon))


def upper_bound(errors: int, samples: int, delta: float) -> float:
    """The Clopper-Pearson upper bound of an error rate; 1 without samples."""
    if errors >= samples:
        return 1.0
    low, high = errors / samples, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if binomial_cdf(errors, samples, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def wilson_interval(hits: float, samples: float, *, confidence: float = 0.95) -> tuple[float, float]:
    """Lower and upper end for a share; 0 and 1 without samples. Weighted counts may be fractions."""
    if samples <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = min(1.0, max(0.0, hits / samples))
    scale = 1 + z * z / samples
    centre = (share + z * z / (2 * samples)) / scale
    half = z * math.sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples)) / scale
    return max(0.0, centre - half), min(1.0, centre + half)


def as_floats(values: Any) -> NDArray[np.float64]:  # noqa: ANN401 - whatever NumPy takes
    """A one-dimensional float64 array."""
    return np.asarray(values, np.float64).reshape(-1)
