"""Which answers are published: none, those that show something new, or all, up to a rate a camera. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET

if TYPE_CHECKING:
    from vedette.config.link import MqttResultsConfig
    from vedette.wire.messages import Result

MAX_RESULT_BYTES = 128 << 10
MAX_WAITING_BYTES = 1 << 20


class SelectedResult(NamedTuple):
    """An answer as it is sent."""

    camera: str
    payload: bytes


class _Camera:
    def __init__(self) -> None:
        self.shown: object = None
        self.shows: object = None
        self.waiting: bytes | None = None
        self.due_ns = 0


class ResultSelection:
    """The newest answer of each camera waits until its turn; times are monotonic nanoseconds.

    An answer that a newer one overtakes within the rate was not asked for; one that is too large, finds no
    room or is overtaken while there is no connection is `dropped`.
    """

    def __init__(self, config: MqttResultsConfig) -> None:
        self._config = config
        self._cameras: dict[str, _Camera] = {}
        self._waiting_bytes = 0
        self.dropped = 0

    def offer(self, result: Result, *, connected: bool) -> bool:
        """Consider an answer; whether one waits that did not before, so that somebody must be told."""
        if self._config.publish == "none":
            return False
        if self._config.publish == "change" and _only_an_outcome(result):
            return False
        camera = self._cameras.setdefault(result.camera, _Camera())
        shows = _what_it_shows(result)
        if self._config.publish == "change" and shows == camera.shown:
            self._forget(camera)  # what was seen in between has passed, and is back to what is known
            return False
        payload = msgspec.json.encode(result)
        waited = camera.waiting is not None
        if waited and not connected:
            self.dropped += 1
        self._forget(camera)
        if len(payload) > MAX_RESULT_BYTES or self._waiting_bytes + len(payload) > MAX_WAITING_BYTES:
            self.dropped += 1
            return False
        camera.waiting, camera.shows = payload, shows
        self._waiting_bytes += len(payload)
        return not waited

    def take(self, now_ns: int) -> SelectedResult | None:
        """The next answer that is due, and with that its turn is used."""
        for name, camera in self._cameras.items():
            if camera.waiting is not None and camera.due_ns <= now_ns:
                payload = camera.waiting
                self._forget(camera)
                camera.shown = camera.shows
                camera.due_ns = now_ns + round(1e9 / self._config.max_per_s)
                return SelectedResult(name, payload)
        return None

    def reconnected(self) -> None:
        """A connection is up: what waited is old, but a change is still one."""
        if self._config.publish == "all":
            for camera in self._cameras.values():
                self.dropped += camera.waiting is not None
                self._forget(camera)

    def wait_s(self, now_ns: int) -> float:
        """Seconds until `take` gives something; infinite when nothing waits."""
        waits = [camera.due_ns - now_ns for camera in self._cameras.values() if camera.waiting is not None]
        return max(0.0, min(waits) / 1e9) if waits else math.inf

    def _forget(self, camera: _Camera) -> None:
        self._waiting_bytes -= len(camera.waiting or b"")
        camera.waiting = None


def _only_an_outcome(result: Result) -> bool:
    """A line that says how an escalation ended, and shows nothing that the frame's own line did not."""
    ended = result.escalation
    return ended is not None and ended.reason is not UNSET and ended.outcome != "answered"


def _what_it_shows(result: Result) -> object:
    """What must differ for an answer to be a change: labels and how many of each, failure, model."""
    failed = "" if result.failed is UNSET else result.failed.cause
    top = result.top[0].label if result.top is not UNSET and result.top else ""
    counts: Counter[str] = Counter()
    if result.detections is not UNSET:
        counts.update(detection.label for detection in result.detections)
    # Raw tensors say nothing that could be compared here, so each is new.
    unnamed = result.seq if result.tensors is not UNSET else -1
    return failed, top, counts, result.model, unnamed
