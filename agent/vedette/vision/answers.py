"""What a model says about one frame, in the fields of a result. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from vedette.errors import BundleError
from vedette.wire.messages import Detection, Label, RawTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.vision.geometry import Placement
    from vedette.wire.bundle import Labels

# A score beyond the sixth decimal is noise in every engine, and makes result lines half as long again.
SCORE_DECIMALS = 6


class Answer(msgspec.Struct, frozen=True):
    """The part of `wire.messages.Result` that depends on the task.

    `confidence` is the top score of a classification, the highest score of a detection (0.0 when nothing was
    found), and absent for raw tensors.
    """

    top: tuple[Label, ...] | UnsetType = UNSET
    detections: tuple[Detection, ...] | UnsetType = UNSET
    tensors: tuple[RawTensor, ...] | UnsetType = UNSET
    confidence: float | UnsetType = UNSET


class Postprocessor(Protocol):
    """Turns one run's outputs into an answer."""

    def answer(self, outputs: tuple[NDArray[Any], ...], placement: Placement) -> Answer:
        """Read the engine's outputs, in the engine's order.

        Raises:
            FrameError: `bad_output`: NaN, another shape than declared, or values that the layout excludes.
        """
        ...


class ClassNames:
    """Class index to name; an index without a name is `class_80`, never a neighbour's (casebook 25).

    Raises:
        BundleError: The number of lines is not what the manifest declares.
    """

    def __init__(self, lines: tuple[str, ...], declared: Labels | None) -> None:
        offset = 0 if declared is None else declared.offset
        if declared is not None and len(lines) != declared.count + offset:
            raise BundleError(
                f"{declared.file} has {len(lines)} names; model.yaml declares {declared.count} classes "
                f"after {offset} lines to skip",
                cure="correct output.labels.count and offset, or the file",
            )
        self._names = lines[offset:]
        self.count = None if declared is None else declared.count

    def __getitem__(self, index: int) -> str:
        return self._names[index] if 0 <= index < len(self._names) else f"class_{index}"

    def check_count(self, classes: int, tensor: str) -> None:
        """Refuse a label list made for another model.

        Raises:
            BundleError: The model has another number of classes than the manifest.
        """
        if self.count is not None and self.count != classes:
            raise BundleError(
                f"model.yaml declares {self.count} classes, the output {tensor!r} has {classes}",
                cure="use the label list of this very model; output.labels.offset skips a background row",
            )
