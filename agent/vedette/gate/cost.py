"""Is an answer of the large model worth its price? Pure.

The chance that an answer is right, as a rising function of its score: isotonic regression by pooling adjacent
violators (Ayer et al., "An empirical distribution function for sampling with incomplete information", 1955).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Steps(NamedTuple):
    """A rising step function: `values[i]` from `starts[i]` on; before the first, the first value."""

    starts: NDArray[np.float64]
    values: NDArray[np.float64]

    def at(self, score: float) -> float:
        """The value at a score."""
        place = int(np.searchsorted(self.starts, score, side="right")) - 1
        return float(self.values[max(0, place)])


def rising_steps(scores: NDArray[Any], right: NDArray[Any]) -> Steps:
    """Fit the share that is right by score.

    Args:
        scores: (samples,), at least one.
        right: (samples,), 0 or 1.

    Raises:
        ValueError: No samples.
    """
    if not len(scores):
        raise ValueError("no samples to fit")
    order = np.argsort(scores, kind="stable")
    pools: list[tuple[float, float, int]] = []  # the lowest score, the sum, the count
    for score, value in zip(np.asarray(scores, float)[order], np.asarray(right, float)[order], strict=True):
        start, total, count = float(score), float(value), 1
        while pools and pools[-1][1] * count >= total * pools[-1][2]:
            before = pools.pop()
            start, total, count = before[0], before[1] + total, before[2] + count
        pools.append((start, total, count))
    starts = np.array([pool[0] for pool in pools])
    return Steps(starts, np.array([pool[1] / pool[2] for pool in pools]))


def is_worth_it(score: float, local: Steps, cloud_share: float, *, value: float, price: float) -> bool:
    """Whether what a right answer is worth, times the gain in the chance of one, exceeds the call's price."""
    return value * (cloud_share - local.at(score)) > price
