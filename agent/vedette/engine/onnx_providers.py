"""ONNX Runtime's execution providers: names, options, and what a session says it really uses. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from vedette.engine.accelerator import CPU, GPU, GPU_FAMILY
from vedette.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROVIDERS: dict[str, str] = {
    "tensorrt": "TensorrtExecutionProvider",
    "tensorrt-rtx": "NvTensorRTRTXExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "nnapi": "NnapiExecutionProvider",
    "cann": "CANNExecutionProvider",
    "rknpu": "RknpuExecutionProvider",
    "vitisai": "VitisAIExecutionProvider",
    "acl": "ACLExecutionProvider",
    "armnn": "ArmNNExecutionProvider",
    "dml": "DmlExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    CPU: "CPUExecutionProvider",
}
_CANONICAL = {provider: name for name, provider in PROVIDERS.items()}
_SUFFIX = "ExecutionProvider"

# Wheels that bring one provider as a library and may stand beside any onnxruntime.
PLUGIN_MODULES: dict[str, str] = {"webgpu": "onnxruntime_ep_webgpu", "qnn": "onnxruntime_qnn"}

# Providers that compile the graph into something worth keeping between starts.
CACHING: frozenset[str] = frozenset({"tensorrt", "tensorrt-rtx", "openvino", "migraphx", "coreml"})
_ENTRY_PREFIXES = ("session.", "optimization.", "ep.")
PRECISIONS = ("fp32", "fp16", "int8")


def candidates(rung: str, in_wheel: Sequence[str]) -> tuple[str, ...]:
    """What a rung may mean: plain `gpu` is any that is there or may be plugged in.

    TensorRT is left out: the minutes that it compiles must be asked for by name.
    """
    if rung != GPU:
        return (rung,)
    return tuple(
        name
        for name in GPU_FAMILY
        if name != "tensorrt" and (PROVIDERS.get(name) in in_wheel or name in PLUGIN_MODULES)
    )


def accelerator_of(provider: str) -> str:
    """The canonical name of a provider; one we do not know keeps its own, lower case."""
    return _CANONICAL.get(provider, provider.removesuffix(_SUFFIX).lower())


def provider_of(accelerator: str) -> str:
    """The provider's name in the runtime; an unknown accelerator is taken for a provider's prefix."""
    return PROVIDERS.get(accelerator, f"{accelerator}{_SUFFIX}")


def chain(accelerator: str, in_wheel: Sequence[str]) -> tuple[str, ...]:
    """What one session is given: TensorRT leaves its unsupported nodes to CUDA, and all to the CPU."""
    if accelerator == CPU:
        return (CPU,)
    helpers = ("cuda",) if accelerator == "tensorrt" and provider_of("cuda") in in_wheel else ()
    return (accelerator, *helpers, CPU)


def provider_options(
    accelerator: str, options: Mapping[str, str], cache_folder: str | None
) -> dict[str, str]:
    """A provider's options: precision and caches, then `<accelerator>.<key>` from the configuration.

    Raises:
        ConfigError: `precision` is no known word.
    """
    precision = options.get("precision", "fp32")
    if precision not in PRECISIONS:
        raise ConfigError(f"engine.options: precision {precision!r} is none of {', '.join(PRECISIONS)}")
    given = _cache_options(accelerator, cache_folder) | _precision_options(accelerator, precision)
    if "device_id" in options and accelerator in (
        "tensorrt",
        "tensorrt-rtx",
        "cuda",
        "rocm",
        "migraphx",
        "dml",
    ):
        given["device_id"] = options["device_id"]
    prefix = f"{accelerator}."
    return given | {key[len(prefix) :]: value for key, value in options.items() if key.startswith(prefix)}


def _cache_options(accelerator: str, folder: str | None) -> dict[str, str]:
    if folder is None:
        return {}
    return {
        "tensorrt": {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": folder,
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": folder,
        },
        "tensorrt-rtx": {"nv_runtime_cache_path": folder},
        "openvino": {"cache_dir": folder},
        "migraphx": {"migraphx_model_cache_dir": folder},
        "coreml": {"ModelCacheDirectory": folder},
    }.get(accelerator, {})


def _precision_options(accelerator: str, precision: str) -> dict[str, str]:
    if precision == "fp32":
        return {}
    return {
        "tensorrt": {f"trt_{precision}_enable": "1"},
        "migraphx": {f"migraphx_{precision}_enable": "1"},
        "openvino": {"precision": precision.upper()} if precision == "fp16" else {},
    }.get(accelerator, {})


def session_entries(options: Mapping[str, str], *, exact_int8: bool) -> dict[str, str]:
    """No spinning threads (casebook 3), placement recorded, then the owner's own entries.

    `exact_int8` keeps int8 products from saturating on x86 without VNNI, where 8 % of answers would change.
    """
    entries = {
        "session.intra_op.allow_spinning": "0",
        "session.inter_op.allow_spinning": "0",
        "session.record_ep_graph_assignment_info": "1",
    }
    if exact_int8:
        entries["session.x64quantprecision"] = "1"
    return entries | {key: value for key, value in options.items() if key.startswith(_ENTRY_PREFIXES)}


def count_nodes(assignment: Sequence[Any]) -> dict[str, int]:
    """Nodes per accelerator from `get_provider_graph_assignment_info()`, most first."""
    counts: Counter[str] = Counter()
    for subgraph in assignment:
        counts[accelerator_of(subgraph.ep_name)] += len(subgraph.get_nodes())
    return dict(counts.most_common())


def check_options(options: Mapping[str, str], rungs: Sequence[str]) -> None:
    """Refuse options that nobody would read, so that a typing mistake is not silence.

    Raises:
        ConfigError: A key is neither `precision`, `device_id`, `session.…`, `plugin.…` nor `<accelerator>.…`.
    """
    prefixes = {"session", "optimization", "ep", "plugin", *PROVIDERS, *rungs}
    for key in options:
        head, dot, rest = key.partition(".")
        if key not in ("precision", "device_id") and not (dot and rest and head in prefixes):
            raise ConfigError(
                f"engine.options: {key!r} is not known to the onnx engine",
                cure="use precision, device_id, session.<entry>, plugin.<accelerator> "
                "or <accelerator>.<provider option>",
            )
