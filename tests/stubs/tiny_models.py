"""Tiny models made on the spot: a picture's mean colour, through one dense layer, to four scores."""

from __future__ import annotations

from typing import Any

import numpy as np

SIZE = 8
CLASSES = 4
CHANNELS = 3
_WEIGHTS = np.array([[2, 0, 0], [0, 2, 0], [0, 0, 2], [-1, -1, -1]], np.float32)  # red, green, blue, dark
_BIAS = np.array([0, 0, 0, 1], np.float32)


def reference(picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the models compute, for a picture of SIZE x SIZE x 3 in 0..1: shape [1, 4]."""
    logits = _WEIGHTS @ picture.reshape(-1, CHANNELS).mean(axis=0) + _BIAS
    powers = np.exp(logits - logits.max())
    result: np.ndarray[Any, Any] = (powers / powers.sum())[np.newaxis].astype(np.float32)
    return result


def tiny_onnx(
    *, batch: int | str = "N", ir_version: int = 8, opset: int = 17, domain: str = "", op: str = "Softmax"
) -> bytes:
    """Float32 NCHW `picture` [batch, 3, 8, 8] to `scores` [batch, 4]."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("ReduceMean", ["picture"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Gemm", ["mean", "weights", "bias"], ["logits"], transB=1),
        helper.make_node(op, ["logits"], ["scores"], domain=domain, axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, [batch, CHANNELS, SIZE, SIZE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, CLASSES])],
        [numpy_helper.from_array(_WEIGHTS, "weights"), numpy_helper.from_array(_BIAS, "bias")],
    )
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    model: bytes = helper.make_model(graph, ir_version=ir_version, opset_imports=imports).SerializeToString()
    return model


def tiny_tflite(*, open_batch: bool = False, softmax_version: int = 1) -> bytes:
    """Float32 NHWC `picture` [1, 8, 8, 3] to `scores` [1, 4]; `open_batch` leaves the first axis symbolic."""
    import flatbuffers  # type: ignore[import-untyped]
    from ai_edge_litert import schema_py_generated as schema

    buffers: list[Any] = [schema.BufferT()]

    def tensor(name: str, shape: list[int], content: np.ndarray[Any, Any] | None = None) -> Any:  # noqa: ANN401 - generated code has no types
        made = schema.TensorT()
        made.name, made.shape = name, shape
        made.type = schema.TensorType.FLOAT32
        if open_batch and content is None:
            made.shapeSignature = [-1, *shape[1:]]
        if content is not None:
            made.type = schema.TensorType.INT32 if content.dtype == np.int32 else schema.TensorType.FLOAT32
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(content.tobytes(), np.uint8)
            buffers.append(buffer)
            made.buffer = len(buffers) - 1
        return made

    def operator(code: int, inputs: list[int], outputs: list[int], kind: int, options: Any) -> Any:  # noqa: ANN401 - generated code has no types
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = code, inputs, outputs
        made.builtinOptionsType, made.builtinOptions = kind, options
        return made

    graph = schema.SubGraphT()
    graph.name = "tiny"
    graph.tensors = [
        tensor("picture", [1, SIZE, SIZE, CHANNELS]),
        tensor("axes", [2], np.array([1, 2], np.int32)),
        tensor("mean", [1, CHANNELS]),
        tensor("weights", [CLASSES, CHANNELS], _WEIGHTS),
        tensor("bias", [CLASSES], _BIAS),
        tensor("logits", [1, CLASSES]),
        tensor("scores", [1, CLASSES]),
    ]
    graph.inputs, graph.outputs = [0], [6]
    softmax = schema.SoftmaxOptionsT()
    softmax.beta = 1.0
    kinds = schema.BuiltinOptions
    graph.operators = [
        operator(0, [0, 1], [2], kinds.ReducerOptions, schema.ReducerOptionsT()),
        operator(1, [2, 3, 4], [5], kinds.FullyConnectedOptions, schema.FullyConnectedOptionsT()),
        operator(2, [5], [6], kinds.SoftmaxOptions, softmax),
    ]
    model = schema.ModelT()
    model.version = 3
    model.description = "tiny"
    model.subgraphs, model.buffers = [graph], buffers
    codes = schema.BuiltinOperator
    model.operatorCodes = []
    for code, version in ((codes.MEAN, 1), (codes.FULLY_CONNECTED, 1), (codes.SOFTMAX, softmax_version)):
        made = schema.OperatorCodeT()
        made.builtinCode = made.deprecatedBuiltinCode = code
        made.version = version
        model.operatorCodes.append(made)
    builder = flatbuffers.Builder(4096)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())
