"""Engine workers that die, hang or fail: each costs its frame, never the daemon or another camera."""

from __future__ import annotations

import errno
import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.running import Running, camera, frame_call, plan, worker
from tests.stubs.waiting import until

from vedette.errors import BadInputError, UnavailableError
from vedette.runtime.child import Child
from vedette.runtime.plan import RestartPolicy

if TYPE_CHECKING:
    from pathlib import Path

LIVE = "synthetic:64x48@40"


def test_a_worker_killed_from_outside_costs_one_frame_at_most_and_is_replaced(bundle: Path) -> None:
    """SIGKILL in the middle of work, two lossless cameras: every frame is answered but the one in hand."""
    slow = worker(bundle, run_s="0.02")
    cameras = [camera(name, "synthetic:64x48?frames=30") for name in ("left", "right")]
    with Running(plan(slow, *cameras)) as run:
        run.until_answers("left", 5)
        os.kill(run.worker_pid(), signal.SIGKILL)
        run.wait()
    assert run.error is None
    failures = run.failures("left") + run.failures("right")
    assert len(failures) <= 1
    assert all(cause == "worker_crashed" and "SIGKILL" in detail for _, cause, detail in failures)
    for name in ("left", "right"):
        assert [result.seq for result in run.sink.of(name)] == list(range(1, 31))
    assert run.daemon.generation.restarts.total == 1
    assert any("SIGKILL" in line and "next start in" in line for line in run.said)


def test_a_native_crash_in_every_fifth_frame_is_survived_every_time(bundle: Path) -> None:
    """A write to address 0 on each worker's fifth frame: that one fails by name, all others are answered."""
    crashing = worker(bundle, crash_on=frame_call(5))
    with Running(plan(crashing, camera("front", "synthetic:64x48?frames=23"))) as run:
        run.wait()
    assert run.error is None
    assert [seq for seq, _, _ in run.failures("front")] == [5, 10, 15, 20]
    assert {cause for _, cause, _ in run.failures("front")} == {"worker_crashed"}
    assert all("SIGSEGV" in detail for _, _, detail in run.failures("front"))
    counts = run.counts("front")
    assert (counts.frames_in, counts.ok, counts.failed) == (23, 19, {"worker_crashed": 4})
    assert run.daemon.generation.restarts.total == 4


def test_a_worker_that_hangs_in_a_frame_is_killed_and_the_frame_says_so(bundle: Path) -> None:
    """The third frame never returns: after the limit it has failed as hung, and the rest is answered."""
    hanging = worker(bundle, hang_on=frame_call(3))
    with Running(plan(hanging, camera("front", "synthetic:64x48?frames=4"), hang_timeout_s=0.4)) as run:
        run.wait()
    assert run.error is None
    assert run.failures("front") == [(3, "worker_hung", "no answer within 0.4 s")]
    assert run.counts("front").ok == 3


def test_a_stopped_worker_is_found_although_it_was_idle(bundle: Path) -> None:
    """SIGSTOP while no frame is there: no sign of life is a hang, too, and the next frame is served."""
    idle = worker(bundle)
    with Running(plan(idle, camera("front", "synthetic:64x48@2", live=True), hang_timeout_s=0.3)) as run:
        run.until_answers("front")
        first = run.worker_pid()
        os.kill(first, signal.SIGSTOP)
        until(lambda: run.daemon.generation.restarts.total == 1, "the stopped worker is replaced")
        assert run.worker_pid() != first
        run.until_answers("front")
    assert all(cause == "worker_hung" for _, cause, _ in run.failures("front"))


def test_case_4_an_allocation_failure_costs_one_frame_and_no_restart(bundle: Path) -> None:
    """Case 4: out of memory on one call is that frame's failure, the worker serves on."""
    thirsty = worker(bundle, oom_on=frame_call(2))
    with Running(plan(thirsty, camera("front", "synthetic:64x48?frames=5"))) as run:
        run.wait()
    assert [(seq, cause) for seq, cause, _ in run.failures("front")] == [(2, "out_of_memory")]
    assert run.counts("front").ok == 4
    assert run.daemon.generation.restarts.total == 0


