"""The protobuf walker against the onnx package, and against damage."""

from __future__ import annotations

import time

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.unit.bundle.workshop import external_model, onnx_model, parsed

from vedette.bundle.onnxfile import MAX_GRAPH_DEPTH, OnnxTensor, read_onnx
from vedette.bundle.tflitefile import read_tflite_version
from vedette.errors import BundleError

GOOD = onnx_model(imports=(("com.microsoft", 1),)).SerializeToString()


def field(number: int, content: bytes | int) -> bytes:
    """One protobuf field, encoded by hand."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """A base-128 number."""
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def test_facts_agree_with_the_onnx_package() -> None:
    """Version, producer, opsets, inputs and outputs of a file that the reference library wrote."""
    model = read_onnx(GOOD, "m")
    assert model.ir_version == parsed(GOOD).ir_version == 8
    assert model.producer == "workshop 2"
    assert model.opsets == {"": 17, "com.microsoft": 1}
    assert model.node_domains == {""}
    assert model.inputs == (OnnxTensor("x", TensorProto.FLOAT, ("N", 3, 8, 8)),)
    assert model.outputs == (OnnxTensor("y", TensorProto.FLOAT, (1, 3, 8, 8)),)


def test_ai_onnx_is_the_default_domain() -> None:
    """Both spellings mean the same."""
    model = read_onnx(onnx_model(domain="ai.onnx").SerializeToString(), "m")
    assert model.node_domains == {""}


def test_initialisers_are_no_inputs() -> None:
    """Files before IR 4 list every weight as an input as well."""
    model = onnx_model()
    model.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "w"))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3]))
    assert [tensor.name for tensor in read_onnx(model.SerializeToString(), "m").inputs] == ["x"]


def test_nothing_hides_inside_subgraphs_attributes_and_functions() -> None:
    """Domains and external weights are found wherever a node or tensor may stand."""
    outside = onnx.load_model_from_string(external_model("deep.bin")).graph.initializer[0]
    inner = helper.make_graph([helper.make_node("Odd", [], ["o"], domain="inner")], "inner", [], [])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    constant = helper.make_node("Constant", [], ["k"], value=outside)
    model = onnx_model()
    model.graph.node.extend([branch, constant])
    body = helper.make_node("Even", ["a"], ["b"], domain="body")
    function = helper.make_function("mine", "Twice", ["a"], ["b"], [body], [helper.make_opsetid("", 17)])
    model.functions.append(function)
    found = read_onnx(model.SerializeToString(), "m")
    assert found.node_domains == {"", "inner", "body"}
    assert found.function_domains == {"mine"}
    assert found.external_files == ("deep.bin",)


def test_external_weights_without_a_place_are_damage() -> None:
    """A tensor that lies outside, nobody says where."""
    model = onnx.load_model_from_string(external_model("w.bin"))
    del model.graph.initializer[0].external_data[:]
    with pytest.raises(BundleError, match="names no location"):
        read_onnx(model.SerializeToString(), "m")


def test_a_field_given_twice_hides_nothing() -> None:
    """Protobuf merges repeated messages: a second graph is walked too, the last number wins."""
    second = onnx_model(domain="acme")
    found = read_onnx(GOOD + second.SerializeToString() + field(1, 99), "m")
    assert found.ir_version == 99
    assert "acme" in found.node_domains


def test_weights_are_stepped_over_in_milliseconds() -> None:
    """25 MB of weights cost no more than their number of tensors."""
    model = onnx_model()
    for index in range(50):
        weights = np.zeros(125_000, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weights, f"w{index}"))
    content = model.SerializeToString()
    assert len(content) > 25_000_000
    best_ms = min(_walk_ms(content) for _ in range(5))
    assert best_ms < 50


def _walk_ms(content: bytes) -> float:
    start = time.perf_counter()
    read_onnx(content, "m")
    return (time.perf_counter() - start) * 1e3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no ir_version"),
        (field(1, 8), "no graph"),
        (field(7, b""), "no ir_version"),
        (b"not a model at all", "byte"),
        (GOOD[:-100], "left"),
        (field(1, 8) + b"\x0b", "wire type 3"),
        (field(1, b"eight"), "wrong wire type"),
        (field(7, 3), "wrong wire type"),
        (b"\x00\x00", "field number 0"),
        (b"\x08" + b"\xff" * 20, "without an end"),
        (field(2, b"\xff\xfe"), "not UTF-8"),
        (field(2, b"x" * 70_000), "70000 bytes"),
        (b"\x3a" + varint(1 << 60), "are left"),
    ],
)
def test_damage_is_told_with_its_place(content: bytes, words: str) -> None:
    """Every kind of broken wire format has a message that names the file."""
    with pytest.raises(BundleError, match=words) as caught:
        read_onnx(content, "net.onnx")
    assert "net.onnx" in caught.value.cause
    assert caught.value.cure


def test_graphs_without_end_are_refused() -> None:
    """Each level of nesting costs stack."""
    graph = b""
    for _ in range(MAX_GRAPH_DEPTH + 2):
        graph = field(1, field(5, field(6, graph)))
    with pytest.raises(BundleError, match="nested"):
        read_onnx(field(1, 8) + field(7, graph), "m")


def test_millions_of_fields_are_refused_in_bounded_time() -> None:
    """A file of nothing but tiny fields must not keep a device busy."""
    with pytest.raises(BundleError, match="fields"):
        read_onnx(field(1, 8) + field(7, b"\x0a\x00" * 2_000_001), "m")


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_walked_or_refused(content: bytes) -> None:
    """Only BundleError comes out."""
    try:
        model = read_onnx(content, "m")
    except BundleError:
        return
    assert model.ir_version > 0


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_to_a_good_file_is_walked_or_refused(data: st.DataObject) -> None:
    """Flipped, cut and inserted bytes."""
    content = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        model = read_onnx(bytes(content), "m")
    except BundleError as error:
        assert error.cure  # noqa: PT017 - harmless damage is fine too
    else:
        assert model.ir_version > 0


def test_the_tflite_version_is_read_through_the_vtable() -> None:
    """A FlatBuffer by hand: root table at 16, its vtable at 10, `version` 4 bytes into the table."""
    content = b"\x10\0\0\0TFL3\0\0" + b"\x06\0\x08\0\x04\0" + b"\x06\0\0\0" + b"\x03\0\0\0"
    assert read_tflite_version(content, "m") == 3


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40))
def test_any_tflite_bytes_are_read_or_refused(content: bytes) -> None:
    """Offsets before the start and behind the end do not escape as another error."""
    try:
        version = read_tflite_version(b"\x08\0\0\0TFL3"[: 8 if len(content) % 2 else 4] + content, "m")
    except BundleError as error:
        assert error.cure  # noqa: PT017 - both ends are right here
    else:
        assert version >= 0
