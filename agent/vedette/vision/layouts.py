"""The one-tensor detection layouts; which one it is stands in the manifest (casebook 22). Pure.

`yolov5` and `yolov8` follow the exports of those two projects; `end-to-end` is what models with a built-in
selection give (YOLOv10 and later, DETR exports).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.errors import BundleError
from vedette.vision.candidates import Candidates, ScoreReader, corners_of
from vedette.vision.outputs import BoundOutput, bad_output, bind_outputs, matrix_shape, only_output
from vedette.wire.bundle import Activation, OutputLayout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.answers import ClassNames
    from vedette.vision.tensors import TensorInfo
    from vedette.wire.bundle import ModelSpec

# Columns before the class scores.
_BOX_COLUMNS = {OutputLayout.YOLOV5: 5, OutputLayout.YOLOV8: 4, OutputLayout.YOLOV8_TRANSPOSED: 4}
_END_TO_END_COLUMNS = 6
# Strides of the dense heads that must not be read as end-to-end.
_DENSE_STRIDES = (8, 16, 32)


class _OneTensor(ABC):
    """What the three layouts share: one tensor, a threshold, and the scale of the boxes."""

    suppressed = False

    def __init__(self, spec: ModelSpec, names: ClassNames, outputs: tuple[TensorInfo, ...]) -> None:
        self._spec = spec
        self._layout = spec.output.layout
        self._output = only_output(bind_outputs(spec.output, outputs), self._layout.value)
        self._threshold = spec.output.score_threshold
        self._reader = ScoreReader(self._output, spec.output.activation)
        width, height = spec.input.size if spec.output.normalised_boxes else (1, 1)
        self._unit = np.array([width, height, width, height], np.float32)
        rows, columns = matrix_shape(self._output)
        self._check_shape(rows, columns, names)

    @abstractmethod
    def _check_shape(self, rows: int, columns: int, names: ClassNames) -> None:
        """Refuse a tensor that the layout cannot mean; axes of 0 are not known yet."""

    def _matrix(self, outputs: tuple[NDArray[Any], ...]) -> NDArray[Any]:
        stored = self._output.take(outputs)
        return stored.reshape(stored.shape[-2:])

    def _check_classes(self, names: ClassNames, channels: int, candidates: int) -> None:
        """Compare the channel axis with the declared classes, or failing that with the other axis."""
        info = self._output.info
        leading = _BOX_COLUMNS[self._layout]
        if channels == 0:
            return
        if channels <= leading:
            raise BundleError(
                f"layout {self._layout.value} needs more than {leading} channels, the output {info.name!r} "
                f"of shape {info.shape} has {channels}",
                cure=_other_layouts(self._output, names),
            )
        if names.count is None and 0 < candidates < channels:
            raise BundleError(
                f"layout {self._layout.value} would read {info.shape} as {candidates} candidates of "
                f"{channels - leading} classes, which looks like swapped axes",
                cure=f"declare output.labels.count; {_other_layouts(self._output, names)}",
            )
        if names.count is not None and names.count != channels - leading:
            raise BundleError(
                f"layout {self._layout.value} reads {channels - leading} classes from the output "
                f"{info.name!r} of shape {info.shape}; model.yaml declares {names.count}",
                cure=_other_layouts(self._output, names),
            )


class Yolov5(_OneTensor):
    """[1, N, 5 + C]: score = objectness x class."""

    def _check_shape(self, rows: int, columns: int, names: ClassNames) -> None:
        _refuse_softmax(self._spec)
        self._check_classes(names, columns, rows)

    def decode(self, outputs: tuple[NDArray[Any], ...]) -> Candidates:
        """See `Decoder`."""
        rows = self._matrix(outputs)
        objectness = self._reader.independent(rows[:, 4])
        # No class score lifts the product above the objectness: most rows end here.
        likely = np.flatnonzero(objectness >= self._threshold)
        classes = rows[likely, 5:]
        scores = objectness[likely] * self._reader.best(classes, 1)
        keep = scores >= self._threshold
        boxes = self._output.real(rows[likely[keep], :4]) * self._unit
        return Candidates(corners_of(boxes), scores[keep], classes[keep].argmax(axis=1))


class Yolov8(_OneTensor):
    """[1, 4 + C, N], or transposed [1, N, 4 + C]: score = class."""

    def _check_shape(self, rows: int, columns: int, names: ClassNames) -> None:
        if self._layout is OutputLayout.YOLOV8:
            rows, columns = columns, rows
        self._check_classes(names, columns, rows)
        if columns == 5:
            _refuse_softmax(self._spec)

    def decode(self, outputs: tuple[NDArray[Any], ...]) -> Candidates:
        """See `Decoder`."""
        stored = self._matrix(outputs)
        rows = stored.T if self._layout is OutputLayout.YOLOV8 else stored
        scores = self._reader.best(rows[:, 4:], 1)
        likely = np.flatnonzero(scores >= self._threshold)
        kept = rows[likely]
        boxes = self._output.real(kept[:, :4]) * self._unit
        return Candidates(corners_of(boxes), scores[likely], kept[:, 4:].argmax(axis=1))


class EndToEnd(_OneTensor):
    """[1, N, 6]: corners, score, class; a threshold is all that is left to do."""

    suppressed = True

    def _check_shape(self, rows: int, columns: int, names: ClassNames) -> None:
        _refuse_softmax(self._spec)
        info = self._output.info
        if columns not in {0, _END_TO_END_COLUMNS}:
            raise BundleError(
                f"layout end-to-end reads rows of 6, the output {info.name!r} has shape {info.shape}",
                cure=_other_layouts(self._output, names),
            )
        width, height = self._spec.input.size
        cells = sum((width // stride) * (height // stride) for stride in _DENSE_STRIDES)
        if rows and rows in {cells, 3 * cells}:
            raise BundleError(
                f"the output {info.name!r} of shape {info.shape} has one row for each grid cell of a "
                f"{width}x{height} input: a dense head, not the few rows of layout end-to-end",
                cure=_other_layouts(self._output, names),
            )

    def decode(self, outputs: tuple[NDArray[Any], ...]) -> Candidates:
        """See `Decoder`."""
        rows = self._matrix(outputs)
        scores = self._reader.independent(rows[:, 4])
        keep = np.flatnonzero(scores >= self._threshold)
        real = self._output.real(rows[keep])
        classes = np.rint(real[:, 5])
        if (np.abs(real[:, 5] - classes) > 0.01).any() or (classes < 0).any():
            raise bad_output(
                f"the last column of {self._output.info.name!r} holds {real[:, 5].max():.4g}, "
                "no class index; is output.layout really end-to-end?"
            )
        boxes = real[:, :4] * self._unit
        if (boxes[:, 2:] < boxes[:, :2] - 1.0).any():
            raise bad_output(
                f"{self._output.info.name!r} holds boxes whose right or lower edge comes first; "
                "layout end-to-end reads corners, not centres and sizes"
            )
        return Candidates(boxes, scores[keep], classes.astype(np.intp))


def _refuse_softmax(spec: ModelSpec) -> None:
    if spec.output.activation is Activation.SOFTMAX:
        raise BundleError(
            f"layout {spec.output.layout.value} has independent scores; softmax cannot be their activation",
            cure="set output.activation to given or sigmoid",
        )


def _other_layouts(output: BoundOutput, names: ClassNames) -> str:
    """Name the layouts that the shape would fit; a hint for a person, never a decision."""
    rows, columns = matrix_shape(output)
    fits = []
    for layout, leading in _BOX_COLUMNS.items():
        channels, candidates = (rows, columns) if layout is OutputLayout.YOLOV8 else (columns, rows)
        classes = channels - leading
        if (classes == names.count) if names.count is not None else (0 < classes < candidates):
            fits.append(layout.value)
    if columns == _END_TO_END_COLUMNS:
        fits.append(OutputLayout.END_TO_END.value)
    if not fits:
        return "state output.layout and output.labels.count as the model was exported"
    return f"the shape would fit output.layout {' or '.join(fits)}; state the one the model was exported with"
