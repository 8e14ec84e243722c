"""What `model.yaml` may say: every wrong field has a message with its line and key, and all come at once."""

from __future__ import annotations

import copy
import math
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.bundle.workshop import spec_fields, spec_yaml

from vedette.bundle.folder import parse_spec
from vedette.bundle.rules import find_problems
from vedette.errors import BundleError
from vedette.wire.bundle import InputSpec, ModelSpec, OutputLayout, ResizeMode, Task

DETECT: dict[str, Any] = {
    "task": "detect",
    "output__layout": "ssd-anchors",
    "output__names": ["boxes", "scores"],
    "output__anchors": {"strides": [2, 4], "per_cell": [2, 6], "box_scale": 8},
}


def problems(**changes: Any) -> str:  # noqa: ANN401 - a YAML value is anything
    """What is said of a `model.yaml` with these changes."""
    with pytest.raises(BundleError) as caught:
        parse_spec(spec_yaml(**changes))
    assert caught.value.cure
    return caught.value.cause


def test_a_whole_detector_is_read() -> None:
    """Every section of a good file arrives, with its defaults."""
    spec = parse_spec(spec_yaml(**DETECT, input__resize="letterbox", requires={"opset": [11, 17]}))
    assert spec.task is Task.DETECT
    assert spec.output.layout is OutputLayout.SSD_ANCHORS
    assert spec.output.anchors is not None
    assert spec.output.anchors.per_cell == (2, 6)
    assert spec.input.resize is ResizeMode.LETTERBOX
    assert spec.requires.opset == (11, 17)


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"schema": 2}, "schema", "update the agent"),
        ({"name": "front/door"}, "name", "topic"),
        ({"name": "a+b"}, "name", "topic"),
        ({"name": "#"}, "name", "topic"),
        ({"name": "$SYS"}, "name", "topic"),
        ({"name": ".."}, "name", "topic"),
        ({"name": ""}, "name", "topic"),
        ({"name": "x" * 65}, "name", "topic"),
        ({"version": "1/2"}, "version", "topic"),
        ({"version": "1\n"}, "version", "topic"),
        ({"batch": 4}, "batch", "must be 1, not 4"),
        ({"input__size": [0, 8]}, "input.size", "1..8192"),
        ({"input__size": [8, 100000]}, "input.size", "1..8192"),
        ({"input__pad": [300]}, "input.pad", "0..255"),
        ({"input__pad": [1, 2]}, "input.pad", "1 or 3"),
        ({"input__range": None}, "input", "no normalisation"),
        ({"input__mean": [127], "input__std": [128]}, "input.range", "two normalisations"),
        ({"input__range": None, "input__mean": [127]}, "input.mean", "`std` is missing"),
        ({"input__range": None, "input__std": [127]}, "input.std", "`mean` is missing"),
        ({"input__range": None, "input__mean": [1, 2], "input__std": [1]}, "input.mean", "1 or 3 values"),
        ({"input__range": None, "input__mean": [1], "input__std": [0]}, "input.std", "above 0"),
        ({"input__range": [1, 1]}, "input.range", "rise"),
        ({"input__quantisation": {"scale": 0}}, "input.quantisation.scale", "above 0"),
        (
            {"input__quantisation": {"scale": 1, "zero_point": 1 << 40}},
            "input.quantisation.zero_point",
            "32 bits",
        ),
        ({"output__labels": None}, "output", "`labels` is missing"),
        ({"output__labels": {"count": 0}}, "output.labels.count", "1.."),
        ({"output__labels": {"count": 3, "offset": -1}}, "output.labels.offset", "0 or more"),
        ({"output__layout": "yolov8"}, "output.layout", "task `classify` needs one of: scores"),
        ({"task": "detect"}, "output.layout", "yolov5, yolov8"),
        ({"task": "raw"}, "output.layout", "raw"),
        ({"output__names": ["a", "a"]}, "output.names", "different"),
        ({"output__names": [""]}, "output.names", "not empty"),
        (
            {"output__names": ["a", "b"], "output__quantisation": [{"scale": 1}]},
            "output.quantisation",
            "1 entries for 2",
        ),
        ({"output__quantisation": [{"scale": -1}]}, "output.quantisation.0.scale", "above 0"),
        ({"output__score_threshold": 1.5}, "output.score_threshold", "0..1"),
        ({"output__top_k": 0}, "output.top_k", "1 or more"),
        ({"output__nms": {"iou": 2}}, "output.nms.iou", "0..1"),
        ({"output__nms": {"max_candidates": 0}}, "output.nms.max_candidates", "1 or more"),
        ({"output__nms": {"max_detections": 0}}, "output.nms.max_detections", "1 or more"),
        (
            {"output__anchors": {"strides": [8], "per_cell": [2], "box_scale": 1}},
            "output.anchors",
            "no anchors",
        ),
        ({**DETECT, "output__anchors": None}, "output", "`anchors` is missing"),
        ({**DETECT, "output__names": ["boxes"]}, "output.names", "needs two"),
        ({**DETECT, "output__anchors__strides": [0, 4]}, "output.anchors.strides", "shorter side"),
        ({**DETECT, "output__anchors__per_cell": [2]}, "output.anchors.per_cell", "1 values for 2 strides"),
        ({**DETECT, "output__anchors__per_cell": [2, 0]}, "output.anchors.per_cell", "1..64"),
        ({**DETECT, "output__anchors__box_scale": 0}, "output.anchors.box_scale", "above 0"),
        ({**DETECT, "output__anchors__score_clip": -1}, "output.anchors.score_clip", "above 0"),
        ({**DETECT, "output__anchors__keypoints": -1}, "output.anchors.keypoints", "0..1024"),
        ({"requires": {"runtime": "latest"}}, "requires.runtime", "1.18"),
        ({"requires": {"opset": [17, 11]}}, "requires.opset", "lowest, highest"),
        ({"engine": "litert", "requires": {"opset": [1, 17]}}, "requires.opset", "only ONNX"),
        ({"requires": {"memory_mb": -1}}, "requires.memory_mb", "0 or more"),
        ({"requires": {"accelerators": ["CUDA"]}}, "requires.accelerators.0", "lower case"),
        ({"sidecars": ["tiny.onnx"]}, "sidecars.0", "already used as `file`"),
        ({"calibration": "model.yaml"}, "calibration", "cannot serve"),
        ({"colour": "rgb"}, "colour", "unknown key"),
        ({"engine": "onxx"}, "engine", "onxx"),
        ({"file": 3}, "file", "text"),
    ],
)
def test_each_wrong_field_is_named(changes: dict[str, Any], key: str, words: str) -> None:
    """The message carries the dotted key, a line number and what would be right."""
    said = problems(**changes)
    matching = [line for line in said.splitlines() if f": {key}: " in line]
    assert matching, said
    assert any(words in line for line in matching), said
    assert matching[0].strip().startswith("line ")