@pytest.mark.parametrize(
    ("fault", "cause"), [("oom_on", "out_of_memory"), ("raise_on", "infer")], ids=["oom", "raises"]
)
def test_case_4_a_context_that_stays_sick_is_replaced_after_ten_frames(
    bundle: Path, fault: str, cause: str
) -> None:
    """Case 4: ten failures in a row, then a fresh process; each of the frames has failed by name."""
    sick = worker(bundle, **{fault: frame_call(3) + "+"})
    with Running(plan(sick, camera("front", "synthetic:64x48?frames=26"))) as run:
        run.wait()
    assert run.counts("front").failed == {cause: 20}
    assert [result.seq for result in run.sink.of("front") if not result.failed] == [1, 2, 13, 14, 25, 26]
    assert run.daemon.generation.restarts.total == 2
    assert any("frames in a row failed" in line for line in run.said)


def test_output_that_is_no_answer_fails_by_name_and_needs_no_new_process(bundle: Path) -> None:
    """NaN from the engine is `bad_output`, for every frame, and never an empty answer."""
    with Running(
        plan(
            worker(bundle, "tests.stubs.faulty_plugins:open_nan_later"),
            camera("front", "synthetic:64x48?frames=12"),
        )
    ) as run:
        run.wait()
    assert run.counts("front").failed == {"bad_output": 12}
    assert run.daemon.generation.restarts.total == 0


def test_other_cameras_go_on_and_their_losses_have_a_name(bundle: Path) -> None:
    """Two live cameras, a crash every tenth frame: both get answers after each crash, drops are counted."""
    crashing = worker(bundle, crash_on=frame_call(10))
    with Running(plan(crashing, *(camera(name, LIVE, live=True) for name in ("left", "right")))) as run:
        until(lambda: run.daemon.generation.restarts.total >= 3, "three crashes")
        run.until_answers("left", 2)
        run.until_answers("right", 2)
    failed = run.counts("left").failed_total + run.counts("right").failed_total
    assert failed == run.daemon.generation.restarts.total >= 3
    lost = {**run.counts("left").dropped, **run.counts("right").dropped}
    assert set(lost) <= {"no_worker", "superseded", "stale", "shutdown"}
    assert run.counts("left").dropped.get("no_worker", 0) > 0


def test_a_bundle_that_cannot_be_loaded_ends_the_daemon_at_once(bundle: Path) -> None:
    """The same bundle is wrong again: no second try, exit code 65, the engine's own words."""
    with Running(plan(worker(bundle, load_fail="bundle"), camera("front", LIVE, live=True))) as run:
        run.wait()
    assert isinstance(run.error, BadInputError)
    assert run.error.exit_code == 65
    assert "does not take this model" in run.error.cause
    assert run.daemon.generation.restarts.total == 0


def test_an_engine_that_is_not_there_ends_the_daemon_with_its_cure(bundle: Path) -> None:
    """Exit code 69, and the cure crosses the process border."""
    with Running(plan(worker(bundle, load_fail="engine"), camera("front", LIVE, live=True))) as run:
        run.wait()
    assert isinstance(run.error, UnavailableError)
    assert (run.error.exit_code, run.error.cure) == (69, "tell it otherwise")


def test_a_worker_that_crashes_in_every_load_is_given_up_with_its_last_words(bundle: Path) -> None:
    """After the budget: exit code 69, and what the process last said."""
    policy = RestartPolicy(budget=2, backoff_min_s=0.01, backoff_max_s=0.02)
    crashing = worker(bundle, "tests.stubs.faulty_plugins:open_raising")
    with Running(plan(crashing, camera("front", LIVE, live=True), restart=policy)) as run:
        run.wait()
    assert isinstance(run.error, UnavailableError)
    assert "ended 3 times before it was ready" in run.error.cause
    assert "RuntimeError: the driver is upside down" in run.error.cause
    assert run.error.cure is not None
    assert run.counts("front").ok == 0


def test_a_load_that_never_ends_is_given_up_although_each_try_is_longer_than_the_window(bundle: Path) -> None:
    """The load time-out holds for each try; tries further apart than the window count all the same."""
    policy = RestartPolicy(window_s=0.05, budget=1, backoff_min_s=0.01, backoff_max_s=0.02)
    hanging = worker(bundle, load_hang="yes")
    with Running(plan(hanging, camera("front", LIVE, live=True), restart=policy, load_timeout_s=1.0)) as run:
        run.wait()
    assert isinstance(run.error, UnavailableError)
    assert "was not ready within 1 s" in run.error.cause


