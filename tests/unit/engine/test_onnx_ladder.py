"""The ONNX adapter on a runtime that plays the boxes we do not have: CUDA, TensorRT, plug-ins, bad caches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from tests.stubs.tiny_models import CHANNELS, CLASSES, SIZE, tiny_onnx

from vedette.clock import ManualClock
from vedette.engine import onnx_cache
from vedette.engine.accelerator import RungRefusedError
from vedette.engine.onnx import import_runtime, open_onnx, open_with
from vedette.engine.onnx_ladder import lacks_vnni
from vedette.engine.onnx_providers import chain, check_options, count_nodes, provider_options
from vedette.engine.onnx_session import PluginLibrary
from vedette.engine.port import EngineRequest, OnFallback
from vedette.errors import (
    BundleError,
    ConfigError,
    EngineUnavailableError,
    OutOfMemoryError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.engine.onnx_session import OnnxEngine

CUDA, TRT, CPU, WEBGPU = (f"{name}ExecutionProvider" for name in ("CUDA", "Tensorrt", "CPU", "WebGpu"))


class Options:
    """Session options that remember what they were told."""

    def __init__(self) -> None:
        self.log_severity_level = 2
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.entries: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.devices: list[Any] = []

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        self.sizes[name] = size

    def add_provider_for_devices(self, devices: list[Any], _options: dict[str, str]) -> None:
        self.devices = devices


class Node(msgspec.Struct):
    """A graph input or output as a session shows it."""

    name: str
    shape: list[int | str]
    type: str = "tensor(float)"


class Subgraph(msgspec.Struct):
    """One entry of the assignment: a provider and its nodes."""

    ep_name: str
    size: int

    def get_nodes(self) -> list[int]:
        return list(range(self.size))


class Device(msgspec.Struct):
    """A plug-in's device."""

    ep_name: str


class Session:
    """A session that lists, and places nodes on, what the box really gives."""

    def __init__(self, listed: list[str], placed: dict[str, int] | None, box: Box) -> None:
        self._listed = listed
        self._box = box
        if placed is not None:
            self.get_provider_graph_assignment_info = lambda: [Subgraph(*item) for item in placed.items()]

    def get_providers(self) -> list[str]:
        return self._listed

    def get_inputs(self) -> list[Node]:
        return [Node("picture", ["N", CHANNELS, SIZE, SIZE])]

    def get_outputs(self) -> list[Node]:
        return [Node("scores", [1, CLASSES])]

    def run(self, _names: list[str], feed: dict[str, Any]) -> list[Any]:
        self._box.on_run()
        assert feed["picture"].shape == (1, CHANNELS, SIZE, SIZE)
        return [np.zeros((1, CLASSES), np.float32)]


class Box:
    """An onnxruntime-shaped object: what the wheel has, what really loads, and where nodes go.

    `loads` are the providers whose libraries are there; `raises` maps a provider to what its creation throws.
    `places` are the node counts, None plays a runtime older than 1.24.
    """

    __version__: str = "1.32.0"

    def __init__(
        self,
        wheel: tuple[str, ...],
        loads: tuple[str, ...] = (CPU,),
        *,
        places: dict[str, int] | None = None,
        raises: dict[str, Exception] | None = None,
    ) -> None:
        self.wheel = wheel
        self.loads = loads
        self.places = places
        self.raises = raises or {}
        self.sessions: list[list[str]] = []
        self.options: list[Options] = []
        self.provider_options: list[dict[str, dict[str, str]]] = []
        self.registered: list[str] = []
        self.on_create: Callable[[], None] = lambda: None
        self.on_run: Callable[[], None] = lambda: None

    def SessionOptions(self) -> Options:  # noqa: N802 - the runtime's name
        return Options()

    def get_available_providers(self) -> list[str]:
        return list(self.wheel)

    def register_execution_provider_library(self, name: str, _path: str) -> None:
        assert name not in self.registered, "the real runtime refuses a second registration"
        self.registered.append(name)

    def get_ep_devices(self) -> list[Any]:
        return [Device(name) for name in self.registered if name in self.loads]

    def InferenceSession(  # noqa: N802 - the runtime's name
        self,
        _path: str,
        *,
        sess_options: Options,
        enable_fallback: int,
        providers: list[tuple[str, dict[str, str]]] | None = None,
    ) -> Session:
        assert enable_fallback == 0, "the runtime's own fallback hides the reason"
        given = providers or [(device.ep_name, {}) for device in sess_options.devices]
        names = [name for name, _ in given]
        self.sessions.append(names)
        self.options.append(sess_options)
        self.provider_options.append(dict(given))
        self.on_create()
        for name in names:
            if name in self.raises:
                raise self.raises[name]
        listed = [name for name in names if name in self.loads]
        listed += [CPU] if CPU not in listed else []
        places = {CPU: 11} if self.places is not None and names == [CPU] else self.places
        return Session(listed, places, self)


