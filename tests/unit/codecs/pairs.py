"""Pairs of model files as trainings make them; ONNX files, a few nested messages, are written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ONNX_TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "float16": 10}
CHANNELS, INPUTS = 48, 96


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(name: str, values: Array) -> bytes:
    shape = b"".join(varint(1 << 3) + varint(length) for length in values.shape)
    kind = varint(2 << 3) + varint(ONNX_TYPES[values.dtype.name])
    return shape + kind + message(8, name.encode()) + message(9, values.tobytes())


def dequantise(weight: str, scale: str, axis: int) -> bytes:
    attribute = message(1, b"axis") + varint(3 << 3) + varint(axis)
    inputs = message(1, weight.encode()) + message(1, scale.encode())
    return (
        inputs
        + message(2, f"{weight}_real".encode())
        + message(4, b"DequantizeLinear")
        + message(5, attribute)
    )


def onnx_file(tensors: dict[str, Array], *, note: str = "") -> bytes:
    """A model whose `x` is dequantised by `x.scale` along axis 0, wherever both are there."""
    graph = b"".join(message(5, tensor(name, values)) for name, values in tensors.items())
    for name in tensors:
        if f"{name}.scale" in tensors:
            graph += message(1, dequantise(name, f"{name}.scale", 0))
    return varint(1 << 3) + varint(8) + message(2, f"test {note}".encode()) + message(7, graph)


def quantised(real: Array) -> tuple[Array, Array]:
    scale = (np.abs(real).max(1) / 127).astype(np.float32)
    return np.clip(np.round(real / scale[:, None]), -127, 127).astype(np.int8), scale


def fine_tune_int8(seed: int, step: float = 0.02) -> tuple[bytes, bytes]:
    """Weights that moved a little, quantised anew; biases on the product of two scales."""
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(CHANNELS, INPUTS)) * rng.uniform(0.2, 3, (CHANNELS, 1))
    after = before + step * rng.normal(size=before.shape) * np.abs(before).mean(1, keepdims=True)
    return _int8_model(before, 0.011), _int8_model(after, 0.0113)


def _int8_model(real: Array, input_scale: float) -> bytes:
    weights, scale = quantised(real)
    bias_scale = (scale * np.float32(input_scale)).astype(np.float32)
    bias = np.round(real.sum(1) / bias_scale).astype(np.int32)
    return onnx_file({"w": weights, "w.scale": scale, "b": bias, "b.scale": bias_scale})


def fine_tune_float(seed: int, kind: str) -> tuple[bytes, bytes]:
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(CHANNELS, INPUTS)) * 0.1
    after = before + 1e-4 * rng.normal(size=before.shape)
    return onnx_file({"w": before.astype(kind)}), onnx_file({"w": after.astype(kind)})


def low_rank(seed: int) -> tuple[bytes, bytes]:
    """What a few steps of training change: a sum of few outer products, and noise."""
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(128, 256)) * 0.1
    change = (
        rng.normal(size=(128, 3)) @ rng.normal(size=(3, 256)) * 1e-3 + rng.normal(size=before.shape) * 1e-4
    )
    return onnx_file({"w": before.astype(np.float32)}), onnx_file({"w": (before + change).astype(np.float32)})


def pruned(seed: int) -> tuple[bytes, bytes]:
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(CHANNELS, INPUTS)).astype(np.float32)
    after = np.where(np.abs(before) <= 0.6, np.float32(0), before)
    return onnx_file({"w": before}), onnx_file({"w": after})


def rescaled_channels(seed: int) -> tuple[bytes, bytes]:
    """What folding a batch norm anew does: whole channels times a factor."""
    rng = np.random.default_rng(seed)
    before = rng.normal(size=(CHANNELS, 2 * INPUTS)).astype(np.float32)
    after = (before * rng.uniform(0.8, 1.2, (CHANNELS, 1))).astype(np.float32)
    return onnx_file({"w": before}), onnx_file({"w": after})


def class_added(seed: int) -> tuple[bytes, bytes]:
    rng = np.random.default_rng(seed)
    before = rng.integers(-90, 90, (CHANNELS, INPUTS), np.int8)
    after = np.concatenate([before, rng.integers(-90, 90, (3, INPUTS), np.int8)])
    return onnx_file({"head": before}), onnx_file({"head": after})


def renamed(seed: int) -> tuple[bytes, bytes]:
    rng = np.random.default_rng(seed)
    first, second = (rng.normal(size=(CHANNELS, INPUTS)).astype(np.float32) for _ in range(2))
    moved = (second + 1e-5).astype(np.float32)
    return onnx_file({"a": first, "b": second}), onnx_file({"x.1": moved, "x.2": first}, note="new exporter")


STORIES = {
    "fine-tune int8": fine_tune_int8(1),
    "large fine-tune int8": fine_tune_int8(2, 0.6),
    "fine-tune float32": fine_tune_float(3, "float32"),
    "fine-tune float16": fine_tune_float(4, "float16"),
    "pruned": pruned(5),
    "rescaled channels": rescaled_channels(6),
    "class added": class_added(7),
    "class removed": class_added(8)[::-1],
    "renamed": renamed(9),
    "low rank": low_rank(10),
    "the same": (fine_tune_int8(1)[0],) * 2,
    "to nothing": (fine_tune_int8(1)[0], b""),
    "from nothing": (b"", fine_tune_int8(1)[0]),
    "unrelated": (fine_tune_int8(1)[0], pruned(5)[1]),
}
