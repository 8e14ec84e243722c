"""Golden answers by the shortest way: numpy and the bare engine, nothing of Vedette's own preprocessing.

What the agent computes is compared with these, so they must not come from the code under test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnxruntime
from ai_edge_litert.interpreter import Interpreter, OpResolverType

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Arrays = tuple[NDArray[np.float32], ...]


class Bare(Protocol):
    """A model as a function of one frame."""

    def __call__(self, frame: NDArray[np.uint8]) -> Arrays:
        """Real output values for a frame of the model's size, RGB."""
        ...


@dataclass(frozen=True)
class Scaling:
    """real = pixel * gain + shift, written out by hand for each model."""

    gain: float
    shift: float


def litert(path: Path, scaling: Scaling, order: tuple[str, ...], *, xnnpack: bool) -> Bare:
    """A TFLite model; `order` names the outputs, empty for the file's own order."""
    kind = OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), experimental_op_resolver_type=kind, num_threads=1)
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]
    targets = interpreter.get_output_details()
    if order:
        targets = [next(target for target in targets if target["name"] == name) for name in order]

    def run(frame: NDArray[np.uint8]) -> Arrays:
        real = frame[np.newaxis].astype(np.float64) * scaling.gain + scaling.shift
        interpreter.set_tensor(source["index"], _stored(real, source))
        interpreter.invoke()
        return tuple(_real(interpreter.get_tensor(target["index"]), target) for target in targets)

    return run


def _stored(real: NDArray[np.float64], detail: dict[str, object]) -> NDArray[np.generic]:
    scale, zero_point = detail["quantization"]  # type: ignore[misc] - the vendor package has no types
    if scale == 0:
        return real.astype(np.float32)
    limits = np.iinfo(detail["dtype"])  # type: ignore[call-overload] - the vendor package has no types
    return np.clip(np.rint(real / scale + zero_point), limits.min, limits.max).astype(limits.dtype)


def _real(stored: NDArray[np.generic], detail: dict[str, object]) -> NDArray[np.float32]:
    scale, zero_point = detail["quantization"]  # type: ignore[misc] - the vendor package has no types
    if scale == 0:
        return stored.astype(np.float32)
    return ((stored.astype(np.float64) - zero_point) * scale).astype(np.float32)


def onnx(path: Path, scaling: Scaling, order: tuple[str, ...], *, optimised: bool) -> Bare:
    """An ONNX model with one NCHW float input."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(frame: NDArray[np.uint8]) -> Arrays:
        real = frame.astype(np.float64) * scaling.gain + scaling.shift
        feed = real.astype(np.float32).transpose(2, 0, 1)[np.newaxis]
        return tuple(session.run(list(order) or None, {name: np.ascontiguousarray(feed)}))

    return run
