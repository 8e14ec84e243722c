"""How much two sets of boxes differ: 1 - F1 at IoU 0.5, class by class. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    Box = tuple[float, float, float, float]
    Found = tuple[str, Box]

MATCH_IOU = 0.5


def iou(one: Box, other: Box) -> float:
    """Intersection over union; 0 for boxes without area."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    common = width * height
    area = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - common
    return common / area if area > 0 else 0.0


def matched(found: Sequence[Found], wanted: Sequence[Found]) -> list[bool]:
    """Which of `found`, best first, has a partner of its class in `wanted`; each partner is taken once."""
    free = list(range(len(wanted)))
    hits: list[bool] = []
    for label, box in found:
        best, best_iou = -1, MATCH_IOU
        for index in free:
            if wanted[index][0] == label and (overlap := iou(box, wanted[index][1])) >= best_iou:
                best, best_iou = index, overlap
        hits.append(best >= 0)
        if best >= 0:
            free.remove(best)
    return hits


def loss_between(found: Sequence[Found], wanted: Sequence[Found]) -> float:
    """1 - F1 of `found`, best first, against `wanted`; 0 where both are empty."""
    if not found and not wanted:
        return 0.0
    return 1.0 - 2.0 * sum(matched(found, wanted)) / (len(found) + len(wanted))
