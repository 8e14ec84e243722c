"""Bundles for the cloud server: batchable or not, honest or not, and one on which batches pay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from tests.stubs.running import stub_bundle
from tests.stubs.tiny_models import CHANNELS, CLASSES, SIZE, tiny_onnx

from vedette.bundle.folder import seal

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ("red", "green", "blue", "dark")
DEEP_WIDTH, DEEP_LAYERS = 1024, 16


def colour_bundle(root: Path, *, batch: int | str = "N", **changes: Any) -> Path:  # noqa: ANN401 - a YAML value
    """Tells the colour of a picture; `batch` is the first axis of its file."""
    return _rewritten(stub_bundle(root, **changes), tiny_onnx(batch=batch))


def mixing_bundle(root: Path) -> Path:
    """Its file has an open first axis, and each row's answer is made of all rows."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("ReduceMean", ["picture"], ["own"], axes=[2, 3], keepdims=0),
        helper.make_node("ReduceMean", ["own"], ["all"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["own", "all"], ["rest"]),
        helper.make_node("Gemm", ["rest", "weights"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["scores"], axis=1),
    ]
    weights = np.random.default_rng(0).normal(0, 50, (CLASSES, CHANNELS)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        "mixing",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["N", CHANNELS, SIZE, SIZE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(weights, "weights")],
    )
    return _rewritten(stub_bundle(root), _serialised(graph))


def deep_bundle(root: Path) -> Path:
    """A stack of wide dense layers: reading the weights is the work, and a batch reads them once."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    nodes = [helper.make_node("Flatten", ["picture"], ["x0"], axis=1)]
    tensors = []
    width = CHANNELS * SIZE * SIZE
    for layer in range(DEEP_LAYERS):
        weights = rng.normal(0, 1 / np.sqrt(width), (width, DEEP_WIDTH)).astype(np.float32)
        tensors.append(numpy_helper.from_array(weights, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"y{layer}"]))
        nodes.append(helper.make_node("Relu", [f"y{layer}"], [f"x{layer + 1}"]))
        width = DEEP_WIDTH
    last = rng.normal(0, 1 / np.sqrt(width), (width, CLASSES)).astype(np.float32)
    tensors.append(numpy_helper.from_array(last, "last"))
    nodes.append(helper.make_node("MatMul", [f"x{DEEP_LAYERS}", "last"], ["logits"]))
    nodes.append(helper.make_node("Softmax", ["logits"], ["scores"], axis=1))
    graph = helper.make_graph(
        nodes,
        "deep",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, ["N", CHANNELS, SIZE, SIZE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", CLASSES])],
        tensors,
    )
    return _rewritten(stub_bundle(root, name="deep"), _serialised(graph))


def _serialised(graph: Any) -> bytes:  # noqa: ANN401 - the package has no types
    from onnx import helper

    imports = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(graph, ir_version=8, opset_imports=imports).SerializeToString()
    return content


def _rewritten(root: Path, content: bytes) -> Path:
    spec = yaml.safe_load((root / "model.yaml").read_text(encoding="utf-8"))
    (root / spec["file"]).write_bytes(content)
    seal(root)
    return root
