"""What happened to the data plane, found by comparing looks at it, and told at a bounded rate. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vedette.link.port import Keep
from vedette.link.rate import TokenBucket
from vedette.runtime.camera import CameraState
from vedette.wire.messages import AcceleratorReport, ModelRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BURST = 5
# An update has a dozen steps, and each of them is worth telling.
BURSTS = {"update_phase": 64}
EVERY_S = 60.0

_DOWN, _UP, _OVER, _BEGINS, _PAUSED, _LOST = "down", "up", "over", "begins", "paused", "lost"
# What a camera's state says; the others, on the way up, say nothing new.
_STANDINGS = {
    CameraState.RUNNING.value: _UP,
    CameraState.PAUSED.value: _PAUSED,
    CameraState.ENDED.value: _OVER,
    CameraState.FAILED.value: _LOST,
}
# What is told of a camera that came from one standing to another.
_CAMERA_EVENTS = {
    (_BEGINS, _DOWN): "camera_down",
    (_UP, _DOWN): "camera_down",
    (_DOWN, _UP): "camera_up",
    (_BEGINS, _PAUSED): "camera_paused",
    (_UP, _PAUSED): "camera_paused",
    (_DOWN, _PAUSED): "camera_paused",
    (_PAUSED, _BEGINS): "camera_resumed",
    (_PAUSED, _UP): "camera_resumed",
    (_PAUSED, _DOWN): "camera_down",
    (_BEGINS, _OVER): "camera_ended",
    (_UP, _OVER): "camera_ended",
    (_DOWN, _OVER): "camera_ended",
    (_BEGINS, _LOST): "camera_failed",
    (_UP, _LOST): "camera_failed",
    (_DOWN, _LOST): "camera_failed",
    (_PAUSED, _LOST): "camera_failed",
}


class CameraLook(msgspec.Struct, frozen=True):
    """One camera; `fault` is why it is not up."""

    state: str
    fault: str = ""


class DaemonLook(msgspec.Struct, frozen=True):
    """The data plane at one moment; `engine` is of the model that serves."""

    cameras: dict[str, CameraLook]
    worker_restarts: int = 0
    worker_fault: str = ""
    model: ModelRef | None = None
    engine: AcceleratorReport | None = None
    results_fault: str = ""
    undelivered: int = 0


class Happening(NamedTuple):
    """Something to tell; of each `kind` and `subject` the rate is bounded."""

    kind: str
    subject: str
    data: dict[str, Any]
    keep: Keep = Keep.NEWEST


class Changes:
    """Compares each look with the one before."""

    def __init__(self) -> None:
        self._before: DaemonLook | None = None
        self._standings: dict[str, str] = {}
        self._served: tuple[ModelRef | None, AcceleratorReport] | None = None

    def since_last(self, now: DaemonLook) -> list[Happening]:
        """What happened meanwhile; how cameras stand at the first look is no news."""
        before, self._before = self._before, now
        found = list(self._cameras(now.cameras))
        if before is None:
            found = []
        elif now.worker_restarts > before.worker_restarts:
            data = {"restarts": now.worker_restarts, "fault": now.worker_fault}
            found.append(Happening("worker_restarted", "", data))
        if now.engine is not None and (now.model, now.engine) != self._served:
            self._served = (now.model, now.engine)
            if now.engine.degraded:
                found.append(_fallback(now.engine, now.model))
        if now.results_fault and (before is None or now.results_fault != before.results_fault):
            data = {"fault": now.results_fault, "undelivered": now.undelivered}
            found.append(Happening("results_undelivered", "", data))
        return found

    def _cameras(self, cameras: Mapping[str, CameraLook]) -> Iterator[Happening]:
        for name, camera in cameras.items():
            before = self._standings.get(name, _BEGINS)
            after = _standing(camera, before)
            self._standings[name] = after
            kind = _CAMERA_EVENTS.get((before, after))
            if kind is not None:
                yield Happening(
                    kind, name, {"camera": name, **({"fault": camera.fault} if camera.fault else {})}
                )


def _standing(camera: CameraLook, before: str) -> str:
    found = _STANDINGS.get(camera.state)
    if found is not None:
        return found
    if camera.state == CameraState.WAITING.value and camera.fault:
        return _DOWN
    return _BEGINS if before == _PAUSED else before


def _fallback(engine: AcceleratorReport, model: ModelRef | None) -> Happening:
    return Happening(
        "accelerator_fallback",
        "",
        {
            "model": None if model is None else msgspec.to_builtins(model),
            "asked": list(engine.asked),
            "effective": engine.effective,
            "skipped": [{"accelerator": rung.accelerator, "reason": rung.reason} for rung in engine.skipped],
        },
    )


class EventRate:
    """Lets a few through at once, then one each EVERY_S; of what is held back the newest is told later.

    Each kind and subject has a rate of its own. Times are monotonic nanoseconds.
    """

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._held: dict[tuple[str, str], tuple[Happening, int]] = {}

    def offer(self, happening: Happening, now_ns: int) -> Happening | None:
        """The event, if it may be told now."""
        key = (happening.kind, happening.subject)
        bucket = self._buckets.get(key)
        if bucket is None:
            burst = BURSTS.get(happening.kind, BURST)
            bucket = self._buckets[key] = TokenBucket(rate_per_s=1 / EVERY_S, burst=burst)
        if key not in self._held and bucket.wait_s(now_ns) <= 0:
            bucket.take(now_ns)
            return happening
        count = self._held[key][1] + 1 if key in self._held else 0
        self._held[key] = (happening, count)
        return None

    def due(self, now_ns: int) -> list[Happening]:
        """What was held back and may be told now; `not_told` counts those that never will be."""
        found = []
        for key, (happening, count) in list(self._held.items()):
            bucket = self._buckets[key]
            if bucket.wait_s(now_ns) <= 0:
                bucket.take(now_ns)
                del self._held[key]
                found.append(_counted(happening, count))
        return found

    def all_held(self) -> list[Happening]:
        """What is held back, at the end of everything."""
        held, self._held = self._held, {}
        return [_counted(happening, count) for happening, count in held.values()]


def _counted(happening: Happening, not_told: int) -> Happening:
    return happening._replace(data={**happening.data, "not_told": not_told}) if not_told else happening
