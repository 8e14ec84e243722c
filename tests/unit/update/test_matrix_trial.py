"""Fault matrix: a whole box ends the trial of a bad candidate, in time, with the right cause, for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import Behaviour, Box

from vedette.update.causes import Cause, Result
from vedette.update.phases import Phase
from vedette.wire.rollout import Guards, Window

if TYPE_CHECKING:
    from pathlib import Path

USUAL = Window(600.0, 200, 86_400.0)  # what a rollout asks for by default
SHADOW = Window(30.0, 100, 600.0)
NINE_MIN_S = 540.0


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


CANDIDATES = {
    "slow x3": (Behaviour(p95_ms=30.0), Cause.LATENCY_P95, 60.0),
    "fails one frame in ten": (Behaviour(failed=0.1), Cause.ERROR_RATE, 60.0),
    "constant answers": (Behaviour(constant=True), Cause.OUTPUT_DRIFT, 60.0),
    "crash after 9 min": (
        Behaviour(dies="worker_crashed: killed by SIGSEGV", dies_after_s=NINE_MIN_S),
        Cause.CRASH_LOOP,
        3 * 600.0,
    ),
    "hang after 9 min": (
        Behaviour(dies="worker_hung: 10 s without an answer", dies_after_s=NINE_MIN_S),
        Cause.WATCHDOG,
        3 * 600.0,
    ),
    "OOM after a leak": (
        Behaviour(dies="worker_crashed: killed by SIGKILL", dies_after_s=NINE_MIN_S),
        Cause.OOM,
        3 * 600.0,
    ),
}


@pytest.mark.parametrize(("behaviour", "cause", "within_s"), CANDIDATES.values(), ids=CANDIDATES.keys())
def test_candidate_is_rolled_back_within_its_window(
    box: Box, behaviour: Behaviour, cause: Cause, within_s: float
) -> None:
    """Fault matrix: candidate: slow x3, leaks, crash after 9 min: right cause, rollback in its window."""
    box.behaviours["1"] = behaviour
    box.offer(1, trial=USUAL)
    box.until_phase(Phase.TRIAL)
    begun_ns = box.clock.monotonic_ns()
    box.until(lambda: box.record.phase is Phase.ROLLBACK, steps=200_000)
    assert (box.clock.monotonic_ns() - begun_ns) / 1e9 <= within_s
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, cause)
    assert box.serving == "0"
    assert len([call for call in box.live.calls if call.startswith("trial")]) <= 3
    box.look().restart().until_looked()
    assert len(box.results()) == 1


def test_candidate_that_dies_early_and_then_behaves_is_confirmed(box: Box) -> None:
    """Fault matrix: candidate: one death is no verdict; the old model answers until the second try."""
    box.behaviours["1"] = Behaviour(dies="worker_crashed: killed by SIGSEGV", dies_after_s=20.0)
    box.offer(1, trial=USUAL)
    box.until_phase(Phase.TRIAL)
    box.until(lambda: box.record.tries_left == 1)
    assert box.serving == "0"
    box.behaviours["1"] = Behaviour()
    assert box.until_result().result is Result.SUCCESS


def test_candidate_with_wrong_labels_is_stopped_by_its_shadow(box: Box) -> None:
    """Fault matrix: candidate with wrong labels: where the rollout compares, it never answers a frame."""
    box.behaviours["1"] = Behaviour(disagrees=1.0)
    box.offer(1, shadow=SHADOW, guards=Guards(disagreement=0.05))
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.DISAGREEMENT)
    assert not any(call.startswith("trial") for call in box.live.calls)
    assert box.serving == "0"


def test_power_flapping_in_the_trial_rolls_back_at_the_third_start(box: Box) -> None:
    """Fault matrix: kill -9 in loops of tries: `tries_left` on disk counts, spent before the load."""
    box.offer(1)
    loads = 0
    box.until_phase(Phase.TRIAL)
    while box.record.phase is Phase.TRIAL:
        loads += sum(call.startswith("trial") for call in box.live.calls)
        assert box.restart().until_serving().serving == "0", "what is proven serves first"
        box.until(lambda: box.record.phase is Phase.TRIAL or box.idle)
    assert loads == 3
    assert [(report.result, report.cause) for report in box.results()] == [
        (Result.FAILED_ROLLED_BACK, Cause.CRASH_LOOP)
    ]


# Before the trial -----------------------------------------------------------------------------------------


def test_candidate_on_another_accelerator_than_production_is_refused(tmp_path: Path) -> None:
    """Preflight: a candidate that falls back to the CPU where the model that serves does not."""
    box = Box(tmp_path, ports={"production": lambda: "cuda"}).start()
    box.offer(1)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.PREFLIGHT_BUDGET)
    assert "runs on cpu; the model that serves runs on cuda" in report.detail
    assert not any(call.startswith("trial") for call in box.live.calls)


def test_memory_short_for_two_models_is_waited_for_and_says_nothing_against_the_candidate(
    tmp_path: Path,
) -> None:
    """Case 4: the preflight waits for memory; when none comes the update ends, and is tried again later."""
    free_bytes = [1 << 20]
    box = Box(tmp_path, ports={"available_bytes": lambda: free_bytes[0]}).start()
    box.offer(1)
    box.until_phase(Phase.PREFLIGHT)
    begun_ns = box.clock.monotonic_ns()
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.OOM)
    assert (box.clock.monotonic_ns() - begun_ns) / 1e9 > 1700
    assert box.record.blacklist == ()
    free_bytes[0] = 1 << 34
    assert box.look_until_result().result is Result.SUCCESS
    assert box.serving == "1"
