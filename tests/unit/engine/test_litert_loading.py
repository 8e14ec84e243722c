"""The LiteRT adapter: broken wheels, delegates that fail in every way, and what is said of the graph."""

from __future__ import annotations

import shutil
import struct
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from tests.stubs.tiny_models import CHANNELS, SIZE, tiny_tflite

from vedette.engine.accelerator import RungRefusedError
from vedette.engine.litert import PROBE_MODEL, import_runtime, open_litert
from vedette.engine.litert_delegate import check_library, elf_machine
from vedette.engine.litert_gpu import refusal, vulkan_fault
from vedette.engine.litert_graph import count_delegated
from vedette.engine.litert_interpreter import describe_tensor
from vedette.engine.litert_ladder import check_options
from vedette.engine.port import EngineRequest, OnFallback
from vedette.errors import BundleError, ConfigError, EngineUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

COMPILER = shutil.which("cc") or shutil.which("gcc")
COMPILE_TIMEOUT_S = 60

# The C layout of a delegate up to where the runtime reads (tensorflow/lite/core/c/common.h).
DELEGATE_C = """
#include <stdlib.h>
#include <stdint.h>
typedef int (*prepare_fn)(void *context, void *delegate);
typedef struct { void *data; prepare_fn prepare; void *copy_from, *copy_to, *free_handle;
                 int64_t flags; void *builder; } delegate_t;
static int refuse(void *context, void *delegate) { (void)context; (void)delegate; return 1; }
static int take_nothing(void *context, void *delegate) { (void)context; (void)delegate; return 0; }
void *tflite_plugin_create_delegate(char **keys, char **values, size_t count, void (*report)(const char *)) {
  (void)keys; (void)values; (void)count; (void)report; (void)refuse; (void)take_nothing;
  #if defined(EMPTY)
  return NULL;
  #elif defined(WORDED)
  report("no device on the bus"); return NULL;
  #else
  delegate_t *made = calloc(1, sizeof *made); made->prepare = PREPARE; return made;
  #endif
}
void tflite_plugin_destroy_delegate(void *delegate) { free(delegate); }
"""

STACKED = (
    "ERROR: [./litert/cc/litert_compiled_model.h:1961]\n└ ERROR: [litert/runtime/compiled_model.cc:1036]"
)


@pytest.fixture(scope="module")
def litert() -> Any:  # noqa: ANN401 - the wheel has no types
    return pytest.importorskip("ai_edge_litert.interpreter")


@pytest.fixture
def request_for_tiny(tmp_path: Path, litert: Any) -> EngineRequest:  # noqa: ANN401, ARG001 - skips where there is none
    path = tmp_path / "tiny.tflite"
    path.write_bytes(tiny_tflite())
    return EngineRequest(
        model_path=path,
        model_sha256="0" * 64,
        accelerators=("edgetpu", "cpu"),
        on_fallback=OnFallback.WARN,
        threads=1,
        cache_dir=None,
        input_shape=(1, SIZE, SIZE, CHANNELS),
    )


def library(folder: Path, *defines: str) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler to build a delegate with")
    source, built = folder / "delegate.c", folder / "libdelegate.so"
    source.write_text(DELEGATE_C, encoding="ascii")
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", *defines, str(source), "-o", str(built)],
        check=True,
        timeout=COMPILE_TIMEOUT_S,
    )
    return built


def with_delegate(request: EngineRequest, path: Path | str) -> EngineRequest:
    return msgspec.structs.replace(request, options={"delegate.edgetpu": str(path)})


@pytest.mark.engine
@pytest.mark.parametrize(
    ("defines", "words"),
    [
        (("-DEMPTY",), "Failed to load delegate"),
        (("-DWORDED",), "no device on the bus"),
        (("-DPREPARE=refuse",), "failed"),
        (("-DPREPARE=take_nothing",), "takes no node"),
    ],
)
def test_a_delegate_that_fails_ends_on_a_fresh_cpu_interpreter(
    defines: tuple[str, ...], words: str, request_for_tiny: EngineRequest, tmp_path: Path
) -> None:
    """Case 8: creation refused with and without a text, graph modification refused, nothing taken over."""
    built = library(tmp_path, *defines)
    engine = open_litert(with_delegate(request_for_tiny, built), lambda _line: None)
    assert (engine.report.effective, engine.report.degraded) == ("cpu", True)
    (skipped,) = engine.report.skipped
    assert str(built) in skipped.reason
    assert words in skipped.reason
    assert engine.run()[0].sum() == pytest.approx(1)


@pytest.mark.engine
def test_a_missing_delegate_is_named(request_for_tiny: EngineRequest, tmp_path: Path) -> None:
    """Case 8: the path does not exist; under `fail` that is the end, with the path in the message."""
    request = with_delegate(request_for_tiny, tmp_path / "libnone.so")
    assert open_litert(request, lambda _line: None).report.skipped[0].reason.endswith("libnone.so is missing")
    with pytest.raises(EngineUnavailableError, match=r"libnone\.so is missing"):
        open_litert(msgspec.structs.replace(request, on_fallback=OnFallback.FAIL), lambda _line: None)


