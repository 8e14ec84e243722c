"""Top classes from every kind of output, with the right names (cases 10 and 25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from tests.unit.vision.manifest import PLACEMENT, classifier, info

from vedette.errors import BundleError, FrameError
from vedette.vision.postprocess import build_postprocessor
from vedette.wire.bundle import Activation, Labels, OutputLayout, OutputSpec, Quantisation, Task

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.answers import Answer
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.messages import Label


def top_of(answer: Answer) -> tuple[Label, ...]:
    assert answer.top is not UNSET
    assert answer.detections is UNSET
    assert answer.tensors is UNSET
    assert answer.confidence == answer.top[0].score
    return answer.top


def classify(
    spec: OutputSpec, tensor: TensorInfo, stored: NDArray[Any], labels: tuple[str, ...] = ()
) -> tuple[Label, ...]:
    reader = build_postprocessor(classifier(spec), labels, (tensor,))
    return top_of(reader.answer((stored,), PLACEMENT))


@pytest.mark.parametrize(
    ("dtype", "scale", "zero_point"),
    [
        ("int8", 1 / 256, -128),
        ("uint8", 1 / 256, 0),
        ("int16", 1 / 32768, 0),
        ("float32", 0.0, 0),
        ("float16", 0.0, 0),
    ],
)
def test_the_same_probabilities_from_every_type(dtype: str, scale: float, zero_point: int) -> None:
    """Case 10: thresholds and scores are in real units, whatever is stored."""
    real = np.array([0.0, 0.25, 0.5, 0.125, 0.125])
    stored = np.round(real / scale + zero_point) if scale else real
    tensor = info((1, 5), dtype, scale, zero_point)
    top = classify(OutputSpec(OutputLayout.SCORES, top_k=4), tensor, stored.astype(dtype)[None])
    assert [label.index for label in top] == [2, 1, 3, 4]
    assert [label.score for label in top] == [0.5, 0.25, 0.125, 0.125]


@settings(max_examples=100, deadline=None)
@given(
    logits=st.lists(st.integers(-128, 127), min_size=2, max_size=30),
    activation=st.sampled_from([Activation.SOFTMAX, Activation.SIGMOID]),
    quantised=st.booleans(),
)
def test_activations_are_the_textbook_ones(
    *, logits: list[int], activation: Activation, quantised: bool
) -> None:
    """Softmax and sigmoid of dequantised values, computed with another formula in double precision."""
    scale, zero_point = 0.125, -3
    real = (np.array(logits) - zero_point) * scale
    if activation is Activation.SOFTMAX:
        expected = np.exp(real) / np.exp(real).sum()
    else:
        expected = 0.5 * (1 + np.tanh(real / 2))
    tensor = info((1, len(logits)), "int8", scale, zero_point) if quantised else info((1, len(logits)))
    stored = np.array([logits], np.int8) if quantised else real[None].astype(np.float32)
    top = classify(OutputSpec(OutputLayout.SCORES, activation, top_k=3), tensor, stored)
    order = sorted(range(len(logits)), key=lambda index: (-logits[index], index))[:3]
    assert [label.index for label in top] == order
    assert [label.score for label in top] == pytest.approx(expected[order], abs=2e-6)


def test_huge_logits_do_not_overflow() -> None:
    """A float model may give thousands; the answer is certain, not NaN."""
    for activation in (Activation.SOFTMAX, Activation.SIGMOID):
        spec = OutputSpec(OutputLayout.SCORES, activation)
        top = classify(spec, info((1, 3)), np.array([[3e4, -3e4, 0.0]], np.float32))
        assert top[0].score == 1.0
        assert top[-1].score == 0.0


def test_the_manifests_quantisation_wins() -> None:
    """Case 10: scale 0 in the file, parameters in the manifest."""
    spec = OutputSpec(OutputLayout.SCORES, quantisation=(Quantisation(1 / 256, -128),))
    top = classify(spec, info((1, 2), "int8"), np.array([[127, -128]], np.int8))
    assert [label.score for label in top] == [pytest.approx(255 / 256), 0.0]


@pytest.mark.parametrize(
    ("shape", "actual"),
    [
        ((1, 3), (1, 3)),
        ((3,), (3,)),
        ((1, 1, 1, 3), (1, 1, 1, 3)),
        ((1, 3, 1, 1), (1, 3, 1, 1)),
        ((-1, 3), (1, 3)),
        ((0, -1), (1, 3)),
    ],
)
def test_one_row_of_classes_in_any_rank(shape: tuple[int, ...], actual: tuple[int, ...]) -> None:
    """Axes of length one say nothing; an axis that the file leaves open is seen at the first run."""
    stored = np.array([0.1, 0.7, 0.2], np.float32).reshape(actual)
    assert classify(OutputSpec(OutputLayout.SCORES), info(shape), stored)[0].index == 1


def names_of(labels: tuple[str, ...], declared: Labels | None, classes: int) -> list[str]:
    spec = OutputSpec(OutputLayout.SCORES, labels=declared, top_k=classes)
    scores = np.linspace(1, 0, classes, dtype=np.float32)[None]
    return [label.label for label in classify(spec, info((1, classes)), scores, labels)]


def test_a_background_row_is_skipped_by_offset() -> None:
    """Case 25: without the offset every name would be off by one."""
    lines = ("background", "person", "bicycle")
    assert names_of(lines, Labels(2, offset=1), 2) == ["person", "bicycle"]
    assert names_of(lines, Labels(3), 3) == list(lines)


def test_a_class_without_a_name_is_called_by_its_number() -> None:
    """Case 25: never a neighbour, never an index error."""
    assert names_of((), None, 3) == ["class_0", "class_1", "class_2"]


@pytest.mark.parametrize(
    ("labels", "declared", "classes"),
    [(("a",) * 79, Labels(80), 80), (("a",) * 79, Labels(79), 80), (("a",) * 81, Labels(80), 80)],
    ids=["79-names-for-80-declared", "79-declared-for-80-classes", "a-line-too-many"],
)
def test_a_label_list_of_another_length_is_refused(
    labels: tuple[str, ...], declared: Labels, classes: int
) -> None:
    """Case 25: at load, with both numbers."""
    spec = OutputSpec(OutputLayout.SCORES, labels=declared)
    with pytest.raises(BundleError, match=r"79|81"):
        build_postprocessor(classifier(spec), labels, (info((1, classes)),))


@pytest.mark.parametrize(
    "stored",
    [
        np.array([[0.1, np.nan, 0.2]], np.float32),
        np.array([[0.1, np.inf, 0.2]], np.float32),
        np.array([[np.inf, -np.inf, 0.2]], np.float32),
        np.array([[0.1, 0.2]], np.float32),
        np.array([[0.1, 0.2, 0.3]], np.float64),
        np.array([[3.0, -7.0, 0.3]], np.float32),
    ],
    ids=["nan", "inf", "both-infinities", "short", "type", "logits-given-as-probabilities"],
)
def test_what_is_no_answer_fails_the_frame(stored: NDArray[Any]) -> None:
    """A failure has a cause; it is never the empty or the arbitrary class."""
    reader = build_postprocessor(classifier(OutputSpec(OutputLayout.SCORES)), (), (info((1, 3)),))
    with pytest.raises(FrameError) as failed:
        reader.answer((stored,), PLACEMENT)
    assert failed.value.kind == "bad_output"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_fail_the_frame(value: float) -> None:
    """Wherever it stands among the logits; minus infinity only excludes its class."""
    reader = build_postprocessor(
        classifier(OutputSpec(OutputLayout.SCORES, Activation.SOFTMAX)), (), (info((1, 100)),)
    )
    logits = np.linspace(-1, 1, 100, dtype=np.float32)[None]
    logits[0, 3] = value
    with pytest.raises(FrameError, match="NaN or infinity"):
        reader.answer((logits,), PLACEMENT)
    logits[0, 3] = -np.inf
    others = np.exp(np.delete(logits[0], 3).astype(np.float64))
    assert reader.answer((logits,), PLACEMENT).confidence == pytest.approx(
        others[-1] / others.sum(), abs=1e-6
    )


def test_an_output_that_is_missing_fails_the_frame() -> None:
    """The engine promised it; another worker's results must not be read in its place."""
    reader = build_postprocessor(classifier(OutputSpec(OutputLayout.SCORES)), (), (info((1, 3)),))
    with pytest.raises(FrameError, match="is missing"):
        reader.answer((), PLACEMENT)


