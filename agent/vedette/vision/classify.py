"""Classification: the k best classes of one row of scores. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.errors import BundleError
from vedette.vision.activation import given, sigmoid
from vedette.vision.answers import SCORE_DECIMALS, Answer, ClassNames
from vedette.vision.outputs import bad_output, bind_outputs, only_output
from vedette.vision.ranking import best_first
from vedette.wire.bundle import Activation
from vedette.wire.messages import Label

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.geometry import Placement
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import OutputSpec


class Classifier:
    """Reads `scores`; ranks the stored values and turns only the best ones into real scores.

    Raises:
        BundleError: The output is not one row, or its length is not the declared number of classes.
    """

    def __init__(self, spec: OutputSpec, names: ClassNames, outputs: tuple[TensorInfo, ...]) -> None:
        self._output = only_output(bind_outputs(spec, outputs), spec.layout.value)
        self._activation = spec.activation
        self._top_k = spec.top_k
        self._names = names
        info = self._output.info
        axes = [axis for axis in info.shape[1:] if axis != 1] if len(info.shape) > 1 else list(info.shape)
        if len(axes) > 1 or (len(info.shape) > 1 and info.shape[0] > 1):
            raise BundleError(
                f"the output {info.name!r} has shape {info.shape}; layout scores reads one row of classes",
                cure="set output.layout to what the model really gives, or name another output",
            )
        if spec.top_k < 1:
            raise BundleError(f"output.top_k is {spec.top_k}; it must be 1 or more")
        classes = axes[0] if axes else 1
        if classes > 0:
            names.check_count(classes, info.name)
        if classes == 1 and spec.activation is Activation.SOFTMAX:
            raise BundleError(
                f"the softmax of the single value of {info.name!r} is always 1",
                cure="set output.activation to sigmoid",
            )

    def answer(self, outputs: tuple[NDArray[Any], ...], placement: Placement) -> Answer:  # noqa: ARG002 - port
        """See `Postprocessor`."""
        stored = self._output.take(outputs).reshape(-1)
        if not stored.size:
            raise bad_output(f"the output {self._output.info.name!r} is empty")
        best = best_first(stored, self._top_k)
        scores = self._scores(stored, best)
        top = tuple(
            Label(self._names[index], index, round(score, SCORE_DECIMALS))
            for index, score in zip(best.tolist(), scores.tolist(), strict=True)
        )
        return Answer(top=top, confidence=top[0].score)

    def _scores(self, stored: NDArray[Any], best: NDArray[np.intp]) -> NDArray[np.float64]:
        output = self._output
        if self._activation is Activation.SOFTMAX:
            real = output.real(stored)
            powers = np.exp(real - real[best[0]])
            return np.asarray(powers[best] / powers.sum(dtype=np.float64), np.float64)
        real = output.real(stored[best])
        if self._activation is Activation.SIGMOID:
            return sigmoid(real)
        return given(real, output.info.name, output.step)
