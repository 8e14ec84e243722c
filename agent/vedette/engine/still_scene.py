"""One camera whose answers may be given again while nothing changes before it; the worker's side."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vedette.gate.frame_gate import FrameGate
from vedette.gate.reuse import Reuse
from vedette.gate.reuse_rules import Use
from vedette.wire.pixels import PixelFormat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.gate.reuse_rules import ReuseRules
    from vedette.vision.answers import Answer
    from vedette.vision.picture import Picture


class Earlier(NamedTuple):
    """An answer of the model, and when its frame was captured (monotonic)."""

    answer: Answer
    captured_ns: int


class StillScene:
    """One thread owns it. A worker begins with none: no answer outlives its model."""

    def __init__(self, rules: ReuseRules) -> None:
        self._gate = FrameGate()
        self._reuse = Reuse(rules, random.Random().random)  # noqa: S311 - a fair draw, no secret
        self._earlier: Earlier | None = None
        self._use = Use.ANEW
        self._shape: tuple[int, ...] = ()

    def look(self, picture: Picture, now_ns: int) -> Earlier | None:
        """The answer to give again; None where the model is to answer. About 100 us for 640 x 480."""
        seen = brightness(picture)
        self._shape = seen.shape
        change = self._gate.look(seen)
        self._use = self._reuse.decide(change, "", now_ns)
        if self._use is not Use.AGAIN or self._earlier is None:
            return None
        self._reuse.given(Use.AGAIN, "", "", now_ns)
        return self._earlier

    def answered(self, answer: Answer, words: str, captured_ns: int, now_ns: int) -> tuple[Use, bool]:
        """The model answered the frame that was looked at last.

        Args:
            answer: What will be given again.
            words: The answer as text that is equal for equal answers.
            captured_ns: Of the frame.
            now_ns: Now.

        Returns:
            Why it did, and whether a check found that the earlier answer would have been wrong.
        """
        use, before = self._use, self._reuse.wrong
        self._reuse.given(use, "", words, now_ns)
        self._gate.answered(self._shape)
        self._earlier = Earlier(answer, captured_ns)
        return use, self._reuse.wrong > before

    def failed(self) -> None:
        """The model gave none."""
        self._reuse.failed()
        self._earlier = None


def brightness(picture: Picture) -> NDArray[np.uint8]:
    """What the frame gate compares: the luma plane, or all three colours where they lie side by side."""
    plane: NDArray[Any] = picture.planes[0]
    pixel = picture.format.pixel
    if pixel is PixelFormat.YUYV422:
        plane = plane[:, :, 0]
    elif pixel is PixelFormat.GRAY16LE:
        plane = plane >> 8
    elif plane.ndim == 3:
        plane = plane[:, :, :3]
    return np.ascontiguousarray(plane, np.uint8)