@pytest.mark.parametrize(
    ("spec", "outputs", "words"),
    [
        (OutputSpec(OutputLayout.SCORES), (info((1, 3)), info((1, 4), name="b")), "reads one tensor"),
        (OutputSpec(OutputLayout.SCORES, names=("c",)), (info((1, 3)),), "not all different outputs"),
        (OutputSpec(OutputLayout.SCORES), (info((1, 3, 4)),), "one row of classes"),
        (OutputSpec(OutputLayout.SCORES), (info((2, 3)),), "one row of classes"),
        (OutputSpec(OutputLayout.SCORES, Activation.SOFTMAX), (info((1, 1)),), "always 1"),
        (OutputSpec(OutputLayout.SCORES, top_k=0), (info((1, 3)),), "top_k"),
        (OutputSpec(OutputLayout.YOLOV8), (info((1, 3)),), "not yolov8"),
        (OutputSpec(OutputLayout.SCORES, quantisation=(Quantisation(1),) * 2), (info((1, 3)),), "2 entries"),
        (OutputSpec(OutputLayout.SCORES, quantisation=(Quantisation(1),)), (info((1, 3)),), "not quantised"),
    ],
)
def test_an_output_section_that_cannot_be_right_is_refused(
    spec: OutputSpec, outputs: tuple[TensorInfo, ...], words: str
) -> None:
    """At load, naming what is wrong, not on the first frame."""
    with pytest.raises(BundleError) as refused:
        build_postprocessor(classifier(spec), (), outputs)
    assert words in refused.value.cause


