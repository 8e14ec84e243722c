"""How sure a classification is: from logits to one number. Pure.

Temperature scaling: Guo et al., "On Calibration of Modern Neural Networks" (ICML 2017). A temperature leaves
the order of a frame's classes alone, and not the order of frames: a threshold holds for one temperature only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.gate.setting import Score

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN = (math.sqrt(5) - 1) / 2
_LOW, _HIGH = math.log(0.05), math.log(20.0)
_STEPS = 40


def score_of(logits: NDArray[Any], score: Score, temperature: float) -> float:
    """The score of one frame, 0 to 1.

    Args:
        logits: (classes,), finite, or minus infinity for a class that is excluded.
        score: Which number.
        temperature: Above 0.
    """
    scaled = np.subtract(logits, logits.max(), dtype=np.float64)
    scaled /= temperature
    weights = np.exp(scaled)
    total = float(weights.sum())
    if score is Score.MAX_SOFTMAX:
        return 1.0 / total
    if weights.size < 2:
        return 1.0
    second = float(np.partition(weights, weights.size - 2)[weights.size - 2])
    return (1.0 - second) / total


def scores_of(logits: NDArray[Any], score: Score, temperature: float) -> NDArray[np.float64]:
    """The scores of many frames, equal to those of `score_of`; `logits` is (frames, classes)."""
    weights = _weights(logits, temperature)
    total = weights.sum(axis=1)
    if score is Score.MAX_SOFTMAX or weights.shape[1] < 2:
        return np.asarray(1.0 / total)
    second = np.partition(weights, weights.shape[1] - 2, axis=1)[:, -2]
    return np.asarray((1.0 - second) / total)


def _weights(logits: NDArray[Any], temperature: float) -> NDArray[np.float64]:
    wide = np.asarray(logits, np.float64)
    weights: NDArray[np.float64] = np.exp((wide - wide.max(axis=1, keepdims=True)) / temperature)
    return weights


def fit_temperature(logits: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The temperature under which `wanted` is likeliest: golden section on its logarithm, 0.05 to 20.

    Args:
        logits: (frames, classes).
        wanted: (frames,), the large model's classes; negative ones are left out.
    """
    known = np.asarray(wanted) >= 0
    wide = np.asarray(logits, np.float64)[known]
    classes = np.asarray(wanted)[known].astype(np.int64)
    if not classes.size:
        return 1.0
    wide = wide - wide.max(axis=1, keepdims=True)
    chosen = wide[np.arange(classes.size), classes]

    def loss(log_temperature: float) -> float:
        inverse = math.exp(-log_temperature)
        return float(np.mean(np.log(np.exp(wide * inverse).sum(axis=1)) - chosen * inverse))

    low, high = _LOW, _HIGH
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    loss_left, loss_right = loss(left), loss(right)
    for _ in range(_STEPS):
        if loss_left < loss_right:
            high, right, loss_right = right, left, loss_left
            left = high - _GOLDEN * (high - low)
            loss_left = loss(left)
        else:
            low, left, loss_left = left, right, loss_right
            right = low + _GOLDEN * (high - low)
            loss_right = loss(right)
    return math.exp((low + high) / 2)
