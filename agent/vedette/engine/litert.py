"""LiteRT, or the older tflite-runtime, behind the engine port: the only file that imports either."""

from __future__ import annotations

import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.clock import SystemClock
from vedette.engine.accelerator import announce, climb, compose_report, ladder, median_ms
from vedette.engine.failures import reason
from vedette.engine.litert_ladder import Opener
from vedette.errors import EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.engine.port import Engine, EngineRequest, Progress

# A whole TFLite model of one float tensor and no operator. Only constructing an interpreter tells: the old
# wheel imports fine beside NumPy 2 and breaks on construction (casebook 9).
PROBE_MODEL = bytes.fromhex(
    "1800000054464c3300000e001800140010000c00080004000e0000001400000020000000240000008c0000000300000001000000"
    "080000000400040004000000010000007000000001000000100000000c00140010000c00080004000c0000001000000010000000"
    "1400000018000000000000000100000000000000010000000000000001000000100000000c000c0008000000000004000c000000"
    "080000000c0000000100000078000000010000000100000000000000"
)


@dataclass(frozen=True)
class Package:
    """One distribution that brings the Interpreter API, and the NumPy versions its binary accepts."""

    module: str
    distribution: str
    extra: str
    numpy_range: str


PACKAGES: tuple[Package, ...] = (
    Package("ai_edge_litert", "ai-edge-litert", "litert", ">=1.23"),
    Package("tflite_runtime", "tflite-runtime", "tflite", ">=1.19,<2"),
)


@dataclass(frozen=True)
class Runtime:
    """What this adapter uses of the runtime; a test passes its own.

    `compiled_model` is the module of that name, None where the package has none.
    """

    name: str
    version: str
    interpreter: Callable[..., Any]
    load_delegate: Callable[..., Any]
    plain_resolver: Any
    compiled_model: Any | None


def open_litert(request: EngineRequest, progress: Progress) -> Engine:
    """Load a TFLite model on the first accelerator of the ladder that really takes it.

    Raises:
        EngineUnavailableError: No runtime is installed or it is broken, or no allowed accelerator holds.
        BundleError: The file is damaged, too new for this runtime, or of another shape than the bundle says.
        ConfigError: An engine option is not known.
    """
    return open_with(import_runtime(), request, progress, SystemClock())


def open_with(runtime: Runtime, request: EngineRequest, progress: Progress, clock: Clock) -> Engine:
    """As `open_litert`, with runtime and clock given.

    Raises:
        EngineUnavailableError: No allowed accelerator holds.
        BundleError: The file is damaged, too new, or of another shape than the bundle says.
        ConfigError: An engine option is not known.
    """
    started_ns = clock.monotonic_ns()
    rungs = ladder(request.accelerators)
    opener = Opener(runtime, request, progress)
    done = climb(rungs, opener.attempt, on_fallback=request.on_fallback, progress=progress)
    engine = done.placement.opened
    loaded_ns = clock.monotonic_ns()
    engine.report = compose_report(
        done,
        runtime=f"{runtime.name} {runtime.version}",
        asked=rungs,
        on_fallback=request.on_fallback,
        threads=request.threads,
        check_ms=median_ms(engine.run, clock),
        load_ms=(loaded_ns - started_ns) / 1e6,
    )
    announce(engine.report, progress)
    return engine


def import_runtime(import_module: Callable[[str], Any] = importlib.import_module) -> Runtime:
    """The first installed package that can construct an interpreter.

    Raises:
        EngineUnavailableError: None can; the text holds the reason for each.
    """
    reasons: list[str] = []
    for package in PACKAGES:
        outcome = _try_package(package, import_module)
        if isinstance(outcome, Runtime):
            return outcome
        reasons.append(outcome)
    raise EngineUnavailableError(
        f"no TFLite runtime is usable: {'; '.join(reasons)}",
        cure="pip install vedette[litert], or vedette[tflite] on 32-bit ARM and Python up to 3.11",
    )


def _try_package(package: Package, import_module: Callable[[str], Any]) -> Runtime | str:
    try:
        module = import_module(f"{package.module}.interpreter")
    except ModuleNotFoundError as error:
        if error.name in (package.module, f"{package.module}.interpreter"):
            return f"{package.distribution} is not installed"
        return _broken(package, error)
    except Exception as error:  # noqa: BLE001 - a foreign binary raises anything; the other package goes on
        return _broken(package, error)
    try:
        probe = module.Interpreter(model_content=PROBE_MODEL, num_threads=1)
        probe.allocate_tensors()
        return Runtime(
            name=package.distribution,
            version=_version(package),
            interpreter=module.Interpreter,
            load_delegate=module.load_delegate,
            plain_resolver=module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            compiled_model=_optional(f"{package.module}.compiled_model", import_module),
        )
    except Exception as error:  # noqa: BLE001 - NumPy's break shows as SystemError, others differ
        return _broken(package, error)


def _broken(package: Package, error: Exception) -> str:
    return (
        f"{package.distribution} {_version(package)} is installed but does not work with NumPy "
        f"{np.__version__} (it accepts NumPy {package.numpy_range}; vedette[{package.extra}] "
        f"says so to pip): {reason(error)}"
    )


def _version(package: Package) -> str:
    try:
        return importlib.metadata.version(package.distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def _optional(name: str, import_module: Callable[[str], Any]) -> Any | None:  # noqa: ANN401 - the wheel has no types
    try:
        return import_module(name)
    except Exception:  # noqa: BLE001 - the GPU rung then says that this package has none
        return None
