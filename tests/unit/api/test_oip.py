"""The Open Inference Protocol: what is written is read again, and what is hostile is refused by name."""

from __future__ import annotations

import base64
import itertools
import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.api.body import Body, copy_pieces
from vedette.api.datatypes import DTYPES, bytes_elements, json_array, pack_bytes
from vedette.api.oip import (
    MAX_JSON_BYTES,
    InferenceRequest,
    OutputTensor,
    WantedOutput,
    build_response,
    check_outputs,
    parse_request,
)
from vedette.api.refusal import RequestRefusedError
from vedette.wire.messages import ModelRef

MODEL = ModelRef("redness", "3", "ab" * 32)
SHAPES = st.lists(st.integers(0, 5), min_size=1, max_size=4)


def cut(data: bytes, cuts: list[int]) -> Body:
    """The same bytes as pieces, as a network delivers them."""
    marks = [0, *sorted(at % (len(data) + 1) for at in cuts), len(data)]
    return Body(tuple(data[start:end] for start, end in itertools.pairwise(marks)))


def written(inputs: list[dict[str, Any]], *binary: bytes, **fields: Any) -> tuple[bytes, str]:  # noqa: ANN401 - JSON
    head = json.dumps({"inputs": inputs, **fields}).encode()
    return head + b"".join(binary), str(len(head))


def refused(body: bytes, header_length: str | None = None) -> RequestRefusedError:
    with pytest.raises(RequestRefusedError) as error:
        parse_request(Body((body,)), header_length)
    return error.value


def asks(*outputs: WantedOutput, binary: bool = False, request_id: str = "") -> InferenceRequest:
    return InferenceRequest(request_id, {}, (), outputs, binary)


@given(
    st.sampled_from([name for name in DTYPES if name != "FP16"]), SHAPES, st.data(), st.lists(st.integers(0))
)
def test_a_tensor_is_the_same_in_json_flat_json_nested_and_binary(
    datatype: str, shape: list[int], data: st.DataObject, cuts: list[int]
) -> None:
    """All three forms give the same bytes, wherever the network cuts the body."""
    dtype = DTYPES[datatype]
    count = int(np.prod(shape))
    raw = data.draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    array = np.nan_to_num(np.frombuffer(raw, dtype), nan=0, posinf=1, neginf=-1).reshape(shape)
    if datatype == "BOOL":
        array = array.view(np.uint8) % 2 == 1
    entry = {"name": "x", "shape": shape, "datatype": datatype}
    bodies = [
        (*written([{**entry, "parameters": {"binary_data_size": array.nbytes}}], array.tobytes()),),
        (written([{**entry, "data": array.reshape(-1).tolist()}])[0], None),
        (written([{**entry, "data": array.tolist()}])[0], None),
    ]
    for body, header_length in bodies[: 3 if count else 2]:  # nested emptiness has no one form
        tensor = parse_request(cut(body, cuts), header_length).inputs[0]
        assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, tuple(shape))
        memory = bytearray(array.nbytes)
        copy_pieces(tensor.memory(), memoryview(memory))
        assert memory == array.tobytes()


@given(st.lists(st.binary(max_size=20), max_size=8), st.lists(st.integers(0)))
def test_byte_elements_survive_both_forms(elements: list[bytes], cuts: list[int]) -> None:
    """BYTES: four bytes of length in front in binary form, Base64 in JSON."""
    packed = pack_bytes(elements)
    entry = {"name": "image", "shape": [len(elements)], "datatype": "BYTES"}
    body, size = written([{**entry, "parameters": {"binary_data_size": len(packed)}}], packed)
    assert parse_request(cut(body, cuts), size).inputs[0].elements() == elements
    texts = [base64.b64encode(element).decode() for element in elements]
    body, _ = written([{**entry, "data": texts}])
    assert parse_request(cut(body, cuts), None).inputs[0].elements() == elements


