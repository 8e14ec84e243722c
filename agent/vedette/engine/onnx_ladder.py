"""Opens an ONNX model on one accelerator at a time, and finds out whether it really runs there."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vedette.engine import onnx_cache
from vedette.engine.accelerator import CPU, Placement, RungRefusedError
from vedette.engine.long_step import watched
from vedette.engine.onnx_providers import (
    CACHING,
    PLUGIN_MODULES,
    accelerator_of,
    candidates,
    chain,
    provider_of,
    provider_options,
    session_entries,
)
from vedette.engine.onnx_session import OnnxEngine, assignment, input_info, opening_failure
from vedette.engine.shapes import bind_symbols, fix_shape
from vedette.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.bundle.onnxfile import OnnxModel, OnnxTensor
    from vedette.engine.onnx_session import PluginLibrary, Runtime
    from vedette.engine.port import EngineRequest, Progress

_ERRORS_ONLY = 3


class Opener:
    """Opens the model on one rung, from scratch each time."""

    def __init__(
        self,
        runtime: Runtime,
        plugins: Callable[[str, str], PluginLibrary | None],
        request: EngineRequest,
        progress: Progress,
        header: OnnxModel,
    ) -> None:
        self._runtime = runtime
        self._plugins = plugins
        self._request = request
        self._progress = progress
        self._input = _single_input(header)
        axes = request.input_shape if self._input.shape is None else self._input.shape
        self._shape = fix_shape(self._input.name, axes, request.input_shape)
        self._symbols = bind_symbols(axes, self._shape)
        self._in_wheel = tuple(runtime.get_available_providers())

    def attempt(self, rung: str) -> Placement[OnnxEngine]:
        """Open on this rung.

        Raises:
            RungRefusedError: It does not run there; the text says why.
            BundleError: It is the file that is wrong.
            OutOfMemoryError: It does not fit, even on the CPU.
        """
        reasons: list[str] = []
        for accelerator in candidates(rung, self._in_wheel):
            outcome = self._try(accelerator)
            if isinstance(outcome, Placement):
                return outcome
            reasons.append(outcome if accelerator == rung else f"{accelerator}: {outcome}")
        raise RungRefusedError("; ".join(reasons))

    def _try(self, accelerator: str) -> Placement[OnnxEngine] | str:
        try:
            return self._on(accelerator)
        except RungRefusedError as refusal:
            return str(refusal)

    def _on(self, accelerator: str) -> Placement[OnnxEngine]:
        provider = provider_of(accelerator)
        plugin: PluginLibrary | None = None
        if provider not in self._in_wheel:
            plugin = self._find_plugin(accelerator)
            if plugin is None:
                raise RungRefusedError(self._not_in_wheel(accelerator, provider))
        folder = self._cache_folder(accelerator)
        try:
            engine, session = self._create(accelerator, plugin, folder)
        except RungRefusedError as refusal:
            if folder is None or not onnx_cache.holds_files(folder):
                raise
            # Once, and only where an old cache may be the cause: a stale one must never be a crash loop.
            self._progress(f"{accelerator}: {refusal}; deleting its cache and building again")
            onnx_cache.discard(folder)
            engine, session = self._create(accelerator, plugin, folder)
        return self._verify(accelerator, plugin, engine, session)

    def _find_plugin(self, accelerator: str) -> PluginLibrary | None:
        module_name = self._request.options.get(f"plugin.{accelerator}", PLUGIN_MODULES.get(accelerator))
        return None if module_name is None else self._plugins(accelerator, module_name)

    def _not_in_wheel(self, accelerator: str, provider: str) -> str:
        module_name = PLUGIN_MODULES.get(accelerator)
        hint = "" if module_name is None else f", and {module_name} is not installed"
        there = ", ".join(accelerator_of(name) for name in self._in_wheel)
        version = self._runtime.__version__
        return f"{provider} is not in the installed onnxruntime {version} (it has {there}){hint}"

    def _cache_folder(self, accelerator: str) -> Path | None:
        request = self._request
        if request.cache_dir is None or accelerator not in CACHING:
            return None
        parts = (
            request.model_sha256,
            self._runtime.__version__,
            accelerator,
            repr(self._shape),
            repr(sorted(request.options.items())),
            *onnx_cache.box_fingerprint(),
        )
        try:
            return onnx_cache.prepare(request.cache_dir, onnx_cache.cache_key(parts))
        except OSError as error:
            self._progress(f"no engine cache, each start will compile again: {error}")
            return None

    def _create(
        self, accelerator: str, plugin: PluginLibrary | None, folder: Path | None
    ) -> tuple[OnnxEngine, Any]:
        if accelerator in CACHING and (folder is None or not onnx_cache.holds_files(folder)):
            self._progress(f"{accelerator}: compiling the model for this device; this may take minutes")
        options = self._session_options()
        arguments: dict[str, Any] = {"sess_options": options, "enable_fallback": 0}
        cache = None if folder is None else str(folder)
        try:
            with watched(f"loading on {accelerator}", self._progress):
                if plugin is None:
                    names = chain(accelerator, self._in_wheel)
                    arguments["providers"] = [
                        (provider_of(name), provider_options(name, self._request.options, cache))
                        for name in names
                    ]
                else:
                    self._add_plugin(options, accelerator, plugin)
                session = self._runtime.InferenceSession(str(self._request.model_path), **arguments)
                return OnnxEngine(session, input_info(session, self._shape)), session
        except (RungRefusedError, BundleError):
            raise
        except Exception as error:
            raise opening_failure(error, accelerator, self._runtime.__version__) from error

    def _add_plugin(self, options: Any, accelerator: str, plugin: PluginLibrary) -> None:  # noqa: ANN401 - vendor type
        if not self._plugin_devices(plugin):
            # Registering twice is an error in the runtime, hence the look first.
            self._runtime.register_execution_provider_library(plugin.provider, plugin.path)
        devices = self._plugin_devices(plugin)
        if not devices:
            raise RungRefusedError(f"{plugin.provider} is installed, but finds no device on this box")
        options.add_provider_for_devices(devices, provider_options(accelerator, self._request.options, None))

    def _plugin_devices(self, plugin: PluginLibrary) -> list[Any]:
        return [device for device in self._runtime.get_ep_devices() if device.ep_name == plugin.provider][:1]

    def _session_options(self) -> Any:  # noqa: ANN401 - the vendor wheel has no types
        options = self._runtime.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.intra_op_num_threads = self._request.threads
        options.inter_op_num_threads = 1
        entries = session_entries(self._request.options, exact_int8=lacks_vnni())
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        for name, size in self._symbols.items():
            options.add_free_dimension_override_by_name(name, size)
        return options

    def _verify(
        self,
        accelerator: str,
        plugin: PluginLibrary | None,
        engine: OnnxEngine,
        session: Any,  # noqa: ANN401 - vendor
    ) -> Placement[OnnxEngine]:
        """The session was made; that it runs where it was told to is another matter (casebook 1)."""
        provider = provider_of(accelerator) if plugin is None else plugin.provider
        listed = list(session.get_providers())
        nodes = assignment(session)
        if nodes is None:
            nodes, evidence = {}, f"the session lists {', '.join(map(accelerator_of, listed))}"
            placed = provider in listed
        else:
            evidence = "node placement told by the runtime"
            placed = nodes.get(accelerator_of(provider), 0) > 0 or (accelerator == CPU and not nodes)
        if placed:
            return Placement(engine, accelerator, nodes, evidence)
        engine.close()
        if provider not in listed:
            raise RungRefusedError(
                f"the wheel has {provider}, but the session came up with {', '.join(listed)} only: "
                "a library or driver it needs does not load"
            )
        raise RungRefusedError(f"{provider} is loaded, but takes no node of this model ({nodes})")


def _single_input(header: OnnxModel) -> OnnxTensor:
    if len(header.inputs) != 1:
        names = ", ".join(entry.name for entry in header.inputs) or "none"
        raise BundleError(
            f"the model has {len(header.inputs)} inputs ({names}); this agent feeds one picture",
            cure="export the model with the other inputs as constants",
        )
    return header.inputs[0]


def lacks_vnni(cpuinfo: Path = Path("/proc/cpuinfo"), machine: str | None = None) -> bool:
    """Whether int8 products saturate here: x86 without VNNI multiplies into 16 bits."""
    if (machine or platform.machine()).lower() not in ("x86_64", "amd64"):
        return False
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return True  # right answers first where the CPU does not say
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return not any(flag in flags.split() for flag in ("avx512_vnni", "avx_vnni"))
