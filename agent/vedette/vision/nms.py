"""Greedy non-maximum suppression by plain intersection over union. Pure.

Classes are told apart by comparing them, not by shifting boxes to far coordinates, which costs float32 its
precision on wide pictures (casebook 24).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.vision.ranking import best_first

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.wire.bundle import Nms


def suppress(
    boxes: NDArray[Any], scores: NDArray[Any], classes: NDArray[Any], rules: Nms
) -> NDArray[np.intp]:
    """Keep the best box of each heap.

    Args:
        boxes: (n, 4) corners x1, y1, x2, y2 in any unit.
        scores: (n,).
        classes: (n,) integers; ignored when the rules are class-agnostic.
        rules: `max_candidates` bounds the work, `max_detections` the answer. A box is dropped when its IoU
            with a better one that was kept is above `iou`.

    Returns:
        Indices of the boxes kept: by score, highest first, then by index.
    """
    order = best_first(scores, rules.max_candidates)
    corners = boxes[order].astype(np.float64).T
    areas = np.maximum(corners[2] - corners[0], 0.0) * np.maximum(corners[3] - corners[1], 0.0)
    kinds = np.zeros(order.size, np.intp) if rules.class_agnostic else classes[order]
    kept: list[np.intp] = []
    while order.size and len(kept) < rules.max_detections:
        kept.append(order[0])
        overlap = _intersection(corners[:, 0], corners[:, 1:])
        union = areas[0] + areas[1:] - overlap
        # overlap / union > iou, without dividing by the union of two empty boxes.
        stays = (overlap <= rules.iou * union) | (kinds[1:] != kinds[0])
        order, kinds, areas = order[1:][stays], kinds[1:][stays], areas[1:][stays]
        corners = corners[:, 1:][:, stays]
    return np.array(kept, np.intp)


def _intersection(box: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Areas shared by one box (4,) and others (4, n)."""
    width = np.minimum(box[2], others[2]) - np.maximum(box[0], others[0])
    height = np.minimum(box[3], others[3]) - np.maximum(box[1], others[1])
    return np.asarray(np.maximum(width, 0.0) * np.maximum(height, 0.0))
