"""Has anything changed since the frame that was answered? A small picture of both, compared by blobs. Pure.

Sizes, blur, threshold and the rule for sudden light are those of Frigate's motion detection
(frigate/motion, improved_motion.py); unlike there, colours count, and the comparison is with the very frame
whose answer would be used again, so that nothing that creeps in slowly is ever learned as background.
Hashes of whole pictures do not serve here: a new object of 48 pixels changes none of them (measured: pHash
overlooks 55 %, dHash 95 %).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from vedette.gate.reuse_rules import Change

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 100
DIFFERENCE = 30
LEAST_BLOB = 10
SUDDEN_SHARE = 0.8
# At this many rows of a frame of 480 the smallest object that is found reliably covers 10 x 10 pixels.
LEAST_OBJECT_SHARE = 0.1


class FrameGate:
    """One camera; `mask` (rows, columns), where it is not 0, is where changes mean nothing."""

    def __init__(self, *, least_blob: int = LEAST_BLOB, mask: NDArray[np.uint8] | None = None) -> None:
        self._least_blob = least_blob
        self._mask = mask
        self._ignored: NDArray[np.bool_] | None = None
        self._reference: NDArray[np.uint8] | None = None
        self._candidate: NDArray[np.uint8] | None = None
        self._shape: tuple[int, ...] = ()
        self._kernel = np.ones((3, 3), np.uint8)

    def look(self, picture: NDArray[np.uint8]) -> Change:
        """Compare a frame with the one that was answered.

        Args:
            picture: (height, width) luma, or (height, width, 3) BGR; not kept.
        """
        small = self._small(picture)
        self._candidate = small
        reference = self._reference
        if reference is None:
            return Change.FIRST
        if reference.shape != small.shape or self._shape != picture.shape:
            return Change.SIZE
        apart: Any = cv2.absdiff(small, reference)
        if apart.ndim == 3:  # a red coat before a green hedge may be as bright as it
            apart = cv2.max(cv2.max(apart[:, :, 0], apart[:, :, 1]), apart[:, :, 2])
        _, changed = cv2.threshold(apart, DIFFERENCE, 255, cv2.THRESH_BINARY)
        if self._ignored is not None:
            changed[self._ignored] = 0
        count = cv2.countNonZero(changed)
        if not count:
            return Change.NONE
        if count > SUDDEN_SHARE * changed.size:
            return Change.LIGHT
        grown = cv2.dilate(changed, self._kernel)
        contours, _ = cv2.findContours(grown, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        if any(cv2.contourArea(contour) > self._least_blob for contour in contours):
            return Change.SOMETHING
        return Change.NONE

    def answered(self, shape: tuple[int, ...]) -> None:
        """The frame looked at last was answered anew: later ones are compared with it."""
        self._reference, self._shape = self._candidate, shape

    def forget(self) -> None:
        """The next frame is the first, as after a change of models."""
        self._reference = None

    def _small(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width = picture.shape[:2]
        columns = max(1, round(width * ROWS / height))
        small: Any = cv2.resize(picture, (columns, ROWS), interpolation=cv2.INTER_NEAREST)
        if self._mask is not None and (self._ignored is None or self._ignored.shape != small.shape[:2]):
            fitted: Any = cv2.resize(self._mask, (columns, ROWS), interpolation=cv2.INTER_NEAREST)
            self._ignored = fitted != 0
        return np.asarray(cv2.GaussianBlur(small, (3, 3), 1.0), np.uint8)
