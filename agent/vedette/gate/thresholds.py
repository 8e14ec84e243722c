"""Thresholds with a promise, for classifications. Pure.

Agreement: risk-controlling prediction sets (Bates et al., "Distribution-Free, Risk-Controlling Prediction
Sets", JACM 68, 2021) with the exact binomial bound: the risk P(kept and different from the large model)
only falls as the threshold rises, so that choosing on the very samples costs nothing.

Selective: Learn then Test (Angelopoulos et al., "Learn then Test: Calibrating Predictive Algorithms to
Achieve Risk Control", 2021) by a fixed sequence from strict to loose; the error rate among what is kept is
not monotone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.gate.binomial import allowed_errors, binomial_cdf, least_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The first test has to be able to pass with a few errors, or nothing is ever certified.
FIRST_TEST = 1.6
JUST = 1e-12


def agreement_threshold(
    scores: NDArray[Any], differs: NDArray[Any], *, epsilon: float, delta: float
) -> float | None:
    """Keep what scores at least this: at most `epsilon` of all frames are kept and differ, with 1 - `delta`.

    Args:
        scores: (samples,), drawn as frames come.
        differs: (samples,), whether the large model says something else.
        epsilon: The share that may.
        delta: The chance of breaking the promise.

    Returns:
        None where there are too few samples to promise anything.
    """
    allowed = allowed_errors(len(scores), epsilon, delta)
    if allowed < 0:
        return None
    order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    errors = np.cumsum(np.asarray(differs, bool)[order])
    first = int(np.searchsorted(errors, allowed, side="right"))
    if first == len(order):
        return 0.0
    # Just above it, and so above all that score the same: a quantised model gives few different scores, and
    # another processor may sum one of them a little differently.
    return float(scores[order[first]]) + JUST


def selective_threshold(
    scores: NDArray[Any], differs: NDArray[Any], *, epsilon: float, delta: float
) -> float | None:
    """Keep what scores at least this: at most `epsilon` of what is kept differs, with 1 - `delta`.

    Returns:
        None where not even the strictest threshold that can be tested passes.
    """
    ordered = np.argsort(-np.asarray(scores, np.float64), kind="stable")
    best_first = np.asarray(scores, np.float64)[ordered]
    errors = np.cumsum(np.asarray(differs, bool)[ordered])
    kept = math.ceil(FIRST_TEST * least_samples(epsilon, delta))
    passed: float | None = None
    while kept <= len(best_first):
        score = best_first[kept - 1]
        kept = int(np.searchsorted(-best_first, -score, side="right"))  # all that score the same go together
        if binomial_cdf(int(errors[kept - 1]), kept, epsilon) > delta:
            break
        passed = float(score)
        kept += 1
    return passed
