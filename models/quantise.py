"""Quantise the large classifier to int8 and measure what that costs.

Static QDQ, per channel, reduced range (weights in 7 bits): x86 without VNNI saturates otherwise. The first
convolutions stay in floats: they hold few weights and cost much of the agreement when they are quantised.

    python models/quantise.py --model effl2_f32.onnx --clips DIR --pictures DIR --out effl2_int8.onnx
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import pictures
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SIDE = 260
FLOAT_CONVOLUTIONS = 7
# ImageNet classes that are what a CIFAR-10 label names; of deer there are only antelopes.
SUPERCLASSES = {
    "airplane": (404, 895),
    "automobile": (436, 468, 511, 609, 627, 656, 661, 751, 817),
    "bird": (*range(7, 25), *range(80, 101), *range(127, 147)),
    "cat": tuple(range(281, 286)),
    "deer": (351, 352, 353),
    "dog": tuple(range(151, 269)),
    "frog": (30, 31, 32),
    "horse": (339, 340),
    "ship": (403, 484, 510, 554, 576, 625, 628, 724, 780, 814, 833, 871, 914),
    "truck": (555, 569, 654, 675, 717, 734, 864, 867),
}


def tensor(picture: NDArray[np.uint8], side: int = SIDE) -> NDArray[np.float32]:
    """EfficientNet-Lite's input: RGB, NCHW, (x - 127) / 128."""
    pixels = pictures.resized(picture, side, side).astype(np.float32)
    return ((pixels - 127) / 128).transpose(2, 0, 1)[np.newaxis]


class _Reader(CalibrationDataReader):  # type: ignore[misc] - the vendor package has no types
    """Hands the calibrator one picture at a time."""

    def __init__(self, name: str, frames: Iterable[NDArray[np.uint8]]) -> None:
        self._feeds = ({name: tensor(frame)} for frame in frames)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        return next(self._feeds, None)


def session(path: Path) -> onnxruntime.InferenceSession:
    """A CPU session that does not spin."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def quantise(model: Path, frames: list[NDArray[np.uint8]], out: Path) -> None:
    """Write the int8 model; the same frames give the same bytes."""
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
        graph = onnx.load(str(prepared), load_external_data=False).graph
        name = graph.input[0].name
        convolutions = [node.name for node in graph.node if node.op_type == "Conv"]
        quantize_static(
            str(prepared),
            str(out),
            _Reader(name, frames),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=convolutions[:FLOAT_CONVOLUTIONS],
        )


def agreement(reference: Path, other: Path, frames: list[NDArray[np.uint8]]) -> dict[str, float]:
    """Compare two classifiers of logits on the same pictures.

    Returns:
        Shares of equal top-1, of reference top-1 within the other's top-5, of equal top-1 among the pictures
        of which the reference is at least half sure, and the mean absolute difference of the top probability.
    """
    left, right = session(reference), session(other)
    equal, within, sure, sure_equal, shift = 0, 0, 0, 0, 0.0
    for frame in frames:
        feed = {left.get_inputs()[0].name: tensor(frame)}
        first, second = left.run(None, feed)[0][0], right.run(None, feed)[0][0]
        top = int(first.argmax())
        same = top == int(second.argmax())
        equal += same
        within += top in np.argsort(second)[-5:]
        confidence = float(softmax(first)[top])
        sure += confidence >= 0.5
        sure_equal += same and confidence >= 0.5
        shift += abs(confidence - float(softmax(second)[top]))
    count = len(frames)
    return {
        "pictures": count,
        "top1": equal / count,
        "top1_in_top5": within / count,
        "sure_pictures": sure,
        "top1_when_sure": sure_equal / max(sure, 1),
        "mean_confidence_shift": shift / count,
    }


def superclass_accuracy(model: Path, labelled: list[tuple[NDArray[np.uint8], str]]) -> float:
    """Share of CIFAR-10 pictures whose best class among all groups lies in the group of their label."""
    runtime = session(model)
    right = 0
    for frame, label in labelled:
        logits = runtime.run(None, {runtime.get_inputs()[0].name: tensor(frame)})[0][0]
        best = max(SUPERCLASSES, key=lambda name: max(logits[list(SUPERCLASSES[name])]))
        right += best == label
    return right / len(labelled)


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Probabilities of one row of logits."""
    shifted = np.exp(logits - logits.max())
    return np.asarray(shifted / shifted.sum(), np.float32)


def main() -> None:
    """Quantise, then measure on pictures that calibration has not seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option in ("--model", "--clips", "--pictures", "--out"):
        parser.add_argument(option, type=Path, required=True)
    given = parser.parse_args()
    seen = pictures.mixture(given.clips, given.pictures, offset=0, cifar_count=100, crops=8)
    quantise(given.model, seen, given.out)
    unseen = pictures.mixture(given.clips, given.pictures, offset=1, cifar_count=260, crops=14)
    print(f"calibrated on {len(seen)} pictures")
    for key, value in agreement(given.model, given.out, unseen).items():
        print(f"{key}: {value:.4g}")
    labelled = pictures.cifar(given.clips, 2500, 500)
    for model in (given.model, given.out):
        share = superclass_accuracy(model, labelled)
        print(f"{model.name}: {share:.4g} of {len(labelled)} CIFAR-10 pictures right")


if __name__ == "__main__":
    main()