def no_plugin(_accelerator: str, _module: str) -> PluginLibrary | None:
    return None


def webgpu_plugin(accelerator: str, module: str) -> PluginLibrary | None:
    if (accelerator, module) == ("webgpu", "onnxruntime_ep_webgpu"):
        return PluginLibrary(WEBGPU, "libwebgpu.so")
    return None


class Bench:
    """Opens the tiny model on a box and keeps the progress lines."""

    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        path = folder / "tiny.onnx"
        path.write_bytes(tiny_onnx())
        self.request = EngineRequest(
            model_path=path,
            model_sha256="ab" * 32,
            accelerators=("tensorrt", "cuda", "cpu"),
            on_fallback=OnFallback.WARN,
            threads=2,
            cache_dir=folder / "cache",
            input_shape=(1, CHANNELS, SIZE, SIZE),
        )

    def open(
        self,
        box: Box,
        *accelerators: str,
        on_fallback: OnFallback = OnFallback.WARN,
        plugins: Callable[[str, str], PluginLibrary | None] = no_plugin,
        options: dict[str, str] | None = None,
    ) -> OnnxEngine:
        request = msgspec.structs.replace(
            self.request,
            accelerators=accelerators or self.request.accelerators,
            on_fallback=on_fallback,
            options=options or {},
        )
        return open_with(box, plugins, request, self.lines.append, ManualClock())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def reasons(engine: OnnxEngine) -> dict[str, str]:
    return {item.accelerator: item.reason for item in engine.report.skipped}


def test_a_cpu_only_wheel_says_why_it_is_on_the_cpu(bench: Bench) -> None:
    """Case 1 (a): TensorRT and CUDA are wanted, the wheel has neither."""
    engine = bench.open(Box((CPU,), places={CPU: 11}))
    assert (engine.report.effective, engine.report.degraded) == ("cpu", True)
    assert set(reasons(engine)) == {"tensorrt", "cuda"}
    assert "not in the installed onnxruntime 1.32.0 (it has cpu)" in reasons(engine)["cuda"]
    assert bench.lines[-1].startswith("DEGRADED: tensorrt was asked for, runs on cpu")


def test_a_cpu_only_wheel_is_never_ready_when_cuda_is_required(bench: Bench) -> None:
    """Case 1 (a) with the policy `fail`: the error names what is missing."""
    with pytest.raises(EngineUnavailableError, match="CUDAExecutionProvider is not in the installed"):
        bench.open(Box((CPU,)), "cuda", "cpu", on_fallback=OnFallback.FAIL)


@pytest.mark.parametrize("places", [None, {CPU: 11}])
def test_cuda_listed_as_available_but_not_in_the_session_is_the_cpu(
    bench: Bench, places: dict[str, int] | None
) -> None:
    """Case 1 (b): the -gpu wheel lists CUDA on a box without CUDA; the session tells the truth."""
    engine = bench.open(Box((CUDA, CPU), loads=(CPU,), places=places), "cuda", "cpu")
    assert engine.report.effective == "cpu"
    assert engine.report.degraded
    assert "came up with CPUExecutionProvider only" in reasons(engine)["cuda"]


def test_a_missing_tensorrt_still_ends_on_cuda(bench: Bench) -> None:
    """Case 1 (c): the TensorRT library does not load, CUDA is good."""
    box = Box(
        (TRT, CUDA, CPU),
        loads=(CUDA, CPU),
        places={CUDA: 11},
        raises={TRT: RuntimeError("libnvinfer.so.10: cannot open shared object file")},
    )
    engine = bench.open(box)
    assert engine.report.effective == "cuda"
    assert "libnvinfer.so.10" in reasons(engine)["tensorrt"]
    assert box.sessions == [[TRT, CUDA, CPU], [CUDA, CPU]]