def test_case_2_while_a_model_loads_only_the_newest_frame_is_kept(bundle: Path) -> None:
    """Case 2: a slow load tells its steps; frames meanwhile are `no_worker`, and the newest is answered."""
    slow = worker(bundle, load_s="1.2", load_steps="4")
    with Running(plan(slow, camera("front", LIVE, live=True))) as run:
        run.until_answers("front", 3)
    assert [line for line in run.said if line.startswith("stub: step")] == [
        f"stub: step {step} of 4" for step in (1, 2, 3, 4)
    ]
    lost = run.counts("front").dropped["no_worker"]
    first = run.sink.of("front")[0]
    assert lost > 5
    assert first.seq > lost
    assert first.latency_ms
    assert first.latency_ms.total < 500


def test_case_2_a_lossless_source_waits_for_the_model_and_loses_nothing(bundle: Path) -> None:
    """Case 2: a file is not read into the void while the model loads."""
    slow = worker(bundle, load_s="0.5")
    with Running(plan(slow, camera("front", "synthetic:64x48?frames=30"))) as run:
        run.wait()
    counts = run.counts("front")
    assert (counts.ok, counts.dropped, counts.failed) == (30, {}, {})


def test_case_1_a_lost_accelerator_ends_or_degrades_as_the_policy_says(bundle: Path) -> None:
    """Case 1: with `fail` never ready and exit 69; with `warn` it serves, and says what it really runs on."""
    from msgspec.structs import replace

    from vedette.engine.port import OnFallback

    asked = replace(worker(bundle, effective="cpu"), accelerators=("cuda", "cpu"))
    source = camera("front", "synthetic:64x48?frames=3")
    with Running(plan(replace(asked, on_fallback=OnFallback.FAIL), source)) as refused:
        refused.wait()
    assert isinstance(refused.error, UnavailableError)
    assert "cuda" in refused.error.cause
    assert refused.daemon.generation.ready is None
    with Running(plan(replace(asked, on_fallback=OnFallback.WARN), source)) as warned:
        warned.wait()
    assert warned.error is None
    assert warned.daemon.generation.ready is not None
    report = warned.daemon.generation.ready.accelerator
    assert (report.effective, report.degraded) == ("cpu", True)
    assert [skipped.accelerator for skipped in report.skipped] == ["cuda"]


@pytest.mark.parametrize("source", ["synthetic:64x48?frames=12", "synthetic:64x48@40"])
def test_a_frame_lost_in_a_crash_keeps_the_time_of_its_capture(bundle: Path, source: str) -> None:
    """Its slot may be written anew by then, so the time is kept elsewhere; a hang makes the gap large."""
    hanging = worker(bundle, hang_on=frame_call(4))
    with Running(plan(hanging, camera("front", source), hang_timeout_s=0.5)) as run:
        until(lambda: run.failures("front"), "a frame hangs")
        noticed_ns = time.monotonic_ns()
    results = run.sink.of("front")
    lost = next(index for index, result in enumerate(results) if result.failed)
    assert noticed_ns - results[lost].captured_ns > 0.4e9
    times_ns = [result.captured_ns for result in results]
    assert times_ns == sorted(times_ns)


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ("INFO: Created TensorFlow Lite XNNPACK delegate for CPU.", ""),
        ("I0000 00:00:1700000000.000000 1 x.cc:1] hello", ""),
        ("terminate called without an active exception\nINFO: Created a delegate.", "terminate called"),
        ("W0000 00:00:17 1 x.cc:1] no memory", "W0000"),
    ],
)
def test_a_banner_is_no_cause_of_death(said: str, detail: str) -> None:
    """What libraries print when all is well is passed over; what they complain of is kept."""
    read_fd, write_fd = os.pipe2(os.O_NONBLOCK)
    child = Child.__new__(Child)
    child.stderr_fd, child._stderr = read_fd, b""
    os.write(write_fd, said.encode())
    os.close(write_fd)
    try:
        words = child.last_words()
    finally:
        os.close(read_fd)
    assert words.startswith(detail)
    assert bool(words) == bool(detail)


def test_a_worker_that_finds_no_descriptor_left_is_told_from_a_bad_bundle(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ulimit -n 12`: the cure is the limit, not the bundle."""

    def start(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("vedette.runtime.generation.WorkerProcess", start)
    restart = RestartPolicy(budget=1, backoff_min_s=0.001, backoff_max_s=0.002)
    with Running(plan(worker(bundle), camera("front", LIVE, live=True), restart=restart)) as run:
        run.wait()
    assert isinstance(run.error, UnavailableError)
    assert run.error.cure is not None
    assert "LimitNOFILE" in run.error.cure
