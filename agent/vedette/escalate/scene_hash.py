"""Which samples show one scene, so that near-duplicates count once. Pure.

A difference hash (N. Krawetz, "Kind of Like That", 2013) overlooks small objects; here that only loses a
sample, since a scene also ends when the local answer changes, and after an hour.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS, COLUMNS = 8, 8
NEAR_BITS = 6
SCENE_S = 3600.0
SCENES_EACH, MAX_CAMERAS = 64, 256


def scene_hash(picture: NDArray[np.uint8]) -> int:
    """64 bits of a picture (height, width, 3), BGR: where it grows brighter from left to right."""
    grey: Any = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
    small: Any = cv2.resize(grey, (COLUMNS + 1, ROWS), interpolation=cv2.INTER_AREA)
    bits = np.packbits(small[:, 1:] > small[:, :-1])
    return int.from_bytes(bits.tobytes(), "big")


class _Scene(NamedTuple):
    name: str
    bits: int
    answer: str
    began_s: float


class SceneNames:
    """Names scenes, `camera:hash:time`; the camera that was quiet longest is forgotten first."""

    def __init__(self) -> None:
        self._cameras: OrderedDict[str, deque[_Scene]] = OrderedDict()

    def name(self, camera: str, bits: int, answer: str, utc_s: float) -> str:
        """The name of the scene that a picture shows.

        Args:
            camera: Where it comes from.
            bits: Its `scene_hash`.
            answer: The local answer, as text that is equal for equal answers.
            utc_s: Now; names must differ after a restart too.
        """
        scenes = self._cameras.setdefault(camera, deque(maxlen=SCENES_EACH))
        self._cameras.move_to_end(camera)
        if len(self._cameras) > MAX_CAMERAS:
            self._cameras.popitem(last=False)
        for scene in scenes:
            young = abs(utc_s - scene.began_s) < SCENE_S
            if young and scene.answer == answer and (scene.bits ^ bits).bit_count() <= NEAR_BITS:
                return scene.name
        scene = _Scene(f"{camera}:{bits:016x}:{int(utc_s)}", bits, answer, utc_s)
        scenes.append(scene)
        return scene.name