@given(st.binary(max_size=300), st.one_of(st.none(), st.text(max_size=5), st.integers(-5, 400).map(str)))
def test_any_body_is_read_or_refused(body: bytes, header_length: str | None) -> None:
    """Random bytes never raise anything but a refusal with a status of the client's."""
    refusal = None
    try:
        request = parse_request(Body((body,)), header_length)
        for tensor in request.inputs:
            tensor.elements() if tensor.datatype == "BYTES" else tensor.memory()
    except RequestRefusedError as error:
        refusal = error
    assert refusal is None or (refusal.status in {400, 413} and refusal.cause)


@given(st.binary(max_size=60), st.integers(0, 9))
def test_any_bytes_are_byte_elements_or_refused(packed: bytes, count: int) -> None:
    """A length that lies claims no memory and reads nothing beyond the tensor."""
    try:
        elements = bytes_elements(packed, count, "x")
    except RequestRefusedError:
        return
    assert pack_bytes(elements) == packed
    assert len(elements) == count


X = {"name": "x", "shape": [2], "datatype": "FP32"}
HOSTILE: dict[str, tuple[list[dict[str, Any]], bytes, str]] = {
    "size above the rest": (
        [{**X, "parameters": {"binary_data_size": 9}}],
        b"12345678",
        "9 bytes, 8 are left",
    ),
    "huge size": ([{**X, "parameters": {"binary_data_size": 1 << 60}}], b"12345678", "are left"),
    "negative size": ([{**X, "parameters": {"binary_data_size": -8}}], b"12345678", "not a number of bytes"),
    "size that is a word": ([{**X, "parameters": {"binary_data_size": "8"}}], b"12345678", "not a number"),
    "size that is true": ([{**X, "parameters": {"binary_data_size": True}}], b"1", "not a number"),
    "bytes left over": ([{**X, "parameters": {"binary_data_size": 8}}], b"123456789", "the body has 9"),
    "both forms": ([{**X, "data": [1, 2], "parameters": {"binary_data_size": 8}}], b"12345678", "both"),
    "neither form": ([X], b"", "neither"),
    "shared memory": ([{**X, "parameters": {"shared_memory_region": "r"}}], b"", "shared memory"),
    "negative side": ([{**X, "shape": [-1], "data": []}], b"", ">= 0"),
    "too many axes": ([{**X, "shape": [1] * 9, "data": []}], b"", "length <= 8"),
    "huge side": ([{**X, "shape": [1 << 40], "data": []}], b"", "<= 2147483648"),
    "no inputs": ([], b"", "length >= 1"),
    "too many inputs": ([{**X, "data": [1, 2]}] * 17, b"", "length <= 16"),
    "a flag that is none": ([{**X, "data": [1, 2]}], b"", "neither true nor false"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_lying_requests_are_refused_by_name(case: str) -> None:
    """Lengths, shapes and forms that cannot be: 400, and the message says which."""
    inputs, binary, words = HOSTILE[case]
    fields = {"parameters": {"binary_data_output": 1}} if case == "a flag that is none" else {}
    body, size = written(inputs, binary, **fields)
    error = refused(body, size)
    assert error.status == 400
    assert words in error.text()


@pytest.mark.parametrize(
    ("shape", "size", "words"),
    [([3], 8, "has 12 bytes"), ([1 << 31, 1 << 31], 8, "bytes, binary_data_size says 8"), ([0], 8, "has 0")],
)
def test_a_shape_is_held_against_the_bytes(shape: list[int], size: int, words: str) -> None:
    """Nothing is allocated for what a shape claims; it must fit what is there."""
    body, length = written([{**X, "shape": shape, "parameters": {"binary_data_size": size}}], b"\0" * size)
    tensor = parse_request(Body((body,)), length).inputs[0]
    with pytest.raises(RequestRefusedError, match=words):
        tensor.memory()


@pytest.mark.parametrize("length", ["", "-1", "1e3", "0", "99999", "9" * 30, "١٢"])
def test_a_header_length_that_cannot_be_is_refused(length: str) -> None:
    """Inference-Header-Content-Length is a number of bytes inside the body."""
    assert refused(b'{"inputs":[]}', length).status == 400


def test_json_has_a_limit_of_its_own() -> None:
    """Numbers as text take many times their size in memory; large tensors go in binary form."""
    body = b" " * (MAX_JSON_BYTES + 1)
    assert refused(body).status == 413
    assert refused(body, str(len(body))).status == 413


@pytest.mark.parametrize("data", ["[" * 100_000, "[" * 9 + "1" + "]" * 9, "{}", '"a"', "[[1],2]", "[null,1]"])
def test_data_that_is_no_list_of_numbers_is_refused(data: str) -> None:
    """Nesting without end, other JSON, uneven nesting."""
    with pytest.raises(RequestRefusedError) as error:
        json_array(data.encode(), "INT32", [2], "the input 'x'")
    assert error.value.status == 400


def test_deep_nesting_beside_the_tensors_is_refused() -> None:
    """The stack is not the client's."""
    assert refused(b'{"inputs":' + b"[" * 200_000).status == 400


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("UINT8", 256), ("INT8", -129), ("UINT64", -1), ("INT64", 1 << 63), ("FP32", 1e300), ("BOOL", 1)],
)
def test_values_outside_their_type_are_refused_not_wrapped(datatype: str, value: float) -> None:
    """256 in UINT8 is an error, not 0."""
    with pytest.raises(RequestRefusedError, match=r"outside|not a list of bool"):
        json_array(json.dumps([value]).encode(), datatype, [1], "x")


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "STRING", ""])
def test_types_without_a_form_are_refused(datatype: str) -> None:
    """FP16 cannot be JSON, and unknown types say which are known."""
    with pytest.raises(RequestRefusedError) as error:
        json_array(b"[1]", datatype, [1], "x")
    assert error.value.cure


