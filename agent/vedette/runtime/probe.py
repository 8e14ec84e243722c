"""Find out in a child process what a bundle runs on and how fast; a crash of the engine is a verdict."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import InternalError
from vedette.runtime.benchmark import PathClient, percentiles, synthetic_frame, timed
from vedette.wire.messages import AcceleratorReport, ModelRef, SelfTest

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.engine.messages import WorkerSpec

FRAME_WIDTH, FRAME_HEIGHT = 640, 480


class ProbeReport(msgspec.Struct, frozen=True):
    """What was found; times in milliseconds on the monotonic clock, one frame at a time."""

    model: ModelRef
    task: str
    accelerator: AcceleratorReport
    self_test: SelfTest
    ready_ms: float
    frame: str
    p50_ms: float
    p95_ms: float


def run_probe(spec: WorkerSpec, *, runs: int, say: Callable[[str], None]) -> ProbeReport:
    """Load, self-test and time a bundle in a worker process.

    Raises:
        VedetteError: The bundle or the engine is not usable; a crash comes with the worker's last words.
    """
    start_ns = time.monotonic_ns()
    client = PathClient(spec, synthetic_frame(FRAME_WIDTH, FRAME_HEIGHT), say)
    try:
        ready_ms = (time.monotonic_ns() - start_ns) / 1e6
        ready = client.worker.ready
        if ready is None:
            raise InternalError("the client waited until the worker was ready")
        taken = percentiles(timed(client, runs))
    finally:
        client.close()
    return ProbeReport(
        model=ready.model,
        task=ready.task,
        accelerator=ready.accelerator,
        self_test=ready.self_test,
        ready_ms=round(ready_ms, 1),
        frame=f"{FRAME_WIDTH}x{FRAME_HEIGHT}",
        p50_ms=round(taken.p50 / 1e3, 3),
        p95_ms=round(taken.p95 / 1e3, 3),
    )
