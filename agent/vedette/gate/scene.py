"""One question for each scene: a picture that stands still is not asked about again and again. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MAX_CAMERAS = 256


class _Asked(NamedTuple):
    answer: str
    uncertainty: float
    at_ns: int


class Scenes:
    """What each camera was asked about last; the camera that was quiet longest is forgotten first."""

    def __init__(self) -> None:
        self._asked: OrderedDict[str, _Asked] = OrderedDict()

    def is_known(
        self,
        camera: str,
        answer: str,
        uncertainty: float,
        now_ns: int,
        *,
        cool_down_s: float,
        hysteresis: float,
    ) -> bool:
        """Whether this is the scene that was asked about within the cool-down.

        Args:
            camera: Its name.
            answer: The local answer, as text that is equal for equal answers.
            uncertainty: Of this frame; one that is surer or less sure by more than `hysteresis` is news.
            now_ns: Monotonic.
            cool_down_s: 0 knows no scenes.
            hysteresis: How much uncertainty may wander.
        """
        last = self._asked.get(camera)
        return (
            last is not None
            and now_ns - last.at_ns < cool_down_s * 1e9
            and last.answer == answer
            and abs(uncertainty - last.uncertainty) <= hysteresis
        )

    def asked(self, camera: str, answer: str, uncertainty: float, now_ns: int) -> None:
        """The large model is asked about this frame."""
        self._asked[camera] = _Asked(answer, uncertainty, now_ns)
        self._asked.move_to_end(camera)
        if len(self._asked) > MAX_CAMERAS:
            self._asked.popitem(last=False)

    def forget(self, camera: str) -> None:
        """It was not asked about after all."""
        self._asked.pop(camera, None)
