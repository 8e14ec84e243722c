"""Classification: the k best classes of one row of scores. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.errors import BundleError
from vedette.vision.activation import given_values, sigmoid_value
from vedette.vision.answers import SCORE_DECIMALS, Answer, ClassNames
from vedette.vision.outputs import bad_output, bind_outputs, only_output
from vedette.vision.ranking import best_few
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
        softmax = self._activation is Activation.SOFTMAX
        stored = self._output.take(outputs, finite=not softmax).reshape(-1)
        if not stored.size:
            raise bad_output(f"the output {self._output.info.name!r} is empty")
        best, values = best_few(stored, self._top_k)
        top = tuple(
            [
                Label(self._names[index], index, round(score, SCORE_DECIMALS))
                for index, score in zip(best, self._scores(stored, values), strict=True)
            ]
        )
        return Answer(top=top, confidence=top[0].score)

    def _scores(self, stored: NDArray[Any], best: list[float]) -> list[float]:
        """Scores of the best stored values; k numbers are quicker without NumPy.

        A logit of minus infinity excludes a class; any other value that is not finite is no answer.
        """
        output = self._output
        real = [output.real_value(value) for value in best]
        if self._activation is Activation.SOFTMAX:
            if not math.isfinite(best[0]):
                raise output.not_finite()
            scale = 1.0 if output.affine is None else output.affine.scale
            powers = np.subtract(stored, best[0], dtype=np.float32)
            if scale != 1.0:
                powers *= scale
            total = float(np.add.reduce(np.exp(powers, out=powers), dtype=np.float64))
            if not math.isfinite(total):  # a NaN among a few classes need not rank first
                raise output.not_finite()
            return [math.exp(value - real[0]) / total for value in real]
        if self._activation is Activation.SIGMOID:
            return [sigmoid_value(value) for value in real]
        return given_values(real, output.info.name, output.step)
