"""Many restarts and many frames leave nothing behind in the daemon."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.stubs.processes import open_descriptors
from tests.stubs.running import Running, camera, frame_call, plan, worker
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def test_twenty_restarts_and_two_thousand_frames_cost_no_descriptor_and_no_thread(bundle: Path) -> None:
    """Case 4, the kind: a worker that dies every hundredth frame costs that frame and nothing else."""
    crashing = worker(bundle, crash_on=frame_call(100))
    with Running(plan(crashing, camera("front", "synthetic:64x48?frames=2050"))) as run:
        until(lambda: run.daemon.generation.restarts.total >= 2 and run.daemon.generation.serving, "warm")
        descriptors, threads = open_descriptors(), threading.active_count()
        until(
            lambda: run.daemon.generation.restarts.total >= 20 and run.daemon.generation.serving,
            "20 restarts",
            timeout_s=60,
        )
        assert open_descriptors() <= descriptors
        assert threading.active_count() <= threads
        run.wait()
    counts = run.counts("front")
    assert (counts.ok, counts.failed) == (2030, {"worker_crashed": 20})


def test_a_daemon_that_has_ended_leaves_no_descriptor_and_no_thread(bundle: Path) -> None:
    """After two whole runs in this process there is as much open as after one."""
    spec = plan(worker(bundle), camera("front", "synthetic:64x48?frames=5"))
    counts = []
    for _ in range(2):
        with Running(spec) as run:
            run.wait()
        run.stopping.close()
        counts.append((open_descriptors(), threading.active_count()))
    assert counts[1] == counts[0]
