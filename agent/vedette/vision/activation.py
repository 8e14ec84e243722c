"""From real output values to scores 0..1. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.vision.outputs import bad_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

# exp(60) is far below overflow, and the sigmoid of 60 is 1 in double precision.
_SATURATED = 60.0
# What rounding inside a model may add to a probability of 1.
_SLACK = 0.01


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), element by element, without overflow."""
    bounded = np.minimum(np.maximum(logits, -_SATURATED), _SATURATED).astype(np.float64)
    return np.asarray(1.0 / (1.0 + np.exp(-bounded)))


def sigmoid_value(logit: float) -> float:
    """`sigmoid` of one Python number."""
    return 1.0 / (1.0 + math.exp(-min(max(logit, -_SATURATED), _SATURATED)))


def highest_softmax(logits: NDArray[Any], axis: int) -> NDArray[np.float64]:
    """Softmax of the largest logit along an axis: 1 / sum(exp(x - max))."""
    shifted = np.subtract(logits, logits.max(axis=axis, keepdims=True), dtype=np.float64)
    return np.asarray(1.0 / np.exp(shifted).sum(axis=axis))


def given(scores: NDArray[Any], name: str, step: float) -> NDArray[np.float64]:
    """Accept scores that the model says are probabilities, clipped to 0..1.

    Args:
        scores: Real values.
        name: The tensor, for the message.
        step: One quantisation step, by which a probability may overshoot.

    Raises:
        FrameError: `bad_output`: they are no probabilities.
    """
    bounded = scores.astype(np.float64)
    if bounded.size:
        _refuse_beyond(float(bounded.min()), float(bounded.max()), name, step)
    return np.asarray(np.minimum(np.maximum(bounded, 0.0), 1.0))


def given_values(scores: list[float], name: str, step: float) -> list[float]:
    """`given` for a few Python numbers, at least one.

    Raises:
        FrameError: `bad_output`: they are no probabilities.
    """
    _refuse_beyond(min(scores), max(scores), name, step)
    return [min(max(score, 0.0), 1.0) for score in scores]


def _refuse_beyond(lowest: float, highest: float, name: str, step: float) -> None:
    slack = _SLACK + step
    if highest > 1.0 + slack or lowest < -slack:
        error = bad_output(
            f"output.activation is given, but {name!r} holds {lowest:.4g}..{highest:.4g}, "
            "which are no probabilities"
        )
        error.cure = "set output.activation to softmax or sigmoid, or correct output.layout"
        raise error
