"""The engine port: what the worker needs of an inference runtime, and nothing more."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vedette.vision.tensors import TensorInfo
    from vedette.wire.messages import AcceleratorReport


class OnFallback(str, Enum):
    """What to do when the first accelerator asked for is not the one in effect."""

    FAIL = "fail"
    WARN = "warn"
    ALLOW = "allow"


class EngineRequest(msgspec.Struct, frozen=True):
    """Everything an adapter needs to open a model.

    `accelerators` is the ladder in order of preference, lower case; the last rung is normally `cpu`.
    `options` are adapter-specific strings from the configuration (a delegate's path, for instance).
    `input_shape` fixes symbolic axes, batch included.
    """

    model_path: Path
    model_sha256: str
    accelerators: tuple[str, ...]
    on_fallback: OnFallback
    threads: int
    cache_dir: Path | None
    input_shape: tuple[int, ...]
    options: dict[str, str] = {}


class Engine(Protocol):
    """A model loaded on an accelerator. One thread owns it; no two threads may call it (casebook 11)."""

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    report: AcceleratorReport
    input_array: NDArray[np.generic]
    """C-contiguous, the shape and type of the single input; the caller fills it before each `run`."""

    def run(self) -> tuple[NDArray[np.generic], ...]:
        """Infer once on `input_array`.

        Returns:
            One array per entry of `outputs`, owned by the caller: a later run never changes it.

        Raises:
            OutOfMemoryError: The runtime could not allocate; the engine is still usable.
            UnavailableError: The run failed; the message is the runtime's.
        """
        ...

    def close(self) -> None:
        """Give back memory and devices; safe to call twice."""
        ...


class Progress(Protocol):
    """Gets one line per real step of a long load (an engine build, for instance)."""

    def __call__(self, line: str, /) -> None:
        """Say what is being done now."""
        ...


class OpenEngine(Protocol):
    """An adapter's factory."""

    def __call__(self, request: EngineRequest, progress: Progress, /) -> Engine:
        """Load the model.

        Raises:
            EngineUnavailableError: The runtime is missing or broken, or `on_fallback` is `fail` and the
                effective accelerator is not the first one asked for.
            BundleError: The file is damaged or not for this runtime.
        """
        ...
