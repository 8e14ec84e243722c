"""The contract of the port Live, kept by the data plane and by the fake that the driver's tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest
from tests.stubs.played_bundles import played_bundle, played_worker
from tests.stubs.running import REPOSITORY, Running, camera, frame_call, plan
from tests.stubs.waiting import until
from tests.unit.update.box import Behaviour, FakeLive

from vedette.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vedette.update.ports import Live


class Stage(Protocol):
    """A data plane that serves `first`, and time that can be waited for."""

    live: Live
    first: Path

    def bundle(self, name: str, fault: str = "") -> Path:
        """Another bundle; `fault` is `load` or `crash`."""
        ...

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until it is so."""
        ...


class FakeStage:
    """The fake, on a clock that is moved by waiting."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = ManualClock()
        self.first = played_bundle(folder / "one")
        self._live = FakeLive(self._clock, self.first)
        self.live: Live = self._live

    def bundle(self, name: str, fault: str = "") -> Path:
        if fault == "load":
            self._live.behaviours[name] = Behaviour(dies="load_fail: it was told to")
        elif fault == "crash":
            self._live.behaviours[name] = Behaviour(
                dies="worker_crashed: killed by SIGSEGV", dies_after_s=0.5
            )
        return played_bundle(self._folder / name)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(2000):
            if condition():
                return
            self._clock.advance_s(0.02)
        raise AssertionError(f"never: {what}")


class RealStage:
    """The daemon's data plane, with one camera and real workers."""

    def __init__(self, folder: Path, running: Running, first: Path) -> None:
        self._folder = folder
        self.first = first
        self.live: Live = running.daemon.live

    def bundle(self, name: str, fault: str = "") -> Path:
        root = self._folder / name
        if fault == "load":
            return played_bundle(root, load_fail="bundle")
        if fault == "crash":
            return played_bundle(root, answer="echo", crash_on=frame_call(5))
        return played_bundle(root, answer="echo")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what)


@pytest.fixture(params=["fake", "real"])
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    if request.param == "fake":
        played = FakeStage(tmp_path)
        played.wait(lambda: played.live.serving() == played.first, "the first bundle serves")
        yield played
        return
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    first = played_bundle(tmp_path / "one", answer="echo")
    run_plan = plan(played_worker(first), camera("front", "synthetic:64x48@25", live=True))
    with Running(run_plan) as running:
        made = RealStage(tmp_path, running, first)
        made.wait(lambda: made.live.serving() == first, "the first bundle serves")
        running.until_answers("front", 3)
        yield made


def test_what_serves_is_counted(stage: Stage) -> None:
    """From the start, without anybody asking for it; the window before now is the baseline."""
    stage.wait(lambda: stage.live.stats().frames >= 5, "frames are counted")
    stats, baseline = stage.live.stats(), stage.live.baseline()
    assert stats.failed == 0
    assert stats.p95_ms is not None
    assert stats.elapsed_s > 0
    assert not stats.given_up
    assert baseline.frames > 0
    assert baseline.p95_ms is not None


def test_a_switch_in_trial_serves_the_new_bundle_and_confirm_keeps_it(stage: Stage) -> None:
    """Its figures begin with it."""
    second = stage.bundle("two")
    stage.live.switch(second, trial=True)
    assert stage.live.stats().frames == 0
    assert stage.live.serving() == stage.first
    stage.wait(lambda: stage.live.serving() == second, "the second bundle serves")
    stage.wait(lambda: stage.live.stats().frames >= 3, "it answers")
    stage.live.confirm()
    stage.wait(lambda: stage.live.stats().frames >= 10, "it goes on")
    assert stage.live.serving() == second


def test_the_way_back_is_a_switch_without_a_trial(stage: Stage) -> None:
    """As in a rollback for a verdict."""
    second = stage.bundle("two")
    stage.live.switch(second, trial=True)
    stage.wait(lambda: stage.live.serving() == second, "the second bundle serves")
    stage.live.switch(stage.first)
    stage.wait(lambda: stage.live.serving() == stage.first, "the first bundle serves again")
    assert not stage.live.stats().given_up


def test_a_bundle_that_does_not_load_is_given_up_while_the_first_serves(stage: Stage) -> None:
    """It says so, in the words that a cause is made of."""
    stage.live.switch(stage.bundle("two", "load"), trial=True)
    stage.wait(lambda: stage.live.stats().given_up, "it is given up")
    assert stage.live.stats().last_death.startswith("load_fail:")
    assert stage.live.serving() == stage.first


def test_a_candidate_that_crashes_gives_way_to_the_first(stage: Stage) -> None:
    """By itself, at once."""
    stage.live.switch(stage.bundle("two", "crash"), trial=True)
    stage.wait(lambda: stage.live.stats().given_up, "it is given up")
    assert stage.live.stats().last_death.startswith("worker_crashed:")
    assert stage.live.stats().worker_deaths >= 1
    stage.wait(lambda: stage.live.serving() == stage.first, "the first bundle serves again")


def test_a_shadow_is_compared_and_answers_nobody(stage: Stage) -> None:
    """The first goes on serving; after the shadow's end nothing of it is left."""
    stage.live.start_shadow(stage.bundle("two"))
    stage.wait(lambda: stage.live.stats().shadowed >= 3, "it is compared")
    assert stage.live.stats().disagreed == 0
    assert stage.live.serving() == stage.first
    stage.live.stop_shadow()
    assert stage.live.serving() == stage.first
