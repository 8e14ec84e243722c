"""From the engine's outputs to an answer: picks the reader that the manifest asks for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.errors import BundleError
from vedette.vision.answers import Answer, ClassNames, Postprocessor
from vedette.vision.classify import Classifier
from vedette.vision.detect import Detector
from vedette.vision.outputs import bind_outputs
from vedette.wire.bundle import OutputLayout, Task
from vedette.wire.messages import RawTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.geometry import Placement
    from vedette.vision.outputs import BoundOutput
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import ModelSpec, OutputSpec


def build_postprocessor(
    spec: ModelSpec, labels: tuple[str, ...], outputs: tuple[TensorInfo, ...]
) -> Postprocessor:
    """Check the manifest's output section against the model, before the first frame.

    Args:
        spec: The manifest.
        labels: The lines of its label file; empty where it has none.
        outputs: What the engine reports, in its order.

    Raises:
        BundleError: The section contradicts itself, the labels or the model's outputs.
    """
    names = ClassNames(labels, spec.output.labels)
    if spec.task is Task.DETECT:
        return Detector(spec, names, outputs)
    wanted = OutputLayout.SCORES if spec.task is Task.CLASSIFY else OutputLayout.RAW
    if spec.output.layout is not wanted:
        raise BundleError(
            f"task {spec.task.value} has output.layout {wanted.value}, not {spec.output.layout.value}",
            cure="correct task or output.layout",
        )
    if spec.task is Task.CLASSIFY:
        return Classifier(spec.output, names, outputs)
    return RawReader(spec.output, outputs)


class RawReader:
    """Hands the tensors on: real float32 where they were quantised, untouched otherwise.

    Raises:
        BundleError: `output.names` or `output.quantisation` do not fit the model.
    """

    def __init__(self, spec: OutputSpec, outputs: tuple[TensorInfo, ...]) -> None:
        self._outputs = bind_outputs(spec, outputs)

    def answer(self, outputs: tuple[NDArray[Any], ...], placement: Placement) -> Answer:  # noqa: ARG002 - port
        """See `Postprocessor`."""
        return Answer(tensors=tuple(_raw_tensor(output, outputs) for output in self._outputs))


def _raw_tensor(output: BoundOutput, outputs: tuple[NDArray[Any], ...]) -> RawTensor:
    stored = output.take(outputs)
    values = stored if output.affine is None else output.real(stored)
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return RawTensor(output.info.name, tuple(values.shape), values.dtype.name, little.tobytes())
