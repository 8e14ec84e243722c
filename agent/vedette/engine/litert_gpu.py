"""LiteRT's CompiledModel on a GPU behind the engine port; the runtime's module is handed in.

It runs on WebGPU over Vulkan, Metal or Direct3D, holds the interpreter lock for a whole run, and prints the
reasons of a failure on stderr only. It may also take the process with it, which is why a worker is a child.
"""

from __future__ import annotations

import ctypes
import math
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.engine.accelerator import RungRefusedError
from vedette.engine.failures import MAX_REASON_CHARS, run_failure
from vedette.engine.litert_interpreter import describe_tensor
from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from vedette.vision.tensors import TensorInfo
    from vedette.wire.messages import AcceleratorReport

VULKAN_LOADER = "libvulkan.so.1"
# `ERROR: [litert/runtime/compiled_model.cc:1036]`, as the library stacks them.
_PLACES = re.compile(r"└|ERROR: *(?:\[[^\]]*:\d+\])?")
HOST_MEMORY = 1  # LiteRtTensorBufferType: every other number is memory of some device


class CompiledModelEngine:
    """A model compiled for the GPU alone."""

    report: AcceleratorReport

    def __init__(self, model: Any, inputs: tuple[TensorInfo, ...], outputs: tuple[TensorInfo, ...]) -> None:  # noqa: ANN401 - the wheel has no types
        self._model = model
        self.inputs = inputs
        self.outputs = outputs
        self.input_array: NDArray[np.generic] = np.zeros(inputs[0].shape, np.dtype(inputs[0].dtype))
        self._input_buffers = model.create_input_buffers(0)
        self._output_buffers = model.create_output_buffers(0)
        self._reads = tuple(
            (math.prod(output.shape), np.dtype(output.dtype), output.shape) for output in outputs
        )
        self.run()

    def run(self) -> tuple[NDArray[np.generic], ...]:
        """Infer once and read the answers back into new arrays.

        Raises:
            OutOfMemoryError: An allocation failed.
            UnavailableError: The run failed, or the engine is closed.
        """
        model = self._model
        if model is None:
            raise UnavailableError("the engine is closed")
        try:
            self._input_buffers[0].write(self.input_array)
            model.run_by_index(0, self._input_buffers, self._output_buffers)
            return tuple(
                buffer.read(count, dtype.type).reshape(shape)
                for buffer, (count, dtype, shape) in zip(self._output_buffers, self._reads, strict=True)
            )
        except Exception as error:
            raise run_failure(error) from error

    def close(self) -> None:
        """Give buffers back before the model they belong to."""
        for buffer in (*self._input_buffers, *self._output_buffers):
            buffer.destroy()
        self._input_buffers, self._output_buffers = [], []
        if self._model is not None:
            self._model.close()
            self._model = None


def compile_for_gpu(
    compiled_model: Any,  # noqa: ANN401 - the wheel has no types
    path: Path,
    tensors: tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]],
    options: Mapping[str, str],
) -> tuple[CompiledModelEngine, str]:
    """Compile for the GPU alone, so that it raises rather than run elsewhere, and look where its buffers lie.

    Args:
        compiled_model: The runtime's `compiled_model` module.
        path: The model file, already read once by an interpreter.
        tensors: Its inputs and outputs with their quantisation, which this API does not tell.
        options: `gpu.enforce_f32` = `true` computes in 32 instead of 16 bits.

    Returns:
        The engine, and what proves that it is on the GPU.

    Raises:
        RungRefusedError: There is no usable GPU, or it does not take this whole model.
    """
    accelerator = compiled_model.HardwareAccelerator.GPU
    wish = compiled_model.Options(hardware_accelerators=accelerator)
    wish.gpu_options.enforce_f32 = options.get("gpu.enforce_f32", "false") == "true"
    try:
        model = compiled_model.CompiledModel.from_file(str(path), options=wish)
        engine = CompiledModelEngine(model, *_in_signature_order(model, tensors))
    except Exception as error:
        raise RungRefusedError(refusal(str(error), vulkan_fault())) from error
    evidence = _evidence(model, engine)
    if evidence is None:
        engine.close()
        raise RungRefusedError(
            "asked for the GPU alone, yet the tensors lie in host memory: it runs on the CPU"
        )
    return engine, evidence


def refusal(text: str, fault: str) -> str:
    """Why the GPU is not used, for people: the library's exception often holds places in its source only.

    Args:
        text: Of the exception.
        fault: What keeps any GPU from being used here; empty if that is not known.
    """
    words = " ".join(_PLACES.sub(" ", text).split())
    if fault:
        return f"no GPU can be used: {fault}" + (f" ({words})" if words else "")
    if words:
        return f"the GPU does not take the model: {words[:MAX_REASON_CHARS]}"
    return "no GPU is found, or it does not take the model; `vulkaninfo --summary` lists what Vulkan finds"


def vulkan_fault() -> str:
    """What is missing on Linux, where the runtime reaches every GPU through Vulkan; empty if it is there."""
    if not sys.platform.startswith("linux"):
        return ""
    try:
        ctypes.CDLL(VULKAN_LOADER)
    except OSError as error:
        return f"Vulkan's loader does not load ({error}); install it (libvulkan1) and the GPU's driver"
    return ""


def _in_signature_order(
    model: Any,  # noqa: ANN401 - the wheel has no types
    tensors: tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]],
) -> tuple[tuple[TensorInfo, ...], tuple[TensorInfo, ...]]:
    """Buffers come in the signature's order; the tensors behind its names carry the names of the graph."""
    key, signature = next(iter(model.get_signature_list().items()))
    ins, outs = model.get_input_tensor_details(key), model.get_output_tensor_details(key)
    return (
        tuple(_matching(ins[name], tensors[0]) for name in signature["inputs"]),
        tuple(_matching(outs[name], tensors[1]) for name in signature["outputs"]),
    )


def _matching(details: Mapping[str, Any], known: tuple[TensorInfo, ...]) -> TensorInfo:
    for tensor in known:
        if tensor.name == details["name"]:
            return tensor
    return describe_tensor(details)


def _evidence(model: Any, engine: CompiledModelEngine) -> str | None:  # noqa: ANN401 - the wheel has no types
    """`is_fully_accelerated()` proves nothing; the type of the buffers does, where they are floats."""
    kinds = set(model.get_input_buffer_requirements(0)["supported_types"])
    if kinds - {HOST_MEMORY}:
        return f"compiled for the GPU alone; its buffers are of device memory (types {sorted(kinds)})"
    if np.dtype(engine.inputs[0].dtype).kind == "f":
        return None
    return "compiled for the GPU alone, which raises if it cannot; integer buffers stay on the host"
