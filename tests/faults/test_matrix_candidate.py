"""Fault matrix: candidates that are bad, on the real data plane: what the trial's figures say of each."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.test_swap_live import given_up, started, switched
from tests.stubs.played_bundles import played_bundle
from tests.stubs.running import REPOSITORY, frame_call
from tests.stubs.waiting import until

from vedette.runtime.swap_table import SwapState
from vedette.update.causes import Cause
from vedette.update.health import Outcome, baseline_of, death_cause, judge_shadow, judge_trial
from vedette.wire.rollout import Guards, Window

if TYPE_CHECKING:
    from tests.stubs.running import Running

WINDOW = Window(1.0, 20, 60.0)
LEAK_MB = 1
ROOM_BYTES = 24 << 20


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle that serves when the daemon starts."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return played_bundle(tmp_path / "one", answer="echo")


def on_trial(run: Running, bundle: Path) -> None:
    """Bring a candidate to answer, on trial."""
    run.until_answers("front", 12)
    run.daemon.live.switch(bundle, trial=True)
    switched(run, bundle)


def limit_memory(pid: int, room_bytes: int) -> None:
    """From now on a process may have so much more than it has, as in a control group that is full."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + room_bytes
    resource.prlimit(pid, resource.RLIMIT_AS, (most, most))


def test_candidate_leaks_1_mb_per_request_and_is_given_up_for_memory(first: Path, tmp_path: Path) -> None:
    """Fault matrix: candidate leaks 1 MB/req: it fails for memory, and the model of before serves again."""
    leaky = played_bundle(tmp_path / "leaky", answer="echo", leak_mb=str(LEAK_MB))
    with started(first) as run:
        on_trial(run, leaky)
        limit_memory(run.worker_pid(), ROOM_BYTES)
        assert death_cause(given_up(run)) is Cause.OOM
        run.until_answers("front", 3)
        assert run.daemon.live.serving() == first
        verdict = judge_trial(
            run.daemon.live.stats(),
            baseline_of(run.daemon.live.baseline()),
            guards=Guards(error_rate=1.0, latency_ratio=1000.0),
            window=WINDOW,
        )
        assert (verdict.outcome, verdict.cause) == (Outcome.FAIL, Cause.OOM)
    assert {cause for _seq, cause, _detail in run.failures("front")} <= {"out_of_memory", "worker_crashed"}


def test_candidate_that_the_kernel_kills_for_memory(first: Path, tmp_path: Path) -> None:
    """Fault matrix: candidate OOM: what the kernel's killer leaves is a SIGKILL that was not ours."""
    second = played_bundle(tmp_path / "two", answer="echo")
    with started(first) as run:
        on_trial(run, second)
        assert run.daemon.swap.state is SwapState.TRIAL
        os.kill(run.worker_pid(), signal.SIGKILL)
        assert death_cause(given_up(run)) is Cause.OOM
        run.until_answers("front", 2)
        assert run.daemon.live.serving() == first


def test_candidate_with_wrong_labels_disagrees_in_its_shadow(first: Path, tmp_path: Path) -> None:
    """Fault matrix: candidate with wrong labels: as many, in another order; every answer has another name."""
    shifted = played_bundle(
        tmp_path / "shifted", answer="echo", files={"labels.txt": b"dark\nred\ngreen\nblue\n"}
    )
    with started(first) as run:
        run.until_answers("front", 3)
        run.daemon.live.start_shadow(shifted)
        until(lambda: run.daemon.live.stats().shadowed >= 30, "frames are compared")
        stats = run.daemon.live.stats()
        verdict = judge_shadow(
            stats,
            baseline_of(run.daemon.live.baseline()),
            guards=Guards(disagreement=0.05),
            window=WINDOW,
        )
        assert stats.disagreed == stats.shadowed
        assert (verdict.outcome, verdict.cause) == (Outcome.FAIL, Cause.DISAGREEMENT)
        assert run.daemon.live.serving() == first


@pytest.mark.parametrize(
    ("play", "cause"),
    [
        ({"check_runs": "1", "crash_on": "1"}, Cause.LOAD_FAIL),
        ({"load_fail": "engine"}, Cause.LOAD_FAIL),
        ({"answer": "echo", "crash_on": frame_call(9)}, Cause.CRASH_LOOP),
        ({"answer": "echo", "hang_on": frame_call(9)}, Cause.WATCHDOG),
        ({"answer": "echo", "oom_on": f"{frame_call(9)}+"}, Cause.OOM),
    ],
    ids=["segfault at load", "load error", "crash", "hang", "OOM"],
)
def test_candidate_dies_and_the_cause_is_right(
    first: Path, tmp_path: Path, play: dict[str, Any], cause: Cause
) -> None:
    """Fault matrix: candidate segfault at load, hang, OOM, crash: right cause, model of before."""
    bad = played_bundle(tmp_path / "bad", **play)
    with started(first, hang_timeout_s=10.0, trial_hang_s=0.5) as run:
        run.until_answers("front", 3)
        run.daemon.live.switch(bad, trial=True)
        assert death_cause(given_up(run)) is cause
        run.until_answers("front", 2)
        assert run.daemon.live.serving() == first
