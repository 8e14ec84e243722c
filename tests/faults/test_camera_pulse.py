"""When a source counts as lost, with a real child and a clock that the test moves."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.running import QUICK_RESTARTS, REPOSITORY, camera
from tests.stubs.waiting import until

from vedette.clock import ManualClock
from vedette.runtime.camera import Camera, CameraState
from vedette.runtime.restart import Restarts
from vedette.runtime.ring_budget import RingBudget

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR_NS = 3_600_000_000_000
STALL_S = 5.0


class Bench:
    """One camera whose supervisor lives an hour ahead: every pulse that its child gives is an old one."""

    def __init__(self) -> None:
        self.clock = ManualClock(time.monotonic_ns() + HOUR_NS)
        self.said: list[str] = []
        self.camera = Camera(
            camera("front", "synthetic:64x48@20", live=True, stall_s=STALL_S),
            clock=self.clock,
            restarts=Restarts(QUICK_RESTARTS, self.clock, random.Random(1)),  # noqa: S311 - jitter
            budget=RingBudget(1 << 20),
            say=self.said.append,
        )

    def start(self) -> None:
        """Up to the moment in which the child is lent its ring."""
        self.camera.tick(worker_ready=False)
        until(self._opened, "the source is open")
        self.camera.tick(worker_ready=False)
        assert self.camera.state is CameraState.RUNNING

    def _opened(self) -> bool:
        self.camera.listen()
        return self.camera.state is CameraState.HELD

    def dies(self) -> bool:
        """Whether the child is dead; it is buried then."""
        child = self.camera.child
        status = None if child is None else child.exited()
        if status is not None:
            self.camera.buried(status)
        return status is not None


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    made = Bench()
    yield made
    made.camera.close()


def test_a_child_has_the_whole_stall_time_for_its_first_pulse(bench: Bench) -> None:
    """The pulse in the ring is that of the dead child before, or none: it is not held against the new one."""
    bench.start()
    bench.clock.advance_s(STALL_S - 0.1)
    bench.camera.tick(worker_ready=False)
    assert bench.camera._killed_for == ""
    bench.clock.advance_s(0.2)
    bench.camera.tick(worker_ready=False)
    until(bench.dies, "the source is killed")
    assert bench.camera.state is CameraState.WAITING
    assert any("no sign of life for 5 s" in line for line in bench.said)


def test_the_next_child_has_it_again_on_the_same_ring(bench: Bench) -> None:
    """Killed for a stall, started again after the pause, lent the same ring: it has its own time."""
    bench.start()
    ring = bench.camera.ring
    bench.clock.advance_s(STALL_S + 1)
    bench.camera.tick(worker_ready=False)
    until(bench.dies, "the source is killed")
    bench.clock.advance_s(QUICK_RESTARTS.backoff_max_s)
    bench.start()
    assert bench.camera.ring is ring
    bench.camera.tick(worker_ready=False)
    assert bench.camera._killed_for == ""
    assert bench.camera.restarts.total == 1


def test_a_source_that_does_not_open_is_killed_after_its_own_time(bench: Bench) -> None:
    """The opening's limit and the interpreter's start together, not the stall time."""
    bench.camera.tick(worker_ready=False)
    assert bench.camera.state is CameraState.OPENING
    bench.clock.advance_s(bench.camera.plan.source.open_timeout_s + 11)
    bench.camera.tick(worker_ready=False)
    until(bench.dies, "the source is killed")
    assert bench.camera.error is not None
    assert "did not open within 15 s" in bench.camera.error.cause
