"""What may leave the box: never, a crop, or a smaller frame, with people's classes made unrecognisable. Pure.

Audits obey the same rules as escalations; what they hold back is counted, since the agreement that is
measured then speaks for the rest only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np
from msgspec import UNSET

from vedette.wire.escalation import DeclineCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from vedette.config.escalation import PrivacyConfig
    from vedette.wire.messages import Detection, Result

    Box = tuple[float, float, float, float]
    Picture = NDArray[np.uint8]

# A box is painted in so many blocks a side: enough to see that something is there, too few to see who.
MOSAIC = 3
LEAST_SIDE = 16


class Sendable(NamedTuple):
    """A picture that may leave, BGR; `scale` and `left`, `top` lead back: frame = sent / scale + corner."""

    picture: Picture
    left: int
    top: int
    scale: float

    def in_frame(self, box: Box) -> Box:
        """A box of the sent picture in pixels of the frame."""
        x1, y1, x2, y2 = box
        return (
            x1 / self.scale + self.left,
            y1 / self.scale + self.top,
            x2 / self.scale + self.left,
            y2 / self.scale + self.top,
        )


def why_not(result: Result, rules: PrivacyConfig) -> DeclineCause | None:
    """What keeps this frame here, by its local answer; None where it may leave."""
    if rules.send == "never":
        return DeclineCause.PRIVACY
    seen = {label.label for label in (result.top or ())[:1]}
    seen |= {found.label for found in result.detections or ()}
    if seen & set(rules.deny):
        return DeclineCause.PRIVACY
    # A crop of nothing would be the whole frame, which nobody allowed.
    if rules.send == "crop" and not result.detections:
        return DeclineCause.PRIVACY
    return None


def sendable(frame: Picture, result: Result, rules: PrivacyConfig) -> Sendable:
    """The picture to send of a frame that `why_not` lets go.

    Args:
        frame: (height, width, 3), BGR, upright; it is not changed.
        result: The local answer, with boxes in its pixels.
        rules: What may leave.
    """
    boxes = () if result.detections is UNSET else result.detections
    height, width = frame.shape[:2]
    left, top, right, bottom = 0, 0, width, height
    if rules.send == "crop" and boxes:
        left, top, right, bottom = _around([found.box for found in boxes], rules.margin, width, height)
    part = frame[top:bottom, left:right]
    scale = min(1.0, rules.max_side / max(part.shape[:2]))
    hidden = [found for found in boxes if found.label in rules.blur]
    if hidden:
        part = _painted(part, hidden, left, top)
    if scale < 1.0:
        size = (max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale)))
        part = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    return Sendable(part, left, top, scale)


def _around(boxes: Sequence[Box], margin: float, width: int, height: int) -> tuple[int, int, int, int]:
    """The smallest rectangle around all boxes with a margin of their common side, inside the frame."""
    edges = np.array(boxes, np.float64)
    x1, y1 = edges[:, 0].min(), edges[:, 1].min()
    x2, y2 = edges[:, 2].max(), edges[:, 3].max()
    across = max((x2 - x1) * margin, (LEAST_SIDE - (x2 - x1)) / 2, 0.0)
    down = max((y2 - y1) * margin, (LEAST_SIDE - (y2 - y1)) / 2, 0.0)
    left, top = _within(x1 - across, width - 1), _within(y1 - down, height - 1)
    right, bottom = _within(np.ceil(x2 + across), width), _within(np.ceil(y2 + down), height)
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _within(edge: float, most: int) -> int:
    return int(min(max(0.0, edge), most))


def _painted(part: Picture, hidden: Sequence[Detection], left: int, top: int) -> Picture:
    """A copy in which these boxes are a few blocks of their mean colours; nothing finer is left."""
    painted: Picture = part.copy()
    height, width = part.shape[:2]
    for found in hidden:
        x1, y1 = _within(found.box[0] - left, width), _within(found.box[1] - top, height)
        x2, y2 = (
            _within(np.ceil(found.box[2]) - left, width),
            _within(np.ceil(found.box[3]) - top, height),
        )
        for rows in _blocks(y1, y2):
            for columns in _blocks(x1, x2):
                block: Any = painted[rows, columns]
                block[:] = block.reshape(-1, 3).mean(axis=0).round()
    return painted


def _blocks(start: int, end: int) -> list[slice]:
    edges = [round(edge) for edge in np.linspace(start, end, min(MOSAIC, max(1, end - start)) + 1)]
    return [slice(one, other) for one, other in pairwise(edges) if other > one]