@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan", "1.0e+999"])
def test_numbers_that_are_not_finite_are_refused_by_line(number: str) -> None:
    """YAML has words for infinity, and reads too large a number as one."""
    text = spec_yaml().decode().replace("  - 1\n", f"  - {number}\n")
    with pytest.raises(BundleError, match=r"line 1[24]: input\.range"):
        parse_spec(text.encode())


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_numbers_that_are_not_finite_make_no_sense(number: float) -> None:
    """The rules do not rely on the YAML reader: a spec built in code is judged too."""
    spec = parse_spec(spec_yaml())
    shifted = msgspec.structs.replace(spec.input, range=None, mean=(number,), std=(number,))
    ranged = msgspec.structs.replace(spec.input, range=(0.0, number))
    keys = [path for given in (shifted, ranged) for path, _ in find_problems(_with_input(spec, given))]
    assert keys[:2] == [("input", "mean"), ("input", "std")]
    assert keys[-1] == ("input", "range")


def _with_input(spec: ModelSpec, given: InputSpec) -> ModelSpec:
    return msgspec.structs.replace(spec, input=given)


def test_line_numbers_point_at_the_key() -> None:
    """The line is that of the wrong key in the file as written."""
    text = spec_yaml(input__size=[0, 8], output__top_k=0).decode()
    with pytest.raises(BundleError) as caught:
        parse_spec(text.encode())
    wanted = [
        number for number, line in enumerate(text.splitlines(), 1) if "size:" in line or "top_k:" in line
    ]
    assert [f"line {number}:" in caught.value.cause for number in wanted] == [True, True]


def test_all_problems_of_sense_come_at_once() -> None:
    """Nobody has to load a bundle five times to correct five fields."""
    said = problems(name="a/b", batch=2, input__range=[1, 0], output__top_k=0, requires={"memory_mb": -1})
    assert "5 problems" in said
    assert len(said.splitlines()) == 6


def test_a_byte_order_mark_does_no_harm() -> None:
    """Editors on Windows write one."""
    assert parse_spec(b"\xef\xbb\xbf" + spec_yaml()).name == "tiny"


def test_numbers_stay_within_their_type() -> None:
    """`version: 1` is a number; the file must say "1", and the message says which line."""
    text = spec_yaml().replace(b"version: '1'", b"version: 1")
    with pytest.raises(BundleError, match="line 3: version"):
        parse_spec(text)


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["nhwc", "onnx", "scores", "../x", "1.0"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def harmed_specs(draw: st.DrawFn) -> bytes:
    """A good `model.yaml` in which some values were replaced by anything."""
    fields = copy.deepcopy(spec_fields(**(DETECT if draw(st.booleans()) else {})))
    for _ in range(draw(st.integers(1, 4))):
        inner: dict[str, Any] = fields
        key = draw(st.sampled_from(sorted(inner)))
        while isinstance(inner[key], dict) and inner[key] and draw(st.booleans()):
            inner = inner[key]
            key = draw(st.sampled_from(sorted(inner)))
        inner[key] = draw(VALUES)
    return yaml.safe_dump(fields, allow_unicode=True).encode("utf-8", "surrogatepass")


@settings(max_examples=300, deadline=None)
@given(harmed_specs())
def test_any_value_is_accepted_or_refused_with_words(content: bytes) -> None:
    """No value can make the parser raise anything but BundleError."""
    try:
        spec = parse_spec(content)
    except BundleError as error:
        assert error.cause.startswith("model.yaml")  # noqa: PT017 - both ends are right here
    else:
        assert spec.batch == 1


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet="{}[]:,-&*!|>?'\"%@` \n\tab01~<=#", max_size=60)))
def test_any_bytes_are_refused_with_words(content: bytes | str) -> None:
    """Garbage and YAML's own punctuation never escape as another error."""
    with pytest.raises(BundleError):
        parse_spec(content if isinstance(content, bytes) else content.encode())


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_damage_to_the_text_is_told(data: st.DataObject) -> None:
    """Bytes cut out of, or put into, a good file."""
    good = spec_yaml(**DETECT)
    start = data.draw(st.integers(0, len(good)))
    stop = data.draw(st.integers(start, min(len(good), start + 20)))
    harmed = good[:start] + data.draw(st.binary(max_size=6)) + good[stop:]
    try:
        parse_spec(harmed)
    except BundleError as error:
        assert error.cure  # noqa: PT017 - a harmless change is fine too