def test_tensorrt_dropped_in_silence_still_ends_on_cuda(bench: Bench) -> None:
    """Case 1 (c) as newer runtimes do it: no exception, the session simply has no TensorRT."""
    engine = bench.open(Box((TRT, CUDA, CPU), loads=(CUDA, CPU), places={CUDA: 11}))
    assert engine.report.effective == "cuda"
    assert TRT in reasons(engine)["tensorrt"]


def test_a_provider_that_takes_no_node_is_not_in_effect(bench: Bench) -> None:
    """Case 1: loaded and listed, yet every node is on the CPU."""
    engine = bench.open(Box((CUDA, CPU), loads=(CUDA, CPU), places={CPU: 11}), "cuda", "cpu")
    assert engine.report.effective == "cpu"
    assert "takes no node" in reasons(engine)["cuda"]


def test_node_counts_are_told_for_a_split_model(bench: Bench) -> None:
    """Case 8: 97 nodes there, 200 on the CPU: in effect, and the split is visible."""
    engine = bench.open(Box((CUDA, CPU), loads=(CUDA, CPU), places={CUDA: 97, CPU: 200}), "cuda", "cpu")
    assert engine.report.effective == "cuda"
    assert engine.report.nodes == {"cuda": 97, "cpu": 200}
    assert "97 nodes on cuda" in bench.lines[-1]


def test_an_old_runtime_is_believed_by_its_list_and_the_evidence_says_so(bench: Bench) -> None:
    """Before 1.24 nothing tells where nodes are."""
    engine = bench.open(Box((CUDA, CPU), loads=(CUDA, CPU), places=None), "cuda", "cpu")
    assert (engine.report.effective, engine.report.nodes) == ("cuda", {})
    assert engine.report.evidence == "the session lists cuda, cpu"


def test_sessions_do_not_spin_and_have_the_threads_asked_for(bench: Bench) -> None:
    """Case 3: spinning off, one pool, sized by the request; symbolic axes fixed (case 4)."""
    box = Box((CPU,))
    bench.open(box, "cpu", options={"session.enable_quant_qdq_cleanup": "1"})
    options = box.options[0]
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.entries["session.intra_op.allow_spinning"] == "0"
    assert options.entries["session.enable_quant_qdq_cleanup"] == "1"
    assert options.sizes == {"N": 1}


def test_a_plugin_provider_is_registered_once_and_used(bench: Bench) -> None:
    """A plug-in package stands beside any wheel; two models register it once."""
    box = Box((CPU,), loads=(WEBGPU, CPU), places={WEBGPU: 96})
    for _ in range(2):
        engine = bench.open(box, "webgpu", "cpu", plugins=webgpu_plugin)
        assert (engine.report.effective, engine.report.degraded) == ("webgpu", False)
    assert box.registered == [WEBGPU]


def test_plain_gpu_takes_the_plugin_too(bench: Bench) -> None:
    """Which GPU it became is told."""
    box = Box((CPU,), loads=(WEBGPU, CPU), places={WEBGPU: 96})
    engine = bench.open(box, "gpu", "cpu", plugins=webgpu_plugin)
    assert (engine.report.effective, engine.report.degraded) == ("webgpu", False)


def test_a_plugin_without_a_device_is_a_reason(bench: Bench) -> None:
    """Installed on a box without a GPU."""
    engine = bench.open(Box((CPU,)), "webgpu", "cpu", plugins=webgpu_plugin)
    assert "finds no device" in reasons(engine)["webgpu"]


def test_a_broken_plugin_is_a_reason(bench: Bench) -> None:
    """It costs its own rung, nothing else."""

    def broken(_accelerator: str, _module: str) -> PluginLibrary | None:
        raise RungRefusedError("the plug-in cannot be imported")

    assert bench.open(Box((CPU,)), "webgpu", "cpu", plugins=broken).report.effective == "cpu"


class Cached:
    """A TensorRT box that fails while a garbage engine lies in its cache."""

    def __init__(self) -> None:
        self.box = Box((TRT, CPU), loads=(TRT, CPU), places={TRT: 11})
        self.box.on_create = self.check
        self.always_bad = False

    def folder(self) -> Path:
        from pathlib import Path

        return Path(self.box.provider_options[-1][TRT]["trt_engine_cache_path"])

    def check(self) -> None:
        names = (
            [path.name for path in self.folder().iterdir()] if TRT in self.box.provider_options[-1] else []
        )
        if "garbage" in names or (self.always_bad and TRT in self.box.sessions[-1]):
            raise RuntimeError("deserializeCudaEngine failed")
        if TRT in self.box.provider_options[-1]:
            (self.folder() / "model.engine").write_bytes(b"good")


