"""SSD boxes relative to a regular anchor grid, as MediaPipe's BlazeFace gives them. Pure.

After MediaPipe's SsdAnchorsCalculator (fixed anchor size) and TensorsToDetectionsCalculator: offsets are
relative to the anchor's centre, the anchor is the whole input, and key points follow the four box values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.errors import BundleError
from vedette.vision.candidates import Candidates, ScoreReader, corners_of
from vedette.vision.outputs import BoundOutput, bind_outputs, matrix_shape
from vedette.wire.bundle import Activation

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.answers import ClassNames
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import ModelSpec, SsdAnchors


def anchor_centres(size: tuple[int, int], grid: SsdAnchors) -> NDArray[np.float32]:
    """Centres (n, 2) in model pixels: stride by stride, row by row, all of one cell together."""
    width, height = size
    layers = []
    for stride, per_cell in zip(grid.strides, grid.per_cell, strict=True):
        columns, rows = -(-width // stride), -(-height // stride)
        x = (np.arange(columns) + 0.5) * (width / columns)
        y = (np.arange(rows) + 0.5) * (height / rows)
        cells = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
        layers.append(cells.repeat(per_cell, axis=0))
    return np.concatenate(layers).astype(np.float32)


class AnchoredSsd:
    """Boxes [1, N, 4 + 2 x keypoints] and scores [1, N, C].

    Raises:
        BundleError: The anchors are missing, or tensors and anchors do not fit together.
    """

    suppressed = False

    def __init__(self, spec: ModelSpec, names: ClassNames, outputs: tuple[TensorInfo, ...]) -> None:
        grid = _checked_anchors(spec)
        self._centres = anchor_centres(spec.input.size, grid)
        self._keypoints = grid.keypoints
        self._columns = 4 + 2 * grid.keypoints
        self._boxes, self._scores = self._boxes_then_scores(spec, names, outputs)
        self._reader = ScoreReader(self._scores, spec.output.activation, grid.score_clip)
        self._threshold = spec.output.score_threshold
        width, height = spec.input.size
        self._scale = np.array([width, height], np.float32) / np.float32(grid.box_scale)
        self._check_shapes(spec, names)

    def _boxes_then_scores(
        self, spec: ModelSpec, names: ClassNames, outputs: tuple[TensorInfo, ...]
    ) -> tuple[BoundOutput, BoundOutput]:
        """Order the two tensors by name, or by shape where only one order is possible."""
        bound = bind_outputs(spec.output, outputs)
        if len(bound) == 2:
            first, second = bound
            if spec.output.names:
                return first, second
            straight = self._could_be(first, second, names)
            if straight != self._could_be(second, first, names):
                return (first, second) if straight else (second, first)
        found = [(output.info.name, output.info.shape) for output in bound]
        raise BundleError(
            f"cannot tell boxes from scores among {found} "
            f"{len(self._centres)} anchors with {self._columns} box values",
            cure="give output.names: the tensor of boxes, then the tensor of scores",
        )

    def _could_be(self, boxes: BoundOutput, scores: BoundOutput, names: ClassNames) -> bool:
        classes = matrix_shape(scores)[1]
        return matrix_shape(boxes)[1] == self._columns and names.count in {None, classes}

    def _check_shapes(self, spec: ModelSpec, names: ClassNames) -> None:
        anchors = len(self._centres)
        for output in (self._boxes, self._scores):
            rows, _ = matrix_shape(output)
            if rows not in {0, anchors}:
                raise BundleError(
                    f"output.anchors make {anchors} anchors for a {spec.input.size} input, "
                    f"the output {output.info.name!r} of shape {output.info.shape} has {rows}",
                    cure="correct output.anchors.strides and per_cell, or input.size",
                )
        _, columns = matrix_shape(self._boxes)
        if columns not in {0, self._columns}:
            raise BundleError(
                f"{self._keypoints} key points need {self._columns} box values, "
                f"the output {self._boxes.info.name!r} of shape {self._boxes.info.shape} has {columns}",
                cure="correct output.anchors.keypoints, or the order of output.names",
            )
        _, classes = matrix_shape(self._scores)
        if classes:
            names.check_count(classes, self._scores.info.name)
        if classes == 1 and spec.output.activation is Activation.SOFTMAX:
            raise BundleError(
                "the softmax of a single class is always 1", cure="set output.activation to sigmoid"
            )

    def decode(self, outputs: tuple[NDArray[Any], ...]) -> Candidates:
        """See `Decoder`."""
        stored_boxes = self._boxes.take(outputs)
        stored_scores = self._scores.take(outputs)
        classes = stored_scores.reshape(stored_scores.shape[-2:])
        scores = self._reader.best(classes, 1)
        likely = np.flatnonzero(scores >= self._threshold)
        real = self._boxes.real(stored_boxes.reshape(stored_boxes.shape[-2:])[likely])
        pairs = real.reshape(len(likely), self._columns // 2, 2) * self._scale
        centres = self._centres[likely]
        boxes = np.concatenate([pairs[:, 0] + centres, pairs[:, 1]], axis=1)
        keypoints = pairs[:, 2:] + centres[:, None, :] if self._keypoints else None
        return Candidates(corners_of(boxes), scores[likely], classes[likely].argmax(axis=1), keypoints)


def _checked_anchors(spec: ModelSpec) -> SsdAnchors:
    grid = spec.output.anchors
    if grid is None:
        raise BundleError(
            "layout ssd-anchors needs output.anchors", cure="add strides, per_cell and box_scale"
        )
    if spec.output.normalised_boxes:
        raise BundleError(
            "layout ssd-anchors has no normalised_boxes: output.anchors.box_scale says the unit of its boxes",
            cure="remove output.normalised_boxes",
        )
    if not grid.strides or len(grid.strides) != len(grid.per_cell) or min(*grid.strides, *grid.per_cell) < 1:
        raise BundleError(
            f"output.anchors has strides {grid.strides} and per_cell {grid.per_cell}",
            cure="give one per_cell for each stride, all above 0",
        )
    if not grid.box_scale > 0 or not grid.score_clip > 0 or grid.keypoints < 0:
        raise BundleError("output.anchors: box_scale and score_clip must be above 0, keypoints 0 or more")
    return grid
