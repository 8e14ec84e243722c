"""Which adapter serves an engine's name; resolved on use: one broken runtime does not stop another."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, cast

from vedette.errors import ConfigError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vedette.engine.port import OpenEngine

ENGINES: dict[str, str] = {
    "litert": "vedette.engine.litert:open_litert",
    "onnx": "vedette.engine.onnx:open_onnx",
}

# Distributions that may bring an engine's runtime, in the adapters' order of preference.
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "litert": ("ai-edge-litert", "tflite-runtime"),
    "onnx": (
        "onnxruntime",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-qnn",
        "onnxruntime-rocm",
        "onnxruntime-migraphx",
        "onnxruntime-webgpu",
    ),
}


def installed_runtime(engine: str) -> tuple[str, str] | None:
    """(distribution, version) of the runtime that an engine would use; None when none is installed."""
    for distribution in DISTRIBUTIONS.get(engine, ()):
        try:
            return distribution, importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:  # noqa: PERF203 - seven at most, once a load
            continue
    return None


def resolve(name_or_factory: str, plugins: Mapping[str, str] | None = None) -> OpenEngine:
    """Find an adapter's factory.

    Args:
        name_or_factory: `onnx`, `litert`, a name from `plugins`, or `module:factory` itself.
        plugins: Names the configuration adds or overrides, each as `module:factory`.

    Returns:
        The factory; it imports its runtime only when it is called.

    Raises:
        ConfigError: Nobody knows the name, or what it points at is no factory.
        EngineUnavailableError: The adapter's module cannot be imported.
    """
    name = str(getattr(name_or_factory, "value", name_or_factory))  # an enum's name is not its value
    known = {**ENGINES, **(plugins or {})}
    target = name if ":" in name else known.get(name)
    if target is None:
        raise ConfigError(
            f"no engine is called {name!r}; known: {', '.join(sorted(known))}",
            cure="use a known name, or add it to engine.plugins as module:factory",
        )
    return _load(name, target)


def _load(name: str, target: str) -> OpenEngine:
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"engine {name!r}: {target!r} is not of the form module:factory")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise EngineUnavailableError(
            f"engine {name!r}: module {module_name} cannot be imported: {error}",
            cure=f"install the package that brings {module_name} into this Python, or correct engine.plugins",
        ) from error
    except Exception as error:
        raise EngineUnavailableError(
            f"engine {name!r}: importing {module_name} fails: {type(error).__name__}: {error}",
            cure="repair or remove that plug-in; the other engines are not touched by it",
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ConfigError(f"engine {name!r}: {module_name} has no callable {attribute!r}")
    return cast("OpenEngine", factory)