def test_the_second_start_finds_the_first_ones_cache(bench: Bench) -> None:
    """Case 2: same model, same runtime, same folder; the warning about minutes comes once."""
    cached = Cached()
    bench.open(cached.box, "tensorrt", "cpu")
    first = cached.folder()
    bench.open(cached.box, "tensorrt", "cpu")
    assert cached.folder() == first
    assert sum("may take minutes" in line for line in bench.lines) == 1


def test_a_garbage_cache_is_deleted_once_and_built_again(bench: Bench) -> None:
    """Case 2: never a crash loop."""
    cached = Cached()
    bench.open(cached.box, "tensorrt", "cpu")
    (cached.folder() / "garbage").write_bytes(b"\0" * 64)
    engine = bench.open(cached.box, "tensorrt", "cpu")
    assert engine.report.effective == "tensorrt"
    assert [path.name for path in cached.folder().iterdir()] == ["model.engine"]
    assert any("deleting its cache" in line for line in bench.lines)


def test_a_build_that_fails_again_gives_the_rung_up(bench: Bench) -> None:
    """Case 2: one rebuild, then the next rung."""
    cached = Cached()
    bench.open(cached.box, "tensorrt", "cpu")
    cached.always_bad = True
    sessions = len(cached.box.sessions)
    engine = bench.open(cached.box, "tensorrt", "cpu")
    assert engine.report.effective == "cpu"
    assert len(cached.box.sessions) - sessions == 3


def test_another_runtime_model_precision_or_shape_has_another_cache(bench: Bench) -> None:
    """Case 2: nothing stale is ever found under a new key."""
    cached, folders = Cached(), set()
    for version, digest, options in (
        ("1.32.0", "ab" * 32, {}),
        ("1.33.0", "ab" * 32, {}),
        ("1.32.0", "cd" * 32, {}),
        ("1.32.0", "ab" * 32, {"precision": "fp16"}),
    ):
        cached.box.__version__ = version  # one box plays several installations
        bench.request = msgspec.structs.replace(bench.request, model_sha256=digest)
        bench.open(cached.box, "tensorrt", "cpu", options=options)
        folders.add(cached.folder())
    assert len(folders) == 4


def test_cache_keys_do_not_run_together() -> None:
    """("ab", "c") is not ("a", "bc")."""
    assert onnx_cache.cache_key(["ab", "c"]) != onnx_cache.cache_key(["a", "bc"])


def test_an_unwritable_cache_costs_time_not_the_model(bench: Bench, tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "cache").write_bytes(b"")
    engine = bench.open(Box((TRT, CPU), loads=(TRT, CPU), places={TRT: 11}), "tensorrt", "cpu")
    assert engine.report.effective == "tensorrt"
    assert any("no engine cache" in line for line in bench.lines)


def test_an_allocation_failure_costs_one_run(bench: Bench) -> None:
    """Case 4: call 50 fails for memory, call 51 works on the same engine."""
    box = Box((CPU,))
    engine = bench.open(box, "cpu")
    calls = 0

    def shortage() -> None:
        nonlocal calls
        calls += 1
        if calls == 50:
            raise RuntimeError("Failed to allocate memory for requested buffer of size 1 GB")

    box.on_run = shortage
    for _ in range(49):
        engine.run()
    with pytest.raises(OutOfMemoryError):
        engine.run()
    assert engine.run()[0].shape == (1, CLASSES)


def test_a_run_that_fails_otherwise_is_unavailable_with_the_runtimes_words(bench: Bench) -> None:
    """The ledger needs the text."""
    box = Box((CPU,))
    engine = bench.open(box, "cpu")

    def lost() -> None:
        raise RuntimeError("CUDA failure 999: unknown error")

    box.on_run = lost
    with pytest.raises(UnavailableError, match="CUDA failure 999"):
        engine.run()


@pytest.mark.parametrize("key", ["precison", "cuda", "cuda.", "sesion.x", ".x"])
def test_a_mistyped_option_is_not_silence(key: str) -> None:
    """Options are strings that nobody else checks."""
    with pytest.raises(ConfigError, match="not known to the onnx engine"):
        check_options({key: "1"}, ("cuda", "cpu"))


