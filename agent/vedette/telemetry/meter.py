"""Where the time of a frame went: one latency sketch for each camera and stage."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import InternalError
from vedette.telemetry.sketch import MAX_VALUE_MS, Sketch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vedette.wire.messages import LatencyMs

STAGES = ("transport", "queue", "preprocess", "infer", "postprocess", "total", "deliver")


class StageStats(msgspec.Struct, frozen=True):
    """A stage's latencies in milliseconds; quantiles are within 1 %, None while `count` is 0."""

    count: int
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class Meter:
    """Latencies of a fixed set of cameras; any thread may record and read.

    `deliver` is from the worker's answer to the line being written; it is no part of `total`.
    """

    def __init__(self, cameras: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._sketches = {camera: tuple(Sketch() for _ in STAGES) for camera in cameras}
        self._recent = {camera: Sketch() for camera in self._sketches}
        self._rejected = 0

    def add(self, camera: str) -> None:
        """Measure one more camera."""
        with self._lock:
            self._sketches.setdefault(camera, tuple(Sketch() for _ in STAGES))
            self._recent.setdefault(camera, Sketch())

    @property
    def cameras(self) -> tuple[str, ...]:
        """The cameras in the order given."""
        return tuple(self._sketches)

    @property
    def rejected(self) -> int:
        """Values that were no durations (negative or not finite): a fault in a clock or in our arithmetic."""
        return self._rejected

    def record(self, camera: str, latency: LatencyMs, deliver_ms: float) -> None:
        """Add the latencies of one answered frame; a value that is no duration is counted, not recorded.

        Raises:
            InternalError: A camera that the meter was not made for.
        """
        sketches = self._of(camera)
        values_ms = (
            latency.transport,
            latency.queue,
            latency.preprocess,
            latency.infer,
            latency.postprocess,
            latency.total,
            deliver_ms,
        )
        with self._lock:
            for sketch, value_ms in zip(sketches, values_ms, strict=True):
                if 0.0 <= value_ms <= MAX_VALUE_MS:
                    sketch.record(value_ms)
                else:
                    self._rejected += 1
            if 0.0 <= latency.total <= MAX_VALUE_MS:
                self._recent[camera].record(latency.total)

    def stats(self, stage: str, camera: str | None = None) -> StageStats:
        """A stage of one camera, or of all of them merged.

        Raises:
            InternalError: No such stage or camera.
        """
        if stage not in STAGES:
            raise InternalError(f"`{stage}` is none of the stages {', '.join(STAGES)}")
        index = STAGES.index(stage)
        chosen = self._sketches.values() if camera is None else (self._of(camera),)
        with self._lock:
            return _stats_of(Sketch.merged(sketches[index] for sketches in chosen))

    def take_recent(self, camera: str) -> StageStats:
        """`total` since the last call, for a live display; the next call starts from nothing.

        Raises:
            InternalError: No such camera.
        """
        self._of(camera)
        with self._lock:
            recent = self._recent[camera]
            self._recent[camera] = Sketch()
        return _stats_of(recent)

    def _of(self, camera: str) -> tuple[Sketch, ...]:
        try:
            return self._sketches[camera]
        except KeyError:
            raise InternalError(f"the meter knows no camera `{camera}`") from None


def _stats_of(sketch: Sketch) -> StageStats:
    count = sketch.count
    return StageStats(
        count=count,
        mean_ms=sketch.sum / count if count else None,
        p50_ms=sketch.quantile(0.50),
        p95_ms=sketch.quantile(0.95),
        p99_ms=sketch.quantile(0.99),
    )