def test_a_delegate_for_another_processor_is_named(tmp_path: Path) -> None:
    """Case 8: an ARM library copied to a PC, or the other way round."""
    path = tmp_path / "libarm.so"
    foreign = 243  # RISC-V: neither of the two this is tested on
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, foreign) + bytes(44))
    with pytest.raises(RungRefusedError, match="built for RISC-V, this Python for"):
        check_library(str(path))


def test_a_file_that_is_no_library_is_named(tmp_path: Path) -> None:
    """A text, or a download page saved under the library's name."""
    path = tmp_path / "lib.so"
    path.write_text("<html>", encoding="ascii")
    with pytest.raises(RungRefusedError, match="not an ELF file"):
        check_library(str(path))


def test_a_library_that_is_no_delegate_is_named() -> None:
    """The C library loads, but has no entry point."""
    with pytest.raises(RungRefusedError, match="lacks tflite_plugin_create_delegate"):
        check_library("libc.so.6")


def test_a_library_that_is_not_installed_is_named() -> None:
    """By name only, as the loader's path would find it."""
    with pytest.raises(RungRefusedError, match=r"libnowhere\.so\.9 is not installed"):
        check_library("libnowhere.so.9")


def test_a_delegate_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 8: the service user may not read it; root may, so the refusal is played."""
    path = tmp_path / "lib.so"
    path.write_bytes(b"")

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(RungRefusedError, match="no permission to read"):
        check_library(str(path))


def test_elf_headers_of_both_byte_orders() -> None:
    """Big-endian boards exist."""
    assert elf_machine(b"\x7fELF\x01\x02" + bytes(12) + b"\x00\x28") == 40
    assert elf_machine(b"\x7fELF\x02\x01" + bytes(12) + b"\xb7\x00") == 183
    assert elf_machine(b"\x7fELF") is None


@pytest.mark.engine
def test_an_accelerator_without_a_library_says_how_to_name_one(request_for_tiny: EngineRequest) -> None:
    """LiteRT has no `hexagon` of its own."""
    request = msgspec.structs.replace(request_for_tiny, accelerators=("hexagon", "cpu"))
    report = open_litert(request, lambda _line: None).report
    assert "delegate.hexagon" in report.skipped[0].reason


@pytest.mark.engine
def test_xnnpack_is_counted_and_can_be_turned_off(request_for_tiny: EngineRequest) -> None:
    """Its numbers differ by a few steps from the built-in kernels, so an owner must be able to choose."""
    request = msgspec.structs.replace(request_for_tiny, accelerators=("cpu",))
    nodes = open_litert(request, lambda _line: None).report.nodes
    assert nodes["xnnpack"] >= 1
    assert sum(nodes.values()) == 3
    plain = msgspec.structs.replace(request, options={"xnnpack": "off"})
    assert open_litert(plain, lambda _line: None).report.nodes == {"cpu": 3}


@pytest.mark.engine
def test_an_open_batch_is_fixed(request_for_tiny: EngineRequest) -> None:
    """Case 4: a symbolic axis becomes the wanted size; another fixed axis does not."""
    request_for_tiny.model_path.write_bytes(tiny_tflite(open_batch=True))
    request = msgspec.structs.replace(
        request_for_tiny, accelerators=("cpu",), input_shape=(2, SIZE, SIZE, CHANNELS)
    )
    engine = open_litert(request, lambda _line: None)
    assert engine.input_array.shape == (2, SIZE, SIZE, CHANNELS)
    assert engine.outputs[0].shape == (2, 4)


@pytest.mark.engine
def test_an_operator_too_new_is_refused_with_the_runtimes_version(request_for_tiny: EngineRequest) -> None:
    """Case 5: the converter is newer than the runtime."""
    request_for_tiny.model_path.write_bytes(tiny_tflite(softmax_version=99))
    request = msgspec.structs.replace(request_for_tiny, accelerators=("cpu",))
    with pytest.raises(BundleError, match=r"ai-edge-litert \d.*SOFTMAX.*version '?99"):
        open_litert(request, lambda _line: None)


def package(error: Exception | None, *, on_construction: bool) -> SimpleNamespace:
    """A runtime's module whose interpreter breaks on construction, or works."""

    def interpreter(**_arguments: object) -> SimpleNamespace:
        if error is not None and on_construction:
            raise error
        return SimpleNamespace(allocate_tensors=lambda: None)

    return SimpleNamespace(
        Interpreter=interpreter,
        load_delegate=None,
        OpResolverType=SimpleNamespace(BUILTIN_WITHOUT_DEFAULT_DELEGATES=3),
    )


def importer(**packages: SimpleNamespace | Exception) -> Any:  # noqa: ANN401 - a fake of import_module
    def import_module(name: str) -> SimpleNamespace:
        found = packages.get(name.removesuffix(".interpreter"))
        if found is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".", maxsplit=1)[0])
        if isinstance(found, Exception):
            raise found
        return found

    return import_module


