"""The best k of many scores, in an order that never depends on chance. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Up to here a sort of Python numbers is quicker than the calls into NumPy.
_FEW = 32


def best_first(scores: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Indices of the `count` highest scores (n,), highest first; equal scores keep their index order."""
    if scores.dtype.kind in "iu":
        # The complement reverses the order without overflow; NumPy sorts 8 and 16 bits by radix.
        return np.argsort(~scores, kind="stable")[:count]
    if count < scores.size:
        lowest = np.partition(scores, scores.size - count)[scores.size - count] if count else np.inf
        eligible = np.flatnonzero(scores >= lowest)
        return eligible[np.argsort(-scores[eligible], kind="stable")[:count]]
    return np.argsort(-scores, kind="stable")


def best_few(scores: NDArray[Any], count: int) -> tuple[list[int], list[float]]:
    """`best_first` and the scores there as Python numbers, for the one row of a classification.

    After a big model the caches hold weights, and every further NumPy routine is fetched from far away: one
    small routine used k times beats a partition and a sort.
    """
    if scores.size <= _FEW:
        values = scores.tolist()
        few = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count]
        return few, [values[index] for index in few]
    if count > _FEW:
        best = best_first(scores, count)
        return best.tolist(), scores[best].tolist()
    few, values = [], []
    left, taken = _erasable(scores)
    for _ in range(min(count, scores.size)):
        index = int(left.argmax())  # the first of equals
        few.append(index)
        values.append(scores.item(index))
        left[index] = taken
    return few, values


def _erasable(scores: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Copy scores into a type with room for a value below all of them; give that value too."""
    if scores.dtype.kind == "f":
        return scores.copy(), -math.inf
    return scores.astype(np.int64), -(1 << 63)