def test_outputs_come_in_the_form_asked_for() -> None:
    """The request's word for all outputs, and each output's own, which wins."""
    outputs = (OutputTensor("labels", (b"red", b"")), OutputTensor("scores", np.array([0.5, 0.25], "<f4")))
    plain = build_response(asks(request_id="7"), MODEL, outputs)
    assert plain.json_bytes is None
    assert json.loads(plain.pieces[0]) == {
        "model_name": "redness",
        "model_version": "3",
        "id": "7",
        "outputs": [
            {"name": "labels", "datatype": "BYTES", "shape": [2], "data": ["red", ""]},
            {"name": "scores", "datatype": "FP32", "shape": [2], "data": [0.5, 0.25]},
        ],
    }
    packed = build_response(asks(binary=True), MODEL, outputs)
    assert packed.json_bytes == len(packed.pieces[0])
    assert packed.pieces[1:] == (b"\3\0\0\0red\0\0\0\0", struct.pack("<2f", 0.5, 0.25))
    mixed = build_response(
        asks(WantedOutput("scores", None), WantedOutput("labels", binary=False), binary=True), MODEL, outputs
    )
    entries = json.loads(mixed.pieces[0])["outputs"]
    assert [entry["name"] for entry in entries] == ["scores", "labels"]
    assert entries[0]["parameters"] == {"binary_data_size": 8}
    assert entries[1]["data"] == ["red", ""]
    assert mixed.pieces[1:] == (struct.pack("<2f", 0.5, 0.25),)


def test_an_output_that_does_not_exist_is_refused_before_the_work() -> None:
    """400, with the names that there are."""
    with pytest.raises(RequestRefusedError, match=r"no output 'depth'; there are labels, scores"):
        check_outputs(asks(WantedOutput("depth", None)), ("labels", "scores"))


def test_nan_is_never_written_as_null() -> None:
    """JSON has no form for it: said so, and the binary form carries it."""
    outputs = (OutputTensor("y", np.array([np.nan], "<f4")),)
    with pytest.raises(RequestRefusedError, match="NaN or infinity"):
        build_response(asks(), MODEL, outputs)
    assert build_response(asks(binary=True), MODEL, outputs).json_bytes


@given(st.lists(st.binary(max_size=9), max_size=9), st.integers(0, 90), st.integers(0, 90))
def test_slices_of_a_body_are_those_of_its_bytes(pieces: list[bytes], start: int, size: int) -> None:
    """Pieces are an accident of the network."""
    whole = b"".join(pieces)
    body = Body(tuple(pieces))
    assert body.size_bytes == len(whole)
    assert body.take(start, size) == whole[start : start + size]
