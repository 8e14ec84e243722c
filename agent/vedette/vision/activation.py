"""From real output values to scores 0..1. Pure."""

from __future__ import annotations

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
    slack = _SLACK + step
    if bounded.size and (bounded.max() > 1.0 + slack or bounded.min() < -slack):
        error = bad_output(
            f"output.activation is given, but {name!r} holds {bounded.min():.4g}..{bounded.max():.4g}, "
            "which are no probabilities"
        )
        error.cure = "set output.activation to softmax or sigmoid, or correct output.layout"
        raise error
    return np.asarray(np.minimum(np.maximum(bounded, 0.0), 1.0))
