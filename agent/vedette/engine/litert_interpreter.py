"""A TFLite interpreter behind the engine port; the interpreter is handed in, no runtime is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.engine.failures import run_failure
from vedette.errors import BundleError, UnavailableError
from vedette.vision.tensors import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vedette.wire.messages import AcceleratorReport


class InterpreterEngine:
    """One interpreter, tensors allocated. No view into its memory is ever kept (casebook 11)."""

    report: AcceleratorReport

    def __init__(self, interpreter: Any) -> None:  # noqa: ANN401 - the wheel has no types
        details = interpreter.get_input_details()
        results = interpreter.get_output_details()
        self._interpreter = interpreter
        self._input_index = int(details[0]["index"])
        self._output_indices = tuple(int(result["index"]) for result in results)
        self.inputs: tuple[TensorInfo, ...] = (describe_tensor(details[0]),)
        self.input_array: NDArray[np.generic] = np.zeros(self.inputs[0].shape, np.dtype(self.inputs[0].dtype))
        self.run()  # the warm-up: output shapes are final only now
        self.outputs: tuple[TensorInfo, ...] = tuple(
            describe_tensor(result) for result in interpreter.get_output_details()
        )

    def run(self) -> tuple[NDArray[np.generic], ...]:
        """Infer once; `get_tensor` copies, so what is returned is the caller's own.

        Raises:
            OutOfMemoryError: An allocation failed.
            UnavailableError: The run failed, or the engine is closed.
        """
        interpreter = self._interpreter
        if interpreter is None:
            raise UnavailableError("the engine is closed")
        try:
            interpreter.set_tensor(self._input_index, self.input_array)
            interpreter.invoke()
            return tuple(interpreter.get_tensor(index) for index in self._output_indices)
        except Exception as error:
            raise run_failure(error) from error

    def close(self) -> None:
        """Drop the interpreter; its arenas and delegates go with it."""
        self._interpreter = None


def describe_tensor(details: Mapping[str, Any]) -> TensorInfo:
    """One tensor as the port describes it; per-channel parameters do not occur on inputs and outputs.

    Raises:
        BundleError: The tensor holds strings or another type that is no number.
    """
    try:
        dtype = np.dtype(details["dtype"])
    except TypeError as error:
        raise BundleError(f"tensor {details['name']!r} has no numeric type: {details['dtype']!r}") from error
    if dtype.kind not in "iufb":
        raise BundleError(f"tensor {details['name']!r} has no numeric type: {dtype}")
    scale, zero_point = details.get("quantization", (0.0, 0))
    return TensorInfo(
        name=str(details["name"]),
        shape=tuple(int(size) for size in details["shape"]),
        dtype=str(dtype),
        scale=float(scale),
        zero_point=int(zero_point),
    )


def declared_axes(details: Mapping[str, Any]) -> Sequence[int]:
    """The file's own shape, -1 for open axes; the shape in effect hides them as 1."""
    signature = details.get("shape_signature")
    axes = details["shape"] if signature is None or len(signature) == 0 else signature
    return tuple(int(size) for size in axes)
