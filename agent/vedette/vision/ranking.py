"""The best k of many scores, in an order that never depends on chance. Pure."""

from __future__ import annotations

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
    """`best_first` and the scores there as Python numbers; quick for a handful of classes."""
    if scores.size > _FEW:
        best = best_first(scores, count)
        return best.tolist(), scores[best].tolist()
    values = scores.tolist()
    few = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:count]
    return few, [values[index] for index in few]
