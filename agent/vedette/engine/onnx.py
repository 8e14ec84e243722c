"""ONNX Runtime behind the engine port: the only file that imports onnxruntime."""

from __future__ import annotations

import contextlib
import importlib
import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.bundle.onnxfile import read_onnx
from vedette.clock import SystemClock
from vedette.engine.accelerator import RungRefusedError, announce, climb, compose_report, ladder, median_ms
from vedette.engine.failures import reason
from vedette.engine.onnx_ladder import Opener
from vedette.engine.onnx_providers import check_options
from vedette.engine.onnx_session import PluginLibrary
from vedette.errors import BundleError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.bundle.onnxfile import OnnxModel
    from vedette.clock import Clock
    from vedette.engine.onnx_session import OnnxEngine, Runtime
    from vedette.engine.port import EngineRequest, Progress


def open_onnx(request: EngineRequest, progress: Progress) -> OnnxEngine:
    """Load an ONNX model on the first accelerator of the ladder that really takes it.

    Raises:
        EngineUnavailableError: onnxruntime is missing or broken, or no accelerator that is allowed holds.
        BundleError: The file is damaged, too new for this runtime, or of another shape than the bundle says.
        ConfigError: An engine option is not known.
        OutOfMemoryError: The model does not fit.
    """
    return open_with(import_runtime(), find_plugin, request, progress, SystemClock())


def import_runtime(import_module: Callable[[str], Any] = importlib.import_module) -> Runtime:
    """Import onnxruntime, or say what is wrong with the installation (casebook 9).

    Raises:
        EngineUnavailableError: It is missing, or its import fails.
    """
    try:
        runtime: Runtime = import_module("onnxruntime")
        _ = (runtime.__version__, runtime.InferenceSession)
    except ModuleNotFoundError as error:
        raise EngineUnavailableError(
            f"onnxruntime is not installed ({error})", cure="pip install vedette[onnx]"
        ) from error
    except Exception as error:
        raise EngineUnavailableError(
            f"onnxruntime is installed but broken, NumPy is {np.__version__}: {reason(error)}",
            cure="install exactly one of onnxruntime, onnxruntime-gpu, … (they overwrite each other): "
            "pip uninstall all of them, then pip install --force-reinstall one",
        ) from error
    return runtime


def find_plugin(accelerator: str, module_name: str) -> PluginLibrary | None:
    """The plug-in package of an accelerator, if it is installed; each has get_library_path and get_ep_name.

    Raises:
        RungRefusedError: It is installed but broken.
    """
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError:
        return None
    except Exception as error:
        raise RungRefusedError(f"the plug-in {module_name} cannot be imported: {reason(error)}") from error
    try:
        return PluginLibrary(str(module.get_ep_name()), str(module.get_library_path()))
    except Exception as error:
        raise RungRefusedError(
            f"{module_name} is no provider plug-in for {accelerator}: {reason(error)}"
        ) from error


def open_with(
    runtime: Runtime,
    plugins: Callable[[str, str], PluginLibrary | None],
    request: EngineRequest,
    progress: Progress,
    clock: Clock,
) -> OnnxEngine:
    """As `open_onnx`, with the runtime, the plug-in finder and the clock given.

    Raises:
        EngineUnavailableError: No accelerator that is allowed holds.
        BundleError: The file is damaged, too new, or of another shape than the bundle says.
        ConfigError: An engine option is not known.
        OutOfMemoryError: The model does not fit.
    """
    started_ns = clock.monotonic_ns()
    rungs = ladder(request.accelerators)
    check_options(request.options, rungs)
    opener = Opener(runtime, plugins, request, progress, read_header(request.model_path))
    done = climb(rungs, opener.attempt, on_fallback=request.on_fallback, progress=progress)
    engine: OnnxEngine = done.placement.opened
    loaded_ns = clock.monotonic_ns()
    engine.report = compose_report(
        done,
        runtime=f"onnxruntime {runtime.__version__}",
        asked=rungs,
        on_fallback=request.on_fallback,
        threads=request.threads,
        check_ms=median_ms(engine.run, clock),
        load_ms=(loaded_ns - started_ns) / 1e6,
    )
    announce(engine.report, progress)
    return engine


def read_header(path: Path) -> OnnxModel:
    """Read what the file says of itself; a cut file is found here, where the runtime may load it in silence.

    Raises:
        BundleError: The file cannot be read, is no ONNX model, or is cut.
    """
    try:
        with (
            path.open("rb") as file,
            contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
        ):
            return read_onnx(mapped, path.name)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise BundleError(f"the model file {path.name} cannot be read: {error}") from error
