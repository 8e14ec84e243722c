"""Latencies of the window under way, by camera and model, and of all windows since the start."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from vedette.telemetry.sketch import MAX_VALUE_MS, Sketch
from vedette.wire.messages import ModelRef
from vedette.wire.telemetry import OTHER, STAGES

if TYPE_CHECKING:
    from vedette.wire.messages import LatencyMs

MAX_SERIES = 256
_FRAME_STAGES = STAGES.index("total") + 1

SeriesKey = tuple[str, ModelRef]
StageSketches = tuple[Sketch, ...]
OTHER_SERIES: SeriesKey = (OTHER, ModelRef(OTHER, "", ""))


class ClosedWindow(msgspec.Struct, frozen=True):
    """What was recorded between two moments of the monotonic clock.

    `rejected` values were no durations; `overflow` frames stand under OTHER, because there were more cameras
    and models than anybody runs (casebook 44).
    """

    start_ns: int
    end_ns: int
    series: dict[SeriesKey, StageSketches]
    deliver: Sketch
    rejected: int = 0
    overflow: int = 0


class WindowRecorder:
    """Records answered frames; any thread may call it. Memory is bounded by MAX_SERIES, whatever comes."""

    def __init__(self, now_ns: int) -> None:
        self._lock = threading.Lock()
        self._started_ns = now_ns
        self._fresh = _Series(now_ns)
        self._returned = _Series(now_ns)
        self._past = _Series(now_ns)

    def record(self, camera: str, model: ModelRef, latency: LatencyMs, deliver_ms: float) -> None:
        """Add one answered frame; a value that is no duration is counted, not recorded."""
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
            fresh = self._fresh
            sketches = (*fresh.of((camera, model))[:_FRAME_STAGES], fresh.deliver)
            for sketch, value_ms in zip(sketches, values_ms, strict=True):
                if 0.0 <= value_ms <= MAX_VALUE_MS:
                    sketch.record(value_ms)
                else:
                    fresh.rejected += 1

    def record_stage(self, camera: str, model: ModelRef, stage: str, value_ms: float) -> None:
        """Add what one frame took in a stage of its own, such as `escalation`.

        Raises:
            ValueError: No such stage.
        """
        index = STAGES.index(stage)
        with self._lock:
            if 0.0 <= value_ms <= MAX_VALUE_MS:
                self._fresh.of((camera, model))[index].record(value_ms)
            else:
                self._fresh.rejected += 1

    def take(self, now_ns: int) -> ClosedWindow:
        """Close the window, and begin the next; what was put back is in it."""
        with self._lock:
            fresh, returned = self._fresh, self._returned
            self._past.add(fresh, evict=True)
            self._fresh, self._returned = _Series(now_ns), _Series(now_ns)
            if returned.start_ns < fresh.start_ns:
                returned.add(fresh)
                fresh = returned
        return fresh.closed(now_ns)

    def put_back(self, window: ClosedWindow) -> None:
        """A window whose report could not be stored; the next one begins where it began."""
        with self._lock:
            self._returned.add(window)

    def since_start(self, now_ns: int) -> ClosedWindow:
        """Everything since the start; models that answered longest ago make room by going to OTHER."""
        with self._lock:
            whole = _Series(self._started_ns)
            whole.add(self._past)
            whole.add(self._fresh, evict=True)
        return whole.closed(now_ns)


class _Series:
    """Sketches by camera and model, the one that was used longest ago first where `add` evicts."""

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.series: dict[SeriesKey, StageSketches] = {}
        self.deliver = Sketch()
        self.rejected = 0
        self.overflow = 0

    def of(self, key: SeriesKey, frames: int = 1) -> StageSketches:
        """Where `frames` of this camera and model are recorded: under OTHER when there is no room left."""
        found = self.series.get(key)
        if found is not None:
            return found
        if len(self.series) >= MAX_SERIES - 1 and key != OTHER_SERIES:
            self.overflow += frames
            return self.of(OTHER_SERIES)
        found = self.series[key] = tuple(Sketch() for _ in STAGES)
        return found

    def add(self, other: _Series | ClosedWindow, *, evict: bool = False) -> None:
        """Merge what another one holds; `evict` makes room for keys that are new."""
        self.start_ns = min(self.start_ns, other.start_ns)
        self.rejected += other.rejected
        self.overflow += other.overflow
        self.deliver.merge(other.deliver)
        for key, sketches in other.series.items():
            if evict:
                self._make_room(key)
            _merge(self.of(key, _frames(sketches)), sketches)

    def closed(self, end_ns: int) -> ClosedWindow:
        return ClosedWindow(self.start_ns, end_ns, self.series, self.deliver, self.rejected, self.overflow)

    def _make_room(self, key: SeriesKey) -> None:
        found = self.series.pop(key, None)
        if found is not None:
            self.series[key] = found  # the newest now
            return
        if len(self.series) < MAX_SERIES - 1 or key == OTHER_SERIES:
            return
        oldest = next(candidate for candidate in self.series if candidate != OTHER_SERIES)
        sketches = self.series.pop(oldest)
        self.overflow += _frames(sketches)
        _merge(self.of(OTHER_SERIES), sketches)


def _merge(whole: StageSketches, part: StageSketches) -> None:
    for own, their in zip(whole, part, strict=True):
        own.merge(their)


def _frames(sketches: StageSketches) -> int:
    return max(sketch.count for sketch in sketches)
