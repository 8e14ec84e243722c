"""A candidate beside the live model: compared on the same frames, heard by nobody, felt by nobody."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.stubs.played_bundles import played_bundle, played_worker
from tests.stubs.processes import alive
from tests.stubs.running import REPOSITORY, Running, camera, frame_call, plan
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

LIVE = "synthetic:64x48@25"


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle that serves; its answers follow the picture."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return played_bundle(tmp_path / "one", answer="echo")


def started(bundle: Path, **changes: object) -> Running:
    return Running(plan(played_worker(bundle), camera("front", LIVE, live=True), **changes))


def shadow_pid(run: Running) -> int:
    worker = run.daemon.swap._shadow.worker
    assert worker is not None
    return worker.child.pid


def shadowed(run: Running, pairs: int) -> None:
    until(
        lambda: run.daemon.live.stats().shadowed >= pairs,
        f"{pairs} frames were compared; {run.daemon.live.stats()}; said {run.said}",
    )


def priority_of(pid: int) -> tuple[int, int]:
    """Its scheduling class and its niceness."""
    return os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)


def untouched(run: Running) -> None:
    """Every frame was answered by the first model."""
    assert run.failures("front") == []
    # On a busy machine a live frame may be late; the bench is strict.
    assert set(run.counts("front").dropped) <= {"no_worker", "shutdown", "superseded"}
    assert {result.model.version for result in run.sink.of("front")} == {"one"}


def test_an_equal_candidate_agrees_on_every_frame_and_answers_none(first: Path, tmp_path: Path) -> None:
    """The shadow's results are compared and shown to nobody; it ends when it is told to."""
    same = played_bundle(tmp_path / "same", answer="echo")
    with started(first) as run:
        run.until_answers("front")
        run.daemon.live.start_shadow(same)
        shadowed(run, 15)
        stats = run.daemon.live.stats()
        assert (stats.disagreed, stats.failed, stats.worker_deaths) == (0, 0, 0)
        assert not stats.constant_answers
        assert stats.p95_ms is not None
        pid = shadow_pid(run)
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        assert run.daemon.live.serving() == first
        run.daemon.live.stop_shadow()
        until(lambda: not alive(pid), "the shadow ends")
    untouched(run)


def test_a_slow_candidate_with_other_answers_is_found_out(first: Path, tmp_path: Path) -> None:
    """Another top class on every frame, the same one always, slower: three facts, and the frames go on."""
    labels = {"labels.txt": b"cyan\nmagenta\nyellow\nkey\n"}
    other = played_bundle(tmp_path / "other", files=labels, fill="0.5", run_s="0.012")
    with started(first) as run:
        run.until_answers("front")
        run.daemon.live.start_shadow(other)
        shadowed(run, 31)
        stats = run.daemon.live.stats()
    assert stats.disagreed == stats.shadowed
    assert stats.constant_answers
    assert stats.p95_ms is not None
    assert stats.p95_ms > 0.99 * 12  # what it sleeps
    untouched(run)


def test_a_shadow_that_crashes_or_hangs_is_a_fact_and_is_given_up_after_three_tries(
    first: Path, tmp_path: Path
) -> None:
    """SIGSEGV in its second frame, each time."""
    bad = played_bundle(tmp_path / "bad", answer="echo", crash_on=frame_call(2))
    with started(first) as run:
        run.until_answers("front")
        pid = run.worker_pid()
        run.daemon.live.start_shadow(bad)
        until(lambda: run.daemon.live.stats().given_up, "the shadow is given up")
        stats = run.daemon.live.stats()
        assert stats.worker_deaths == 3
        assert stats.last_death.startswith("worker_crashed: killed by SIGSEGV")
        run.until_answers("front", 2)
        assert run.worker_pid() == pid
    untouched(run)


