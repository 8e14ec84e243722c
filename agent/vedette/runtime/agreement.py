"""Whether two models say the same of a frame, and whether a model says the same of every frame. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from vedette.wire.messages import LatencyMs

if TYPE_CHECKING:
    from vedette.wire.messages import Detection, RawTensor, Result

MATCH_IOU = 0.5
# Of all boxes of both answers, the share that must have a partner: one box at the threshold comes and goes.
MATCH_SHARE = 0.5
# A fresh camera may show the same picture a few times; a model that never says anything else is stuck.
CONSTANT_AFTER = 30
_DIGEST_BYTES = 200
_BOX_BYTES = 250

Box = tuple[float, float, float, float]


class Digest(msgspec.Struct, frozen=True):
    """What is compared of an answer; `kind` tells the tasks apart.

    Labels are compared as text: a model with one class more numbers the others differently.
    """

    kind: str
    top: str = ""
    boxes: tuple[tuple[str, Box], ...] = ()
    peaks: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Roughly what it takes in memory."""
        return _DIGEST_BYTES + _BOX_BYTES * len(self.boxes)


def digest_of(result: Result) -> Digest:
    """The comparable part of a result that is an answer."""
    if result.detections is not UNSET:
        return Digest("detect", boxes=tuple((found.label, found.box) for found in result.detections))
    if result.tensors is not UNSET:
        return Digest("raw", peaks=tuple(_peak(tensor) for tensor in result.tensors))
    return Digest("classify", top=result.top[0].label if result.top else "")


def agree(one: Digest, other: Digest) -> bool:
    """The same top class; the same boxes, but for a few; the same position of the largest raw value."""
    if one.kind != other.kind:
        return False
    if one.kind != "detect":
        return (one.top, one.peaks) == (other.top, other.peaks)
    boxes = len(one.boxes) + len(other.boxes)
    return 2 * _matched(one.boxes, other.boxes) >= MATCH_SHARE * boxes


def _matched(ours: tuple[tuple[str, Box], ...], theirs: tuple[tuple[str, Box], ...]) -> int:
    """Boxes of one answer with a partner in the other: same class, best overlap first come first served."""
    free = list(theirs)
    matched = 0
    for label, box in ours:
        overlaps = [(iou(box, other), index) for index, (name, other) in enumerate(free) if name == label]
        best, index = max(overlaps, default=(0.0, -1))
        if best >= MATCH_IOU:
            matched += 1
            del free[index]
    return matched


def iou(one: Box, other: Box) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2)."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    union = sum(areas) - common
    return common / union if union > 0 else 0.0  # areas of denormal sides come out as 0


def _peak(tensor: RawTensor) -> int:
    values = memoryview(tensor.data).cast("f").tolist() if tensor.data else []
    return values.index(max(values)) if values else -1


def work_ms(result: Result) -> float | None:
    """Preprocess, infer and postprocess of an answered frame, None when it has no times."""
    latency = result.latency_ms
    return (
        latency.preprocess + latency.infer + latency.postprocess if isinstance(latency, LatencyMs) else None
    )


class Variety:
    """Tells a model that looks at its input from one that does not, by scores to the last digit."""

    def __init__(self) -> None:
        self.answers = 0
        self.varied = False
        self._first: object = None

    def add(self, result: Result) -> None:
        """Take an answer in; "nothing there" is no answer here, since an empty scene stays empty."""
        if result.detections is not UNSET and not result.detections:
            return
        self.answers += 1
        if self.varied:
            return
        said = _exactly(result)
        if self.answers == 1:
            self._first = said
        elif said != self._first:
            self.varied = True

    @property
    def constant(self) -> bool:
        """Many answers, all the same to the last digit."""
        return self.answers >= CONSTANT_AFTER and not self.varied


def _exactly(result: Result) -> object:
    if result.detections is not UNSET:
        return tuple(map(_exact_box, result.detections))
    if result.tensors is not UNSET:
        return tuple(hash(tensor.data) for tensor in result.tensors)
    return tuple((label.index, label.score) for label in result.top) if result.top is not UNSET else ()


def _exact_box(found: Detection) -> tuple[int, float, Box]:
    return found.index, found.score, found.box
