"""GPU truth, on a software Vulkan device where there is one.

Needs Mesa 25 or newer (Debian 12: `mesa-vulkan-drivers` from bookworm-backports) and the Vulkan loader; name
the driver in VK_ICD_FILENAMES if it is not in the usual folder. Each check runs in a child: it may crash.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.stubs.tiny_models import tiny_onnx, tiny_tflite

CHILD_TIMEOUT_S = 90
ICD_FOLDERS = (Path("/usr/share/vulkan/icd.d"), Path("/usr/local/share/vulkan/icd.d"))
CHECK = """
import json, sys
from pathlib import Path
import numpy as np
from tests.stubs.tiny_models import SIZE, reference
from vedette.engine.port import EngineRequest, OnFallback
from vedette.engine.registry import resolve

name, model, *ladder = sys.argv[1:]
shape = (1, SIZE, SIZE, 3) if name == "litert" else (1, 3, SIZE, SIZE)
options = {"gpu.enforce_f32": "true"} if name == "litert" else {}
request = EngineRequest(Path(model), "0" * 64, tuple(ladder), OnFallback.FAIL, 1, None, shape, options)
engine = resolve(name)(request, lambda line: print(line, file=sys.stderr))
colour = np.array([0.1, 0.7, 0.3], np.float32)
nhwc = np.broadcast_to(colour, (1, SIZE, SIZE, 3))
engine.input_array[...] = nhwc if name == "litert" else nhwc.transpose(0, 3, 1, 2)
first = engine.run()[0].copy()
second = engine.run()[0]
worst = float(np.abs(first - reference(nhwc[0])).max())
report = engine.report
print(json.dumps({"effective": report.effective, "evidence": report.evidence, "degraded": report.degraded,
                  "nodes": report.nodes, "worst": worst, "same": bool((first == second).all())}))
sys.stdout.flush()
import os
os._exit(0)  # the driver's own exit handlers may crash, which is not what is asked here
"""


def find_icd() -> str | None:
    named = os.environ.get("VK_ICD_FILENAMES")
    if named:
        return named
    return next((str(path) for folder in ICD_FOLDERS for path in sorted(folder.glob("lvp_icd*.json"))), None)


def check_on_gpu(tmp_path: Path, name: str, content: bytes, *ladder: str) -> dict[str, object]:
    """Run the check in a child; what it printed as JSON."""
    icd = find_icd()
    if icd is None:
        pytest.skip("no Vulkan driver: set VK_ICD_FILENAMES, or install mesa-vulkan-drivers 25 or newer")
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError as error:
        pytest.skip(f"no Vulkan loader (package libvulkan1): {error}")
    model = tmp_path / "model"
    model.write_bytes(content)
    repository = Path(__file__).parents[2]
    environment = os.environ | {
        "VK_ICD_FILENAMES": icd,
        "LP_NATIVE_VECTOR_WIDTH": "128",
        "MESA_SHADER_CACHE_DIR": str(tmp_path / "shaders"),
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER": "1",
        "PYTHONPATH": os.pathsep.join((str(repository), str(repository / "agent"))),
    }
    done = subprocess.run(
        [sys.executable, "-c", CHECK, name, str(model), *ladder],
        env=environment,
        capture_output=True,
        text=True,
        timeout=CHILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"the child ended with {done.returncode}:\n{done.stderr[-4000:]}"
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.gpu
def test_litert_runs_on_the_gpu_and_can_prove_it(tmp_path: Path) -> None:
    """CompiledModel asked for the GPU alone: device buffers, and the CPU's answers within float accuracy."""
    if importlib.util.find_spec("ai_edge_litert") is None:
        pytest.skip("ai-edge-litert is not installed")
    answer = check_on_gpu(tmp_path, "litert", tiny_tflite(), "gpu")
    assert answer["effective"] == "gpu"
    assert "device memory" in str(answer["evidence"])
    assert answer["degraded"] is False
    assert answer["same"] is True
    assert float(str(answer["worst"])) < 1e-4


@pytest.mark.gpu
def test_onnx_runs_on_the_webgpu_plugin_and_counts_its_nodes(tmp_path: Path) -> None:
    """The plug-in provider beside an ordinary onnxruntime: nodes placed there, told by the runtime."""
    if importlib.util.find_spec("onnxruntime_ep_webgpu") is None:
        pytest.skip("onnxruntime-ep-webgpu is not installed")
    answer = check_on_gpu(tmp_path, "onnx", tiny_onnx(), "webgpu")
    assert answer["effective"] == "webgpu"
    nodes = answer["nodes"]
    assert isinstance(nodes, dict)
    assert nodes["webgpu"] >= 1
    assert answer["same"] is True
    assert float(str(answer["worst"])) < 1e-3