def test_provider_options_come_from_precision_device_and_prefix() -> None:
    """The owner's own word wins over ours."""
    options = {"precision": "fp16", "device_id": "1", "tensorrt.trt_engine_cache_enable": "0", "cuda.x": "y"}
    made = provider_options("tensorrt", options, "folder")
    assert made["trt_fp16_enable"] == "1"
    assert made["device_id"] == "1"
    assert made["trt_engine_cache_enable"] == "0"
    assert "x" not in made
    with pytest.raises(ConfigError, match="fp8"):
        provider_options("tensorrt", {"precision": "fp8"}, None)


def test_tensorrt_leaves_its_rest_to_cuda_where_there_is_one() -> None:
    """And always to the CPU."""
    assert chain("tensorrt", (TRT, CUDA, CPU)) == ("tensorrt", "cuda", "cpu")
    assert chain("tensorrt", (TRT, CPU)) == ("tensorrt", "cpu")
    assert chain("cpu", (CUDA, CPU)) == ("cpu",)


def test_nodes_are_summed_per_accelerator() -> None:
    """The runtime lists subgraphs, a provider may have many; one we do not know keeps its name."""
    assignment = [Subgraph(CPU, 1), Subgraph(CUDA, 5), Subgraph(CPU, 2), Subgraph("AcmeExecutionProvider", 1)]
    assert count_nodes(assignment) == {"cuda": 5, "cpu": 3, "acme": 1}


@pytest.mark.parametrize(
    ("flags", "machine", "lacking"),
    [
        ("flags\t: fpu avx2", "x86_64", True),
        ("flags\t: fpu avx2 avx512_vnni", "x86_64", False),
        ("flags\t: fpu avx_vnni", "AMD64", False),
        ("Features\t: asimd", "aarch64", False),
    ],
)
def test_int8_is_kept_exact_where_the_cpu_would_saturate(
    flags: str,
    machine: str,
    lacking: bool,  # noqa: FBT001 - a parameter of the table
    tmp_path: Path,
) -> None:
    """8 to 9 % of answers change on x86 without VNNI."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{flags}\n", encoding="ascii")
    assert lacks_vnni(cpuinfo, machine) is lacking


def test_a_missing_runtime_names_the_extra() -> None:
    """What to type stands in the message."""

    def absent(name: str) -> Any:  # noqa: ANN401 - a module
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with pytest.raises(EngineUnavailableError, match="not installed") as caught:
        import_runtime(absent)
    assert caught.value.cure == "pip install vedette[onnx]"


@pytest.mark.parametrize(
    "error", [ImportError("numpy.core.multiarray failed"), AttributeError("_ARRAY_API not found")]
)
def test_a_runtime_that_breaks_on_import_names_numpy(error: Exception) -> None:
    """Case 9: the version in use is in the message."""

    def broken(_name: str) -> Any:  # noqa: ANN401 - a module
        raise error

    with pytest.raises(EngineUnavailableError, match=f"NumPy is {np.__version__}"):
        import_runtime(broken)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"ir_version": 99}, "IR version: 99"),
        ({"opset": 99}, "99"),
        ({"domain": "acme.unknown", "op": "Magic"}, "acme.unknown"),
        ({"op": "NoSuchOperator"}, "NoSuchOperator"),
    ],
)
def test_a_model_too_new_for_the_runtime_is_refused_with_both_versions(
    content: dict[str, Any], words: str, bench: Bench
) -> None:
    """Case 5: IR version, opset, operator domain and operator, by the real runtime."""
    runtime = pytest.importorskip("onnxruntime")
    bench.request.model_path.write_bytes(tiny_onnx(**content))
    request = msgspec.structs.replace(bench.request, accelerators=("cpu",))
    with pytest.raises(BundleError) as caught:
        open_onnx(request, bench.lines.append)
    assert words in caught.value.cause
    assert runtime.__version__ in caught.value.cause


@pytest.mark.engine
def test_the_real_runtime_tells_its_nodes(bench: Bench) -> None:
    """The assignment entry of ONNX Runtime 1.24 and later, as installed here."""
    runtime = pytest.importorskip("onnxruntime")
    engine = open_onnx(msgspec.structs.replace(bench.request, accelerators=("cpu",)), bench.lines.append)
    if hasattr(runtime.InferenceSession, "get_provider_graph_assignment_info"):
        assert engine.report.nodes["cpu"] >= 3
        assert engine.report.evidence == "node placement told by the runtime"
    else:
        assert engine.report.evidence == "the session lists cpu"
