"""What a detector proposes, before suppression; and how class scores become one score a candidate. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from vedette.vision.activation import given, highest_softmax, sigmoid
from vedette.wire.bundle import Activation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.outputs import BoundOutput


class Candidates(NamedTuple):
    """n proposals at or above the threshold.

    `boxes` (n, 4) are corners in model-input pixels, `scores` (n,) 0..1, `classes` (n,) indices,
    `keypoints` (n, k, 2) model-input pixels or None.
    """

    boxes: NDArray[np.float32]
    scores: NDArray[np.float64]
    classes: NDArray[np.intp]
    keypoints: NDArray[np.float32] | None = None


class Decoder(Protocol):
    """Reads one output layout."""

    suppressed: bool
    """Whether the model itself has done the suppression."""

    def decode(self, outputs: tuple[NDArray[Any], ...]) -> Candidates:
        """Find the proposals in a run's outputs.

        Raises:
            FrameError: `bad_output`.
        """
        ...


class ScoreReader:
    """Turns stored scores of one tensor into probabilities.

    Args:
        output: The tensor, for its quantisation and name.
        activation: What the model leaves to be done.
        clip: Bound on raw scores before the activation.
    """

    def __init__(self, output: BoundOutput, activation: Activation, clip: float = np.inf) -> None:
        self._output = output
        self._activation = activation
        self._clip = clip

    def independent(self, stored: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities of scores that stand alone, such as objectness; same shape."""
        real = self._output.real(stored)
        if self._activation is Activation.GIVEN:
            return given(real, self._output.info.name, self._output.step)
        return sigmoid(self._bounded(real))

    def _bounded(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._clip == np.inf:
            return logits
        return np.minimum(np.maximum(logits, -self._clip), self._clip)

    def best(self, stored: NDArray[Any], axis: int) -> NDArray[np.float64]:
        """Probability of the best class along an axis; the order of stored values is that of real ones."""
        if self._activation is Activation.SOFTMAX:
            return highest_softmax(self._bounded(self._output.real(stored)), axis)
        highest = stored[..., 0] if stored.shape[axis] == 1 and axis in {1, -1} else stored.max(axis=axis)
        return self.independent(highest)


def corners_of(centres: NDArray[np.float32]) -> NDArray[np.float32]:
    """Turn (n, 4) centre x, centre y, width, height into corners x1, y1, x2, y2."""
    half = centres[:, 2:] / 2
    return np.concatenate([centres[:, :2] - half, centres[:, :2] + half], axis=1)
