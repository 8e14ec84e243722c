"""Real ONNX models of a scene for updates: a good one, its fine-tune, a slow, a constant and a deadly one.

The graph is a small convolutional network with fixed random weights; its scores move with the picture. It
takes a few milliseconds, so that a model of three times the layers is three times as slow, measurably.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import yaml

from vedette.bundle.folder import seal
from vedette.engine.onnx import open_onnx

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from vedette.engine.port import Engine, EngineRequest, Progress

NAME = "scene"
SIZE = 64
WIDTH = 64
LAYERS = 4
CLASSES = 4
DEADLY = "crash_on.txt"
PLUGINS = {"onnx": "tests.stubs.scene_models:open_mortal"}


def scene_bundle(
    root: Path,
    version: str,
    *,
    layers: int = LAYERS,
    tuned: float = 0.0,
    constant: bool = False,
    crash_on: int | None = None,
) -> Path:
    """A sealed bundle without golden inputs.

    `tuned` is the share of weights that differ from those of other versions; `constant` answers the same to
    every picture; `crash_on` is the run of an engine that kills its process.
    """
    root.mkdir(parents=True)
    content = scene_onnx(layers=layers, tuned=tuned, constant=constant)
    (root / "scene.onnx").write_bytes(content)
    (root / "labels.txt").write_text("road\nwater\nwood\nsky\n", encoding="utf-8")
    if crash_on is not None:
        (root / DEADLY).write_text(str(crash_on), encoding="utf-8")
    spec = {
        "schema": 1,
        "name": NAME,
        "version": version,
        "task": "classify",
        "engine": "onnx",
        "file": "scene.onnx",
        "input": {"size": [SIZE, SIZE], "layout": "nchw", "range": [0, 1]},
        "output": {"layout": "scores", "activation": "given", "labels": {"count": CLASSES}},
        "sidecars": [] if crash_on is None else [DEADLY],
        "golden": None,
    }
    (root / "model.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    seal(root)
    return root


def scene_onnx(*, layers: int = LAYERS, tuned: float = 0.0, constant: bool = False) -> bytes:
    """Float32 NCHW `picture` [1, 3, SIZE, SIZE] to `scores` [1, CLASSES]."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(7)
    shapes = [(WIDTH, 3, 3, 3), *[(WIDTH, WIDTH, 3, 3)] * layers]
    weights = {
        f"w{index}": _weights(rng, shape, (2 / np.prod(shape[1:])) ** 0.5, tuned)
        for index, shape in enumerate(shapes)
    }
    head = _weights(rng, (CLASSES, WIDTH), 0.0 if constant else 1.0, tuned)
    nodes, flow = [], "picture"
    for index, name in enumerate(weights):
        stride = 2 if index == 0 else 1
        nodes += [
            helper.make_node("Conv", [flow, name], [f"c{index}"], pads=[1] * 4, strides=[stride] * 2),
            helper.make_node("Relu", [f"c{index}"], [f"r{index}"]),
        ]
        flow = f"r{index}"
    nodes += [
        helper.make_node("ReduceMean", [flow], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Gemm", ["mean", "head"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["scores"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        NAME,
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in {**weights, "head": head}.items()],
    )
    model: bytes = helper.make_model(
        graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    ).SerializeToString()
    return model


def _weights(
    rng: np.random.Generator, shape: tuple[int, ...], scale: float, tuned: float
) -> NDArray[np.float32]:
    """The same for every model of one seed, but for the share that was tuned."""
    plain = rng.normal(0, scale, shape)
    chosen = rng.random(shape) < tuned
    return np.where(chosen, plain * 1.01, plain).astype(np.float32)


class MortalEngine:
    """ONNX Runtime, and a write to address 0 on the run that the bundle names."""

    def __init__(self, engine: Engine, crash_on: int) -> None:
        self._engine = engine
        self._left = crash_on
        self.inputs, self.outputs = engine.inputs, engine.outputs
        self.report, self.input_array = engine.report, engine.input_array

    def run(self) -> tuple[NDArray[np.generic], ...]:
        """See Engine."""
        self._left -= 1
        if self._left == 0:
            ctypes.memset(0, 0, 1)
        return self._engine.run()

    def close(self) -> None:
        """See Engine."""
        self._engine.close()


def open_mortal(request: EngineRequest, progress: Progress) -> Engine:
    """The plug-in: the real engine, mortal where the bundle says so."""
    engine = open_onnx(request, progress)
    deadly = request.model_path.parent / DEADLY
    return MortalEngine(engine, int(deadly.read_text(encoding="utf-8"))) if deadly.exists() else engine
