"""Latencies of the last minutes, in steps of time, for plots. Pure.

Each step keeps sums, so that stacked means add up to the mean of the whole, and a bounded sample of totals
for its 95th percentile. Memory is bounded by steps, cameras and sample.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from vedette.wire.messages import LatencyMs

STAGES = ("transport", "queue", "preprocess", "infer", "postprocess")
STEP_S = 2.0
STEPS = 150
MAX_CAMERAS = 64
MAX_SAMPLE = 256


class LatencySeries(msgspec.Struct, frozen=True):
    """One camera's plot: for each step its age at the end and its figures; steps without answers are absent.

    `age_s` counts back from now. `stages_ms` are means, one list a stage in the order of STAGES.
    """

    step_s: float
    span_s: float
    age_s: list[float]
    answers: list[int]
    stages_ms: dict[str, list[float]]
    p95_ms: list[float]


class _Step:
    __slots__ = ("answers", "number", "sums_ms", "totals_ms")

    def __init__(self, number: int) -> None:
        self.number = number
        self.answers = 0
        self.sums_ms = [0.0] * len(STAGES)
        self.totals_ms: list[float] = []

    def add(self, latency: LatencyMs) -> None:
        self.answers += 1
        stages = (
            latency.transport,
            latency.queue,
            latency.preprocess,
            latency.infer,
            latency.postprocess,
        )
        for index, value_ms in enumerate(stages):
            self.sums_ms[index] += max(0.0, value_ms)
        if len(self.totals_ms) < MAX_SAMPLE:
            self.totals_ms.append(latency.total)

    def p95_ms(self) -> float:
        """Nearest rank."""
        ordered = sorted(self.totals_ms)
        return ordered[max(0, -(-95 * len(ordered) // 100) - 1)]


class LatencyHistory:
    """Steps of each camera; times are monotonic."""

    def __init__(self) -> None:
        self._cameras: dict[str, deque[_Step]] = {}

    def add(self, camera: str, latency: LatencyMs, now_ns: int) -> None:
        """One answer that came just now; cameras beyond MAX_CAMERAS have no plot."""
        steps = self._cameras.get(camera)
        if steps is None:
            if len(self._cameras) >= MAX_CAMERAS:
                return
            steps = self._cameras[camera] = deque(maxlen=STEPS)
        number = _step_of(now_ns)
        if not steps or steps[-1].number != number:
            steps.append(_Step(number))
        steps[-1].add(latency)

    def series(self, now_ns: int) -> dict[str, LatencySeries]:
        """What to plot for each camera that answered within the span."""
        newest = _step_of(now_ns)
        recent = {
            camera: [step for step in steps if newest - step.number < STEPS]
            for camera, steps in self._cameras.items()
        }
        return {camera: _series(steps, newest) for camera, steps in recent.items() if steps}


def _step_of(now_ns: int) -> int:
    return int(now_ns // round(STEP_S * 1e9))


def _series(steps: list[_Step], newest: int) -> LatencySeries:
    return LatencySeries(
        step_s=STEP_S,
        span_s=STEP_S * STEPS,
        age_s=[(newest - step.number) * STEP_S for step in steps],
        answers=[step.answers for step in steps],
        stages_ms={
            stage: [round(step.sums_ms[index] / step.answers, 3) for step in steps]
            for index, stage in enumerate(STAGES)
        },
        p95_ms=[round(step.p95_ms(), 3) for step in steps],
    )
