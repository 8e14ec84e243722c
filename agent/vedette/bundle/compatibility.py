"""Can this runtime read that bundle? Decided from version numbers, nothing is loaded (casebook 5). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vedette.errors import BundleError
from vedette.wire.bundle import EngineName

if TYPE_CHECKING:
    from vedette.bundle.folder import Bundle
    from vedette.bundle.onnxfile import OnnxModel
    from vedette.wire.bundle import ModelSpec

# Highest IR version and default-domain opset of each ONNX Runtime, from this minor release on. Measured: each
# minor release from 1.18 to 1.32 was given files with rising numbers.
_ONNX_RUNTIME_LIMITS = (
    ((1, 18), 10, 21),
    ((1, 21), 10, 22),
    ((1, 23), 11, 23),
    ((1, 24), 13, 25),
    ((1, 25), 13, 26),
    ((1, 32), 14, 28),
)
_NEWEST_MEASURED = (1, 32)
_LOWEST_OPSET = 7  # ONNX Runtime promises nothing below
_ANY_OPSET = 10_000
# Domains whose operators are compiled into the released ONNX Runtime packages.
_KNOWN_DOMAINS = frozenset(
    {
        "",
        "ai.onnx.ml",
        "ai.onnx.preview",
        "ai.onnx.preview.training",
        "ai.onnx.training",
        "com.microsoft",
        "com.microsoft.experimental",
        "com.microsoft.nchwc",
        "com.ms.internal.nhwc",
        "org.pytorch.aten",
    }
)
_ENGINES = {
    "onnx": EngineName.ONNX,
    "onnxruntime": EngineName.ONNX,
    "litert": EngineName.LITERT,
    "ai-edge-litert": EngineName.LITERT,
    "tflite-runtime": EngineName.LITERT,
}


def check_onnx(spec: ModelSpec, model: OnnxModel) -> None:
    """Judge what an ONNX file asks for on its own, whatever the runtime.

    Raises:
        BundleError: An operator domain that no released runtime has, a domain used but not imported, or an
            opset outside of what `model.yaml` promises.
    """
    domains = model.node_domains - model.function_domains
    unknown = sorted(domains - _KNOWN_DOMAINS)
    if unknown:
        raise BundleError(
            f"{spec.file}: uses operators of the unknown domain {', '.join(map(repr, unknown))}",
            cure="export the model without custom operators; those of a plug-in library cannot be loaded",
        )
    unversioned = sorted(model.node_domains - model.opsets.keys())
    if unversioned:
        raise BundleError(
            f"{spec.file}: uses operators of domain {unversioned[0]!r} but imports no opset of it",
            cure="export the model again",
        )
    opset = model.opsets.get("")
    wanted = spec.requires.opset
    if opset is not None and wanted is not None and not wanted[0] <= opset <= wanted[1]:
        raise BundleError(
            f"{spec.file}: uses opset {opset}, but model.yaml says requires.opset {wanted[0]}..{wanted[1]}",
            cure="correct requires.opset, or use the file that it was written for",
        )
    if opset is not None and opset < _LOWEST_OPSET:
        raise BundleError(
            f"{spec.file}: uses opset {opset}; ONNX Runtime starts at {_LOWEST_OPSET}",
            cure="convert the model to a newer opset",
        )


def check_runtime(bundle: Bundle, runtime_name: str, runtime_version: str) -> None:
    """Refuse a bundle that is too new for an installed runtime.

    Args:
        bundle: A loaded bundle.
        runtime_name: The distribution that is installed, such as `onnxruntime-gpu` or `ai-edge-litert`; the
            engine's name does too.
        runtime_version: Its version; one newer than all measured ones is trusted.

    Raises:
        BundleError: Wrong engine, or the bundle needs a newer runtime; both versions are named.
    """
    spec = bundle.spec
    engine = _engine_of(runtime_name)
    if engine is not spec.engine:
        raise BundleError(
            f"{spec.name} {spec.version} is for engine `{spec.engine.value}`, not for {runtime_name}",
            cure=f"install vedette[{spec.engine.value}]",
        )
    version = _version(runtime_version)
    _check_required(spec, runtime_name, runtime_version)
    if bundle.onnx is not None and version[:2] <= _NEWEST_MEASURED:
        _check_limits(spec, bundle.onnx, runtime_name, runtime_version)


def opset_range(runtime_version: str) -> tuple[int, int] | None:
    """Lowest and highest default-domain opset that an ONNX Runtime reads; None for one that is too old.

    One that is newer than all measured ones is trusted with anything.

    Raises:
        BundleError: No version.
    """
    installed = _version(runtime_version)[:2]
    known = [limits for limits in _ONNX_RUNTIME_LIMITS if limits[0] <= installed]
    if not known:
        return None
    return _LOWEST_OPSET, known[-1][2] if installed <= _NEWEST_MEASURED else _ANY_OPSET


def _engine_of(runtime_name: str) -> EngineName | None:
    name = runtime_name.lower().replace("_", "-")
    if name.startswith("onnxruntime"):
        name = "onnxruntime"
    return _ENGINES.get(name)


def _check_required(spec: ModelSpec, runtime_name: str, runtime_version: str) -> None:
    required = _version(spec.requires.runtime)
    # tflite-runtime ended at TensorFlow's 2.14; LiteRT started anew at 1.0, so its numbers say nothing here.
    ancestor = runtime_name.lower().replace("_", "-") == "tflite-runtime"
    if any(required) and (ancestor or _version(runtime_version) < required):
        raise BundleError(
            f"{spec.name} {spec.version} needs {spec.engine.value} runtime {spec.requires.runtime} or newer; "
            f"{runtime_name} {runtime_version} is installed",
            cure=f"update the runtime (vedette[{spec.engine.value}]), or use a bundle made for this one",
        )


def _check_limits(spec: ModelSpec, model: OnnxModel, runtime_name: str, runtime_version: str) -> None:
    installed = _version(runtime_version)[:2]
    known = [limits for limits in _ONNX_RUNTIME_LIMITS if limits[0] <= installed]
    if not known:
        oldest = ".".join(map(str, _ONNX_RUNTIME_LIMITS[0][0]))
        raise BundleError(
            f"{runtime_name} {runtime_version} is older than {oldest}, the oldest that is supported",
            cure="update the runtime (vedette[onnx])",
        )
    _, max_ir, max_opset = known[-1]
    for what, value, limit in (
        ("IR version", model.ir_version, max_ir),
        ("opset", model.opsets.get("", 0), max_opset),
    ):
        if value > limit:
            raise BundleError(
                f"{spec.file}: has ONNX {what} {value}; "
                f"{runtime_name} {runtime_version} reads up to {what} {limit}",
                cure="update the runtime, or export the model for the older version",
            )


def _version(text: str) -> tuple[int, ...]:
    """The numbers at the front of a version; a pre-release counts as its release."""
    match = re.match(r"[0-9]{1,9}(?:\.[0-9]{1,9})*", text)
    if match is None:
        raise BundleError(f"{text!r} is not a version", cure="reinstall the runtime")
    numbers = [int(part) for part in match.group().split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
