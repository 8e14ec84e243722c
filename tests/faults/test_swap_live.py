"""Switching models under load: nothing lost, nothing twice, no gap; and candidates that are bad."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.stubs.played_bundles import played_bundle, played_worker
from tests.stubs.processes import alive
from tests.stubs.running import REPOSITORY, Running, camera, frame_call, plan
from tests.stubs.waiting import until

from vedette.runtime.swap_table import SwapState

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.runtime.plan import CameraPlan

FPS = 25
LIVE = f"synthetic:64x48@{FPS}"


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle that serves when the daemon starts."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return played_bundle(tmp_path / "one", answer="echo")


def live_camera(name: str = "front") -> CameraPlan:
    return camera(name, LIVE, live=True)


def started(bundle: Path, *cameras: CameraPlan, **changes: object) -> Running:
    return Running(plan(played_worker(bundle), *(cameras or (live_camera(),)), **changes))


def switched(run: Running, bundle: Path) -> None:
    until(
        lambda: run.daemon.live.serving() == bundle and run.daemon.swap.state in {SwapState.IDLE, SwapState.TRIAL},
        f"{bundle.name} serves; said {run.said}",
    )


def given_up(run: Running) -> str:
    until(lambda: run.daemon.live.stats().given_up, f"the candidate is given up; said {run.said}")
    return run.daemon.live.stats().last_death


def test_fifty_switches_under_load_lose_nothing_and_answer_nothing_twice(first: Path, tmp_path: Path) -> None:
    """Two live cameras and a lossless one; between two models, back and forth."""
    second = played_bundle(tmp_path / "two", answer="echo")
    cameras = (live_camera("left"), live_camera("right"), camera("file", "synthetic:64x48@200", fps=0))
    with started(first, *cameras) as run:
        run.until_answers("left", 5)
        for number in range(50):
            wanted = second if number % 2 == 0 else first
            run.daemon.live.switch(wanted, trial=number % 5 != 0)
            switched(run, wanted)
        run.until_answers("left", 3)
    for name in ("left", "right", "file"):
        results = run.sink.of(name)
        counts = run.counts(name)
        assert counts.failed == {}
        assert set(counts.dropped) <= {"no_worker", "shutdown"}, counts
        seqs = [result.seq for result in results]
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
    assert {result.model.version for result in run.sink.of("left")} == {"one", "two"}
