"""What an answer rests on, for the gate: every class's logit, or every candidate box. Pure.

Read beside the answer and only while somebody wants it, so that nobody else pays for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from vedette.vision.answers import ClassNames
from vedette.vision.detect import Detector
from vedette.vision.outputs import bind_outputs, only_output
from vedette.wire.bundle import Activation, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.geometry import Placement
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import ModelSpec, OutputSpec
    from vedette.wire.messages import Detection

# Candidates below a detector's threshold carry the misses that are to be expected; below this they are noise.
CANDIDATE_FLOOR = 0.05
# One step of an 8-bit probability is 0.004: what is stored as 0 may be anything below.
_LEAST_PROBABILITY = 1e-6


class Logits:
    """Of a classification: (classes,) float32; logarithms where the model gives probabilities."""

    def __init__(self, spec: OutputSpec, outputs: tuple[TensorInfo, ...]) -> None:
        self._output = only_output(bind_outputs(spec, outputs), spec.layout.value)
        self._given = spec.activation is Activation.GIVEN

    def read(self, outputs: tuple[NDArray[Any], ...]) -> NDArray[np.float32]:
        """The row of a run that was answered.

        Raises:
            FrameError: `bad_output`, as for the answer.
        """
        stored = self._output.take(outputs, finite=False).reshape(-1)
        real = self._output.real(stored)
        if self._given:
            real = np.log(np.maximum(real, _LEAST_PROBABILITY))
        return np.asarray(real, np.float32)


class Candidates:
    """Of a detection: its boxes and those below its threshold, best first.

    Suppression goes from the best box downwards, so that with a lower threshold the answer's own boxes stay.
    """

    def __init__(self, spec: ModelSpec, labels: tuple[str, ...], outputs: tuple[TensorInfo, ...]) -> None:
        floor = min(spec.output.score_threshold, CANDIDATE_FLOOR)
        lower = replace(spec, output=replace(spec.output, score_threshold=floor))
        self._detector = Detector(lower, ClassNames(labels, spec.output.labels), outputs)
        self.threshold = spec.output.score_threshold

    def read(self, outputs: tuple[NDArray[Any], ...], placement: Placement) -> tuple[Detection, ...]:
        """The boxes of a run that was answered.

        Raises:
            FrameError: `bad_output`, as for the answer.
        """
        found = self._detector.answer(outputs, placement).detections
        return () if found is UNSET else found


def build_evidence(
    spec: ModelSpec, labels: tuple[str, ...], outputs: tuple[TensorInfo, ...]
) -> Logits | Candidates | None:
    """Whatever the model's task has; None for raw tensors, which nobody can judge."""
    if spec.task is Task.CLASSIFY:
        return Logits(spec.output, outputs)
    return Candidates(spec, labels, outputs) if spec.task is Task.DETECT else None
