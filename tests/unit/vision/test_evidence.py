"""What the gate is shown agrees with the answer, and holds what the answer leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.unit.vision.manifest import PLACEMENT, classifier, info
from tests.unit.vision.test_detect import (
    NAMES,
    SCENE,
    Thing,
    end_to_end,
    ssd,
    yolov5,
    yolov8,
    yolov8_logits,
    yolov8_transposed,
)

from vedette.vision.evidence import CANDIDATE_FLOOR, Candidates, Logits, build_evidence
from vedette.vision.postprocess import build_postprocessor
from vedette.wire.bundle import Activation, OutputLayout, OutputSpec

if TYPE_CHECKING:
    from collections.abc import Callable

DOUBTFUL = (
    Thing((500.0, 50.0, 560.0, 110.0), 3, 0.2),
    Thing((700.0, 300.0, 780.0, 380.0), 4, 0.08),
    Thing((900.0, 60.0, 960.0, 120.0), 5, 0.02),
)


@pytest.mark.parametrize("encode", [yolov5, yolov8, yolov8_transposed, yolov8_logits, end_to_end, ssd])
def test_candidates_are_the_answers_boxes_and_the_doubtful_ones(encode: Callable[..., Any]) -> None:
    encoded = encode((*SCENE, *DOUBTFUL))
    answer = build_postprocessor(encoded.spec, NAMES, encoded.tensors).answer(encoded.outputs, PLACEMENT)
    evidence = build_evidence(encoded.spec, NAMES, encoded.tensors)
    assert isinstance(evidence, Candidates)
    found = evidence.read(encoded.outputs, PLACEMENT)
    assert tuple(one for one in found if one.score >= evidence.threshold) == answer.detections
    doubtful = [one for one in found if one.score < evidence.threshold]
    assert 3 in {one.index for one in doubtful}
    assert doubtful[0].score == pytest.approx(0.2, abs=0.01)
    assert min(one.score for one in doubtful) >= CANDIDATE_FLOOR


def test_logits_are_real_values_whatever_the_model_stores() -> None:
    row = np.array([[-3, 0, 12, 90]], np.int8)
    spec = classifier(OutputSpec(OutputLayout.SCORES, Activation.SOFTMAX))
    evidence = build_evidence(spec, (), (info((1, 4), "int8", 0.1, 2),))
    assert isinstance(evidence, Logits)
    assert evidence.read((row,)) == pytest.approx([-0.5, -0.2, 1.0, 8.8])


def test_probabilities_become_logarithms_and_zero_stays_finite() -> None:
    given = np.array([[0.0, 0.25, 0.75]], np.float32)
    spec = classifier(OutputSpec(OutputLayout.SCORES, Activation.GIVEN))
    evidence = build_evidence(spec, (), (info((1, 3)),))
    assert isinstance(evidence, Logits)
    found = evidence.read((given,))
    assert found[1:] == pytest.approx(np.log([0.25, 0.75]))
    assert np.isfinite(found).all()
