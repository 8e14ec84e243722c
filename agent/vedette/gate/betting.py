"""A threshold with a promise for losses between 0 and 1, such as 1 - F1 of boxes. Pure.

The betting bound of Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting" (JRSS
B 86, 2024), as used for risk control by Bates et al. (2021): whoever bets against "the mean loss is above
epsilon" grows rich with a chance of at most delta if it is.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Expected errors of a picture: none at all, then 3 % apart.
_SEED = 20_240  # fixed: equal samples give equal thresholds
LEVELS = np.concatenate(([0.0], np.geomspace(1e-3, 100.0, 400)))


def mean_is_at_most(losses: NDArray[Any], epsilon: float, delta: float) -> bool:
    """Whether the samples prove that the mean loss is at most `epsilon`, with probability 1 - `delta`.

    Args:
        losses: (samples,), each 0 to 1, in any order: they are shuffled, since bets that see the good days
            first grow rich on them, whatever comes after.
        epsilon: Above 0, below 1.
        delta: The chance of being wrong.
    """
    values = np.asarray(losses, np.float64)
    count = values.size
    if not count:
        return False
    values = values[_shuffle(count)]
    seen = np.arange(1, count + 1)
    means = (0.5 + np.cumsum(values)) / (seen + 1)
    variances = (0.25 + np.cumsum((values - means) ** 2)) / (seen + 1)
    before = np.concatenate(([0.25], variances[:-1]))
    stakes = np.minimum(1.0, np.sqrt(2 * math.log(1 / delta) / (count * before)))
    wealth = np.cumsum(np.log1p(-stakes * (values - epsilon)))
    return bool(wealth.max() > math.log(1 / delta))


@functools.lru_cache(maxsize=4)
def _shuffle(count: int) -> NDArray[np.intp]:
    return np.random.default_rng(_SEED).permutation(count)


def error_threshold(
    uncertainties: NDArray[Any], losses: NDArray[Any], *, epsilon: float, delta: float
) -> float | None:
    """Keep what is at most this uncertain: the mean loss of what is kept, over all frames, is <= `epsilon`.

    Levels that were fixed beforehand are tried from strict to loose, up to the first that is not proven.
    Bisection would be quicker, but a bet's gain need not fall as losses grow: it could step over a level
    that fails, and the promise would be broken more often than `delta`.

    Args:
        uncertainties: (samples,), what the gate ranks by.
        losses: (samples,), 0 to 1, of answering locally; in any order.
        epsilon: The mean loss that may be.
        delta: The chance of breaking the promise.

    Returns:
        One of LEVELS; None where not even keeping the surest frame can be promised.
    """
    uncertainties = np.asarray(uncertainties, np.float64)
    kept_at = np.searchsorted(np.sort(uncertainties), LEVELS, side="right")
    found, kept_before = None, -1
    for level, kept in zip(LEVELS, kept_at, strict=True):
        if kept != kept_before and not mean_is_at_most(
            np.where(uncertainties <= level, losses, 0.0), epsilon, delta
        ):
            break
        kept_before = kept
        found = float(level) if kept else None
    return found
