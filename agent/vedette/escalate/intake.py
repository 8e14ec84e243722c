"""Makes tickets: what of a frame may leave the box, as a JPEG, and until when its case has to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from vedette.escalate.answer_cache import cache_key
from vedette.escalate.jpeg import encode_jpeg
from vedette.escalate.privacy import Sendable, sendable
from vedette.escalate.scene_hash import SceneNames, scene_hash
from vedette.escalate.ticket import KeptCase, SentPicture, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.asked_model import AskedModel
    from vedette.gate.case import Case
    from vedette.wire.messages import Result

_NO_PICTURE = np.empty((0, 0, 3), np.uint8)


class Intake:
    """Numbers tickets; one thread owns it."""

    def __init__(self, config: EscalationConfig, utc_s: Callable[[], float]) -> None:
        self._config = config
        self._utc_s = utc_s
        self._scenes = SceneNames()
        self._number = 0

    def ticket(self, case: Case, model: AskedModel, frame: NDArray[np.uint8], *, kept: bool) -> Ticket:
        """A ticket for a frame (height, width, 3), BGR, upright, that may leave; the frame is not kept.

        Raises:
            FrameError: It cannot be encoded.
        """
        rules = self._config.privacy
        sent = sendable(frame, case.result, rules)
        utc_s = self._utc_s()
        height, width = sent.picture.shape[:2]
        picture = SentPicture(
            encode_jpeg(sent.picture, rules.quality),
            width,
            height,
            sent.left,
            sent.top,
            sent.scale,
            self._scenes.name(case.result.camera, scene_hash(sent.picture), _words(case.result), utc_s),
            any(found.label in rules.blur for found in case.result.detections or ()),
        )
        return self.numbered(KeptCase(case, picture, utc_s, kept), model)

    def numbered(self, kept: KeptCase, model: AskedModel, file: str = "") -> Ticket:
        """A ticket for a case whose picture is made; `file` where it comes from the backlog."""
        self._number += 1
        picture, case = kept.picture, kept.case
        return Ticket(
            self._number,
            kept,
            model,
            Sendable(_NO_PICTURE, picture.left, picture.top, picture.scale),
            cache_key(picture.jpeg, model.sha256, model.prompt, self._config.model),
            answered_ns(case),
            self.deadline_ns(case),
            self.is_urgent(case),
            file,
        )

    def deadline_ns(self, case: Case) -> int:
        """When a case has to end, CLOCK_MONOTONIC."""
        return answered_ns(case) + round(self._config.deadline_ms * 1e6)

    def is_urgent(self, case: Case) -> bool:
        """Whether its camera never waits."""
        return case.urgent or case.result.camera in self._config.urgent


def answered_ns(case: Case) -> int:
    """When the local answer was there, CLOCK_MONOTONIC."""
    latency = case.result.latency_ms
    total_ms = 0.0 if latency is UNSET else latency.total
    return case.result.captured_ns + round(total_ms * 1e6)


def _words(result: Result) -> str:
    """The local answer as text that is equal for equal answers."""
    if result.top is not UNSET:
        return result.top[0].label if result.top else ""
    found = () if result.detections is UNSET else result.detections
    return ",".join(sorted(one.label for one in found))