def test_no_runtime_names_both_extras() -> None:
    """What to type stands in the message."""
    with pytest.raises(
        EngineUnavailableError, match=r"ai-edge-litert is not installed; tflite-runtime is not"
    ) as caught:
        import_runtime(importer())
    assert caught.value.cure is not None
    assert "vedette[litert]" in caught.value.cure


@pytest.mark.parametrize(
    "error",
    [
        SystemError("<built-in CreateWrapper> returned NULL"),
        AttributeError("_ARRAY_API not found"),
        ImportError("x"),
    ],
)
@pytest.mark.parametrize("on_construction", [True, False])
def test_an_old_wheel_beside_numpy_2_names_both_versions(error: Exception, on_construction: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """Case 9: it breaks at import, or imports fine and breaks on construction."""
    broken = package(error, on_construction=True) if on_construction else error
    with pytest.raises(EngineUnavailableError) as caught:
        import_runtime(importer(tflite_runtime=broken))
    assert f"NumPy {np.__version__} (it accepts NumPy >=1.19,<2" in caught.value.cause
    assert "tflite-runtime" in caught.value.cause


def test_a_broken_package_does_not_hide_a_good_one() -> None:
    """Case 9: the newer is broken, the older serves."""
    runtime = import_runtime(
        importer(ai_edge_litert=AttributeError("x"), tflite_runtime=package(None, on_construction=True))
    )
    assert runtime.name == "tflite-runtime"
    assert runtime.compiled_model is None


@pytest.mark.engine
def test_the_probe_model_is_one(litert: Any) -> None:  # noqa: ANN401 - the wheel has no types
    """A real interpreter runs the bytes that probe for broken wheels."""
    interpreter = litert.Interpreter(model_content=PROBE_MODEL, num_threads=1)
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.get_input_details()[0]["name"] == "x"


def operator(name: str, inputs: list[int], outputs: list[int]) -> dict[str, Any]:
    return {"op_name": name, "inputs": inputs, "outputs": outputs}


def test_delegated_nodes_are_those_behind_the_delegates_outputs() -> None:
    """Two partitions with a node between them; constants and the model's input have no maker."""
    graph = [
        operator("PAD", [0, 9], [1]),
        operator("CONV_2D", [1, 8], [2]),
        operator("TRANSPOSE", [2], [3]),
        operator("RESHAPE", [3], [4]),
        operator("FULLY_CONNECTED", [4, 7], [5]),
        operator("SOFTMAX", [5], [6]),
    ]
    assert count_delegated(graph) == (0, 6)
    delegates = [operator("DELEGATE", [0, 8, 9], [2]), operator("DELEGATE", [3, 7], [5])]
    assert count_delegated(graph + delegates) == (4, 6)


def test_a_quantised_tensor_keeps_its_own_parameters() -> None:
    """Case 10: scale 0 stays 0, it means "not quantised"."""
    details = {
        "name": "x",
        "shape": np.array([1, 4]),
        "dtype": np.int8,
        "quantization": (np.float32(0.5), -128),
    }
    assert describe_tensor(details).zero_point == -128
    assert describe_tensor(details).scale == 0.5
    plain = details | {"dtype": np.float32, "quantization": (0.0, 0)}
    assert describe_tensor(plain).scale == 0.0
    with pytest.raises(BundleError, match="no numeric type"):
        describe_tensor(details | {"dtype": np.bytes_})


@pytest.mark.parametrize(
    "options", [{"xnnpak": "off"}, {"xnnpack": "no"}, {"gpu.enforce_f32": "1"}, {"delegate": "x"}]
)
def test_a_mistyped_option_is_not_silence(options: dict[str, str]) -> None:
    """Key or value."""
    with pytest.raises(ConfigError):
        check_options(options)


@pytest.mark.parametrize(
    ("text", "fault", "said"),
    [
        (STACKED, "Vulkan's loader does not load", "no GPU can be used: Vulkan's loader does not load"),
        (STACKED, "", "no GPU is found, or it does not take the model; `vulkaninfo --summary` lists what"),
        (
            "ERROR: [a/b.cc:7]\n└ op RESIZE is not there",
            "",
            "the GPU does not take the model: op RESIZE is not",
        ),
        ("op RESIZE is not there", "no driver", "no GPU can be used: no driver (op RESIZE is not there)"),
    ],
)
def test_a_gpu_s_refusal_is_a_reason_and_no_place_in_somebody_s_source(
    text: str, fault: str, said: str
) -> None:
    """What LiteRT 2.1 gives where there is no GPU is a stack of file names."""
    spoken = refusal(text, fault)
    assert spoken.startswith(said)
    assert ".cc:" not in spoken
    assert "└" not in spoken


def test_a_box_without_vulkan_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loader is looked for by name; where it is, nothing is claimed."""
    monkeypatch.setattr("vedette.engine.litert_gpu.VULKAN_LOADER", "libvulkan-not-here.so.1")
    assert "libvulkan-not-here.so.1" in vulkan_fault()
    monkeypatch.setattr("vedette.engine.litert_gpu.VULKAN_LOADER", "libc.so.6")
    assert vulkan_fault() == ""
