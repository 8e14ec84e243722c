"""One ONNX Runtime session behind the engine port; the runtime itself is handed in, never imported here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from vedette.engine.accelerator import CPU, RungRefusedError
from vedette.engine.failures import is_allocation_failure, reason, run_failure
from vedette.engine.onnx_providers import count_nodes
from vedette.errors import BundleError, OutOfMemoryError, UnavailableError
from vedette.vision.tensors import TensorInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from vedette.wire.messages import AcceleratorReport

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
    "tensor(int8)": "int8",
    "tensor(uint16)": "uint16",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}
# The file, not the accelerator, is at fault: the runtime's exception types, and how it words a too new model.
_BAD_FILE_TYPES = frozenset({"InvalidProtobuf", "InvalidGraph", "NoModel", "NoSuchFile", "NotImplemented"})
_BAD_FILE_WORDS = re.compile(
    r"unsupported model ir version|opset \d+ is under development|is not a registered function/op"
    r"|no graph was found|could not find an implementation|no opset import for domain|invalid model",
    re.IGNORECASE,
)
_SOURCE_PLACE = re.compile(r"\S*/onnxruntime\S*:\d+ .*?\) (?=\S)")


class Runtime(Protocol):
    """What this adapter uses of the onnxruntime module; a test passes its own."""

    __version__: str

    def SessionOptions(self) -> Any:  # noqa: N802, ANN401 - the runtime's names; it has no types
        """New options, all at their defaults."""
        ...

    def InferenceSession(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802, ANN401 - as above
        """Load a model."""
        ...

    def get_available_providers(self) -> list[str]:
        """Providers compiled into the wheel; says nothing of what works."""
        ...

    def register_execution_provider_library(self, name: str, path: str) -> None:
        """Make a plug-in provider known to the process."""
        ...

    def get_ep_devices(self) -> list[Any]:
        """Devices that registered plug-in providers offer."""
        ...


@dataclass(frozen=True)
class PluginLibrary:
    """A provider that comes as its own package: its name in the runtime, and its library."""

    provider: str
    path: str


class OnnxEngine:
    """One session; `input_array` is what every run reads."""

    report: AcceleratorReport

    def __init__(
        self,
        session: Any,  # noqa: ANN401 - the wheel has no types
        input_info: TensorInfo,
    ) -> None:
        self._session = session
        self.inputs: tuple[TensorInfo, ...] = (input_info,)
        self.input_array: NDArray[np.generic] = np.zeros(input_info.shape, np.dtype(input_info.dtype))
        self._names = [output.name for output in session.get_outputs()]
        self._feed = {input_info.name: self.input_array}
        first = self.run()  # also the warm-up: some providers compile only now
        self.outputs: tuple[TensorInfo, ...] = tuple(
            TensorInfo(name=name, shape=_declared_shape(output.shape, array.ndim), dtype=str(array.dtype))
            for name, output, array in zip(self._names, session.get_outputs(), first, strict=True)
        )

    def run(self) -> tuple[NDArray[np.generic], ...]:
        """Infer once; the runtime makes new output arrays each time.

        Raises:
            OutOfMemoryError: An allocation failed.
            UnavailableError: The run failed, or the engine is closed.
        """
        if self._session is None:
            raise UnavailableError("the engine is closed")
        try:
            return tuple(self._session.run(self._names, self._feed))
        except Exception as error:
            raise run_failure(error) from error

    def close(self) -> None:
        """Drop the session: the runtime frees its memory with it."""
        self._session = None


def input_info(session: Any, shape: tuple[int, ...]) -> TensorInfo:  # noqa: ANN401 - the wheel has no types
    """The session's single input, at the fixed shape.

    Raises:
        BundleError: Its element type is none that a picture can have.
    """
    declared = session.get_inputs()[0]
    dtype = _DTYPES.get(declared.type)
    if dtype is None:
        raise BundleError(f"the model's input {declared.name!r} is a {declared.type}, not a picture")
    return TensorInfo(name=declared.name, shape=shape, dtype=dtype)


def opening_failure(
    error: Exception, accelerator: str, version: str
) -> BundleError | OutOfMemoryError | RungRefusedError:
    """Whose fault it is that no session could be made: the file's, the memory's, or this accelerator's."""
    text = reason(error, drop=_SOURCE_PLACE)
    if type(error).__name__ in _BAD_FILE_TYPES or _BAD_FILE_WORDS.search(str(error)):
        return BundleError(
            f"onnxruntime {version} does not take this model: {text}",
            cure="install a newer onnxruntime, or export the model for an older opset and IR version",
        )
    if accelerator == CPU and (isinstance(error, OutOfMemoryError) or is_allocation_failure(error)):
        return OutOfMemoryError(f"the model does not fit into memory: {text}")
    return RungRefusedError(text)


def assignment(session: Any) -> Mapping[str, int] | None:  # noqa: ANN401 - the vendor wheel has no types
    """Node counts where the runtime is new enough (1.24) to tell, else None."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return None
    try:
        return count_nodes(ask())
    except Exception:  # noqa: BLE001 - not recorded or not supported: the caller falls back on get_providers()
        return None


def _declared_shape(declared: Sequence[Any], rank: int) -> tuple[int, ...]:
    """The session's shape; -1 for axes that depend on the data, which only a run shows."""
    if len(declared) != rank:
        return (-1,) * rank
    return tuple(axis if isinstance(axis, int) and axis > 0 else -1 for axis in declared)
