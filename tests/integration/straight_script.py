"""What somebody writes who has pictures, OpenCV and an engine: the truth that the agent is held to.

Nothing here is Vedette's. Each model is read as its authors describe it, with the numbers written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Picture = NDArray[np.uint8]

MODELS = Path(__file__).parents[2] / "models"
FACE_SIDE = 128
FACE_THRESHOLD = 0.5
FACE_IOU = 0.3


@dataclass(frozen=True)
class Face:
    """One face; the box is x1, y1, x2, y2 in pixels of the picture."""

    score: float
    box: tuple[float, float, float, float]


def central_square(picture: Picture) -> Picture:
    """The largest central square; its corner is on even pixels, as video encoders cut."""
    height, width = picture.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    top, left = top - top % 2, left - left % 2
    return picture[top : top + side, left : left + side]


class LiteRt:
    """A TFLite file: one RGB NHWC input, real outputs in the file's order."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_path=str(path), num_threads=1)
        self._interpreter.allocate_tensors()
        self._input = self._interpreter.get_input_details()[0]
        self._outputs = self._interpreter.get_output_details()
        self.names = [output["name"] for output in self._outputs]

    def __call__(self, real: NDArray[Any]) -> list[NDArray[Any]]:
        """Run on real values (height, width, 3)."""
        scale, zero_point = self._input["quantization"]
        if scale:
            limits = np.iinfo(self._input["dtype"])
            real = np.clip(np.rint(real / scale) + zero_point, limits.min, limits.max)
        self._interpreter.set_tensor(self._input["index"], real.astype(self._input["dtype"])[None])
        self._interpreter.invoke()
        return [self._real(output) for output in self._outputs]

    def _real(self, output: dict[str, Any]) -> NDArray[Any]:
        stored: NDArray[Any] = self._interpreter.get_tensor(output["index"])
        scale, zero_point = output["quantization"]
        return (stored.astype(np.float64) - zero_point) * scale if scale else stored


class Onnx:
    """An ONNX file: one RGB NCHW float input, its first output."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def __call__(self, real: NDArray[Any]) -> list[NDArray[Any]]:
        """Run on real values (height, width, 3)."""
        tensor = np.ascontiguousarray(real.transpose(2, 0, 1), np.float32)[None]
        return list(self._session.run(None, {self._input: tensor}))


def _square_rgb(picture: Picture, side: int, interpolation: int) -> Picture:
    small = cv2.resize(central_square(picture), (side, side), interpolation=interpolation)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_BGR2RGB))


def _imagenet() -> Callable[[Picture], int]:
    run = LiteRt(MODELS / "imagenet" / "effl0_int8.tflite")
    return lambda picture: int(np.argmax(run(_square_rgb(picture, 224, cv2.INTER_LINEAR))[0]))


def _imagenet_onnx() -> Callable[[Picture], int]:
    run = Onnx(MODELS / "imagenet-onnx" / "effl0_int8.onnx")

    def classify(picture: Picture) -> int:
        pixels = _square_rgb(picture, 224, cv2.INTER_LINEAR).astype(np.float32)
        return int(np.argmax(run((pixels - 127) / 128)[0]))

    return classify


def _cifar() -> Callable[[Picture], int]:
    run = LiteRt(MODELS / "cifar" / "cifar_resnet8_int8.tflite")
    return lambda picture: int(np.argmax(run(_square_rgb(picture, 32, cv2.INTER_AREA))[0]))


def _person() -> Callable[[Picture], int]:
    run = LiteRt(MODELS / "person" / "person_vww_int8.tflite")
    return lambda picture: int(np.argmax(run(_square_rgb(picture, 96, cv2.INTER_LINEAR))[0]))


CLASSIFIERS: dict[str, Callable[[], Callable[[Picture], int]]] = {
    "imagenet": _imagenet,
    "imagenet-onnx": _imagenet_onnx,
    "cifar": _cifar,
    "person": _person,
}


def face_detector() -> Callable[[Picture], list[Face]]:
    """BlazeFace, short range: letterbox to 128, anchors on grids of 16 (2 a cell) and 8 (6 a cell)."""
    run = LiteRt(MODELS / "face" / "face_blazeface_short_f32.tflite")
    anchors = [
        ((column + 0.5) / cells, (row + 0.5) / cells)
        for cells, copies in ((16, 2), (8, 6))
        for row in range(cells)
        for column in range(cells)
        for _ in range(copies)
    ]

    def detect(picture: Picture) -> list[Face]:
        height, width = picture.shape[:2]
        scale = min(FACE_SIDE / width, FACE_SIDE / height)
        inner_width, inner_height = round(width * scale), round(height * scale)
        left, top = (FACE_SIDE - inner_width) // 2, (FACE_SIDE - inner_height) // 2
        square = np.zeros((FACE_SIDE, FACE_SIDE, 3), np.uint8)
        square[top : top + inner_height, left : left + inner_width] = cv2.resize(
            picture, (inner_width, inner_height)
        )
        rgb = square[:, :, ::-1].astype(np.float32)
        outputs = dict(zip(run.names, run(rgb / 127.5 - 1), strict=True))
        offsets, logits = outputs["regressors"][0], outputs["classificators"][0, :, 0]
        faces = []
        for index in np.flatnonzero(logits >= np.log(FACE_THRESHOLD / (1 - FACE_THRESHOLD))):
            anchor_x, anchor_y = anchors[index]
            x, y, box_width, box_height = (float(value) for value in offsets[index, :4])
            x, y = x + anchor_x * FACE_SIDE, y + anchor_y * FACE_SIDE
            box = (x - box_width / 2, y - box_height / 2, x + box_width / 2, y + box_height / 2)
            faces.append(Face(float(1 / (1 + np.exp(-float(logits[index])))), box))
        ways = (left, top, width / inner_width, height / inner_height)
        return [Face(face.score, _back(face.box, ways, (width, height))) for face in _without_doubles(faces)]

    return detect


def _back(
    box: tuple[float, float, float, float], ways: tuple[int, int, float, float], size: tuple[int, int]
) -> tuple[float, float, float, float]:
    left, top, scale_x, scale_y = ways
    x1, x2 = (min(max((x - left) * scale_x, 0.0), size[0]) for x in (box[0], box[2]))
    y1, y2 = (min(max((y - top) * scale_y, 0.0), size[1]) for y in (box[1], box[3]))
    return x1, y1, x2, y2


def _without_doubles(faces: list[Face]) -> list[Face]:
    kept: list[Face] = []
    for face in sorted(faces, key=lambda face: -face.score):
        if all(overlap(face.box, other.box) <= FACE_IOU for other in kept):
            kept.append(face)
    return kept


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> float:
    """Intersection over union of two boxes x1, y1, x2, y2."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared)