def test_a_shadow_that_hangs_is_killed(first: Path, tmp_path: Path) -> None:
    """It slept, so the CPU it lacked is no excuse."""
    bad = played_bundle(tmp_path / "bad", answer="echo", hang_on=frame_call(2))
    with started(first, hang_timeout_s=0.4) as run:
        run.until_answers("front")
        run.daemon.live.start_shadow(bad)
        until(lambda: run.daemon.live.stats().worker_deaths >= 1, "the hang is found")
        assert run.daemon.live.stats().last_death.startswith("worker_hung: ")
    untouched(run)


def test_case_5_a_shadow_that_does_not_load_is_tried_once(first: Path, tmp_path: Path) -> None:
    """Case 5: the same bundle is wrong again."""
    bad = played_bundle(tmp_path / "bad", load_fail="bundle")
    with started(first) as run:
        run.until_answers("front")
        run.daemon.live.start_shadow(bad)
        until(lambda: run.daemon.live.stats().given_up, "the shadow is given up")
        stats = run.daemon.live.stats()
        assert (stats.worker_deaths, stats.last_death) == (1, "load_fail: the stub does not take this model")
    untouched(run)


def test_case_4_without_memory_for_two_models_no_shadow_is_started(first: Path, tmp_path: Path) -> None:
    """Case 4: headroom is looked at before a second model is loaded."""
    same = played_bundle(tmp_path / "same", answer="echo")
    with started(first, headroom_bytes=1 << 60) as run:
        run.until_answers("front")
        run.daemon.live.start_shadow(same)
        until(lambda: run.daemon.live.stats().given_up, "the shadow is given up")
        assert "of memory are available" in run.daemon.live.stats().last_death
    untouched(run)


@pytest.mark.parametrize("confined", [False, True], ids=["may-rise", "may-not"])
def test_a_switch_to_the_shadowed_model_takes_its_worker_where_the_system_lets_it_rise(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, confined: bool
) -> None:
    """No second load; a worker that must stay at low priority is never the one that serves."""
    if not confined and os.geteuid() != 0:
        pytest.skip("only root, or LimitNICE, may raise a priority again")
    second = played_bundle(tmp_path / "two", answer="echo")
    if confined:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(_confined(tmp_path)), str(REPOSITORY)]))
    with started(first) as run:
        run.until_answers("front")
        normal = priority_of(run.worker_pid())
        run.daemon.live.start_shadow(second)
        shadowed(run, 3)
        pid = shadow_pid(run)
        run.daemon.live.switch(second, trial=True)
        until(lambda: run.daemon.live.serving() == second, f"the second serves; said {run.said}")
        assert (run.worker_pid() == pid) is not confined
        until(lambda: priority_of(run.worker_pid()) == normal, "normal priority")
        run.until_answers("front", 2)
        if confined:
            until(lambda: not alive(pid), "the shadow ends")
    assert run.failures("front") == []


def _confined(tmp_path: Path) -> Path:
    """A folder whose `sitecustomize` takes from every child what lets a priority rise."""
    folder = tmp_path / "confined"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import os\n"
        "lower = os.setpriority\n"
        "def setpriority(which, who, priority):\n"
        "    if priority < os.getpriority(which, who):\n"
        "        raise PermissionError(13, 'confined')\n"
        "    lower(which, who, priority)\n"
        "os.setpriority = setpriority\n",
        encoding="utf-8",
    )
    return folder


def test_a_lossless_source_waits_for_no_shadow(first: Path, tmp_path: Path) -> None:
    """Stopped dead in the middle of its work, it holds no slot of a ring of two."""
    slow = played_bundle(tmp_path / "slow", answer="echo", run_s="0.02")
    source = camera("file", "synthetic:64x48", slots=2)
    with Running(plan(played_worker(first), source, shadow_every=2)) as run:
        run.until_answers("file")
        run.daemon.live.start_shadow(slow)
        shadowed(run, 3)
        os.kill(shadow_pid(run), signal.SIGSTOP)
        run.until_answers("file", 2000)
    assert run.failures("file") == []
    assert set(run.counts("file").dropped) <= {"shutdown"}
