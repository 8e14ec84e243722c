"""The publisher finds the tensors of real models, and takes anything else for plain bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codecs import pairs

from vedette_fleet.delta.align import align
from vedette_fleet.delta.locate import locate
from vedette_fleet.delta.onnx_tensors import NotOnnxError, locate_onnx
from vedette_fleet.delta.tensors import MIN_TENSOR_BYTES, Tensor
from vedette_fleet.delta.tflite_tensors import NotTfliteError, locate_tflite

MODELS = Path(__file__).parents[3] / "models"
ONNX = next((MODELS / "imagenet-onnx").glob("*.onnx"))
TFLITE = MODELS / "imagenet" / "effl0_int8.tflite"


def test_every_initializer_of_a_real_onnx_model_is_found_where_it_is() -> None:
    data = ONNX.read_bytes()
    found = {tensor.name: tensor for tensor in locate(data)}
    wanted = [
        entry
        for entry in onnx.load_model_from_string(data).graph.initializer
        if len(entry.raw_data) >= MIN_TENSOR_BYTES
    ]
    assert len(wanted) > 20
    for entry in wanted:
        tensor = found[entry.name]
        assert tensor.shape == tuple(entry.dims)
        assert data[tensor.offset : tensor.end] == entry.raw_data


def test_weights_of_a_real_onnx_model_know_their_scales() -> None:
    data = ONNX.read_bytes()
    weights = [tensor for tensor in locate(data) if tensor.size_bytes > 50_000]
    assert weights
    for tensor in weights:
        assert tensor.scales is not None
        scales = np.frombuffer(data, "<f4", tensor.scales.count, tensor.scales.offset)
        assert ((scales > 0) & (scales < 1)).all()


@pytest.mark.engine
def test_every_constant_of_a_real_tflite_model_is_found_where_it_is() -> None:
    from ai_edge_litert.interpreter import Interpreter

    data = TFLITE.read_bytes()
    found = {tensor.name: tensor for tensor in locate(data)}
    interpreter = Interpreter(model_path=str(TFLITE))
    compared = 0
    for detail in interpreter.get_tensor_details():
        tensor = found.get(f"0/{detail['name']}")
        if tensor is None or tensor.element is None or tensor.element.name != np.dtype(detail["dtype"]).name:
            continue
        values = interpreter.get_tensor(detail["index"])
        assert tensor.shape == values.shape
        assert data[tensor.offset : tensor.end] == values.tobytes()
        if tensor.scales is not None:
            scales = np.frombuffer(data, "<f4", tensor.scales.count, tensor.scales.offset)
            assert np.array_equal(scales, detail["quantization_parameters"]["scales"])
        compared += 1
    assert compared > 50


def test_tensors_of_a_real_tflite_model_make_up_most_of_it() -> None:
    data = TFLITE.read_bytes()
    assert sum(tensor.size_bytes for tensor in locate(data)) > 0.9 * len(data)


@settings(max_examples=150, deadline=None)
@given(at=st.floats(0, 1), byte=st.integers(0, 255), cut=st.floats(0.2, 1))
def test_damaged_onnx_files_are_searched_without_harm(at: float, byte: int, cut: float) -> None:
    data = bytearray(pairs.STORIES["fine-tune int8"][0])
    data[int(at * (len(data) - 1))] = byte
    damaged = bytes(data[: int(cut * len(data))])
    assert all(tensor.end <= len(damaged) for tensor in locate(damaged))


@settings(max_examples=150, deadline=None)
@given(at=st.floats(0, 1), bits=st.integers(0, 2**32 - 1), cut=st.floats(0.2, 1), near_end=st.booleans())
def test_damaged_tflite_files_are_searched_without_harm(
    at: float, bits: int, cut: float, *, near_end: bool
) -> None:
    """Its tables stand at the start and the end; a stray offset must not loop or read outside."""
    data = bytearray(DAMAGED)
    place = int(at * 4000)
    place = len(data) - 5 - place if near_end else place
    data[place : place + 4] = bits.to_bytes(4, "little")
    damaged = bytes(data[: int(cut * len(data))])
    assert all(tensor.end <= len(damaged) for tensor in locate(damaged))


DAMAGED = (MODELS / "cifar" / "cifar_resnet8_int8.tflite").read_bytes()


@given(st.binary(max_size=300))
def test_noise_is_no_model(noise: bytes) -> None:
    assert all(tensor.end <= len(noise) for tensor in locate(noise))
    assert all(tensor.end <= len(noise) + 8 for tensor in locate(b"\0\0\0\0TFL3" + noise))


def test_each_locator_says_when_a_file_is_not_its_own() -> None:
    with pytest.raises(NotTfliteError):
        locate_tflite(b"PK\x03\x04 something else")
    with pytest.raises(NotOnnxError):
        locate_onnx(b"\xff" * 40)


def test_a_renamed_tensor_is_found_by_its_content_and_its_likeness() -> None:
    old, new = pairs.STORIES["renamed"]
    olds, news = locate(old), locate(new)
    assert [align(old, olds, new, news)[index].name for index in range(2)] == ["b", "a"]


def test_a_stranger_of_the_same_name_is_no_mate() -> None:
    """Retrained from scratch: the same shape tells nothing."""
    rng = np.random.default_rng(1)
    old, new = (pairs.onnx_file({"w": rng.normal(size=(64, 64)).astype(np.float32)}) for _ in range(2))
    assert align(old, locate(old), new, locate(new)) == {}


def test_a_grown_axis_keeps_its_mate() -> None:
    old, new = pairs.STORIES["class added"]
    mates: dict[int, Tensor] = align(old, locate(old), new, locate(new))
    assert mates[0].name == "head"
