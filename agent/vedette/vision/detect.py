"""Detection: decode, suppress, and map back to the upright original frame. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from vedette.errors import BundleError
from vedette.vision.anchors import AnchoredSsd
from vedette.vision.answers import SCORE_DECIMALS, Answer, ClassNames
from vedette.vision.layouts import EndToEnd, Yolov5, Yolov8
from vedette.vision.nms import suppress
from vedette.vision.ranking import best_first
from vedette.wire.bundle import OutputLayout
from vedette.wire.messages import Detection

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from vedette.vision.candidates import Candidates, Decoder
    from vedette.vision.geometry import Placement
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import ModelSpec

    _Points = tuple[tuple[float, float], ...]

_DECODERS: dict[OutputLayout, Callable[[ModelSpec, ClassNames, tuple[TensorInfo, ...]], Decoder]] = {
    OutputLayout.YOLOV5: Yolov5,
    OutputLayout.YOLOV8: Yolov8,
    OutputLayout.YOLOV8_TRANSPOSED: Yolov8,
    OutputLayout.END_TO_END: EndToEnd,
    OutputLayout.SSD_ANCHORS: AnchoredSsd,
}
# A hundredth of a pixel is finer than any box is known.
_PIXEL_DECIMALS = 2


class Detector:
    """Reads any of the detection layouts.

    Raises:
        BundleError: The layout is none of detection, or contradicts the model's outputs.
    """

    def __init__(self, spec: ModelSpec, names: ClassNames, outputs: tuple[TensorInfo, ...]) -> None:
        layout = spec.output.layout
        if layout not in _DECODERS:
            raise BundleError(
                f"output.layout {layout.value} is no detection layout",
                cure=f"set it to one of {', '.join(known.value for known in _DECODERS)}, or correct the task",
            )
        self._rules = spec.output.nms
        if not 0 <= self._rules.iou <= 1 or min(self._rules.max_candidates, self._rules.max_detections) < 1:
            raise BundleError("output.nms: iou must be 0..1, max_candidates and max_detections 1 or more")
        if not 0 <= spec.output.score_threshold <= 1:
            raise BundleError(f"output.score_threshold is {spec.output.score_threshold}; it must be 0..1")
        self._names = names
        self._decoder = _DECODERS[layout](spec, names, outputs)

    def answer(self, outputs: tuple[NDArray[Any], ...], placement: Placement) -> Answer:
        """See `Postprocessor`; what lies wholly in the padding is no detection."""
        found = self._decoder.decode(outputs)
        keep = self._kept(found)
        classes, scores = found.classes[keep].tolist(), found.scores[keep].tolist()
        boxes = placement.to_frame(found.boxes[keep]).round(_PIXEL_DECIMALS).tolist()
        points = self._points(found, keep, placement)
        detections = []
        for (x1, y1, x2, y2), index, score, keypoints in zip(boxes, classes, scores, points, strict=True):
            if x2 <= x1 or y2 <= y1:
                continue
            detections.append(
                Detection(
                    label=self._names[index],
                    index=index,
                    score=round(score, SCORE_DECIMALS),
                    box=(x1, y1, x2, y2),
                    keypoints=keypoints,
                )
            )
        return Answer(detections=tuple(detections), confidence=detections[0].score if detections else 0.0)

    @staticmethod
    def _points(found: Candidates, keep: NDArray[np.intp], placement: Placement) -> list[_Points | UnsetType]:
        """Key points of each detection in frame pixels, or as many times nothing."""
        if found.keypoints is None:
            return [UNSET] * len(keep)
        mapped = placement.to_frame(found.keypoints[keep]).round(_PIXEL_DECIMALS)
        return [tuple(map(tuple, points)) for points in mapped.tolist()]

    def _kept(self, found: Candidates) -> NDArray[np.intp]:
        if self._decoder.suppressed:
            return best_first(found.scores, self._rules.max_detections)
        return suppress(found.boxes, found.scores, found.classes, self._rules)