def test_the_named_output_of_several_is_read() -> None:
    """Names pick, whatever order the engine has."""
    spec = OutputSpec(OutputLayout.SCORES, names=("scores",))
    outputs = (info((1, 9), name="features"), info((1, 2), name="scores"))
    reader = build_postprocessor(classifier(spec), (), outputs)
    answer = reader.answer((np.full((1, 9), 5, np.float32), np.array([[0.2, 0.8]], np.float32)), PLACEMENT)
    assert top_of(answer)[0].index == 1


def test_raw_hands_on_real_values_in_the_manifests_order() -> None:
    """Case 10 e: each tensor with its own parameters; what is not quantised keeps its type."""
    spec = OutputSpec(OutputLayout.RAW, names=("b", "a", "c"))
    outputs = (
        info((1, 2), "int8", 0.5, 10, name="a"),
        info((2,), "uint8", 0.25, 0, name="b"),
        info((1,), "int64", name="c"),
    )
    reader = build_postprocessor(classifier(spec, Task.RAW), (), outputs)
    answer = reader.answer(
        (np.array([[10, 12]], np.int8), np.array([4, 8], np.uint8), np.array([7], np.int64)), PLACEMENT
    )
    assert answer.confidence is UNSET
    assert answer.tensors is not UNSET
    assert [(tensor.name, tensor.shape, tensor.dtype) for tensor in answer.tensors] == [
        ("b", (2,), "float32"),
        ("a", (1, 2), "float32"),
        ("c", (1,), "int64"),
    ]
    values = [np.frombuffer(tensor.data, tensor.dtype).tolist() for tensor in answer.tensors]
    assert values == [[1.0, 2.0], [0.0, 1.0], [7]]
