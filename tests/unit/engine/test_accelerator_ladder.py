"""The ladder: which rung holds, what is said of the others, and what each policy makes of it."""

from __future__ import annotations

import pytest

from vedette.clock import ManualClock
from vedette.engine.accelerator import (
    Climb,
    Placement,
    RungRefusedError,
    announce,
    canonical,
    climb,
    compose_report,
    ladder,
    median_ms,
    satisfies,
    with_rejected,
)
from vedette.engine.port import OnFallback
from vedette.errors import EngineUnavailableError
from vedette.wire.messages import AcceleratorReport, Skipped


class Box:
    """A box on which some accelerators work and others give a reason; notes what was tried."""

    def __init__(self, *good: str) -> None:
        self.good = good
        self.tried: list[str] = []
        self.lines: list[str] = []

    def attempt(self, rung: str) -> Placement[str]:
        self.tried.append(rung)
        if rung not in self.good:
            raise RungRefusedError(f"no {rung} here")
        return Placement(f"model on {rung}", rung, {rung: 9}, "seen")

    def climb(self, *rungs: str, on_fallback: OnFallback = OnFallback.WARN) -> Climb[str]:
        return climb(rungs, self.attempt, on_fallback=on_fallback, progress=self.lines.append)

    def report(self, *rungs: str, on_fallback: OnFallback) -> AcceleratorReport:
        done = self.climb(*rungs, on_fallback=on_fallback)
        return compose_report(
            done,
            runtime="box 1",
            asked=rungs,
            on_fallback=on_fallback,
            threads=1,
            check_ms=1.0,
            load_ms=2.0,
        )


def test_the_first_rung_that_holds_wins_and_each_other_keeps_its_reason() -> None:
    """Case 1: a reason is kept for every accelerator that was skipped, in order."""
    done = Box("cuda", "cpu").climb("tensorrt", "rocm", "cuda", "cpu")
    assert done.placement.effective == "cuda"
    assert done.skipped == (Skipped("tensorrt", "no tensorrt here"), Skipped("rocm", "no rocm here"))


def test_with_fail_nothing_below_the_first_rung_is_even_tried() -> None:
    """Loading takes minutes on a small board; a rung that nobody accepts is not loaded."""
    box = Box("cpu")
    with pytest.raises(EngineUnavailableError, match="cuda: no cuda here") as caught:
        box.climb("cuda", "cpu", on_fallback=OnFallback.FAIL)
    assert box.tried == ["cuda"]
    assert caught.value.cure is not None
    assert "on_fallback" in caught.value.cure


def test_when_no_rung_holds_the_error_has_every_reason() -> None:
    """Without the CPU in the ladder there may be nothing to run on, whatever the policy."""
    with pytest.raises(
        EngineUnavailableError, match="tensorrt: no tensorrt here; cuda: no cuda here"
    ) as caught:
        Box("cpu").climb("tensorrt", "cuda", on_fallback=OnFallback.ALLOW)
    assert caught.value.cure is not None
    assert "add cpu" in caught.value.cure


@pytest.mark.parametrize(("policy", "degraded"), [(OnFallback.WARN, True), (OnFallback.ALLOW, False)])
def test_a_fallback_degrades_unless_it_was_allowed(policy: OnFallback, degraded: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """Case 1: the effective accelerator is in the report, not the wish."""
    report = Box("cpu").report("cuda", "cpu", on_fallback=policy)
    assert (report.effective, report.degraded) == ("cpu", degraded)
    assert report.skipped == (Skipped("cuda", "no cuda here"),)


@pytest.mark.parametrize("policy", list(OnFallback))
def test_the_first_rung_in_effect_is_never_degraded(policy: OnFallback) -> None:
    """Nothing to complain about."""
    assert not Box("cuda").report("cuda", "cpu", on_fallback=policy).degraded


def test_an_opened_rung_that_runs_elsewhere_fails_under_fail() -> None:
    """Case 1: asked for CUDA, told it is CUDA, found to be the CPU."""
    done = Climb(Placement("model", "cpu", {}, "the session lists cpu"), ())
    with pytest.raises(EngineUnavailableError, match="cuda was required, but the model runs on cpu"):
        compose_report(
            done,
            runtime="r",
            asked=("cuda",),
            on_fallback=OnFallback.FAIL,
            threads=1,
            check_ms=0,
            load_ms=0,
        )


def test_a_degraded_report_is_announced_with_the_reasons() -> None:
    """One error line says what was asked, what is, and why."""
    lines: list[str] = []
    announce(Box("cpu").report("cuda", "cpu", on_fallback=OnFallback.WARN), lines.append)
    assert len(lines) == 1
    assert lines[0].startswith("DEGRADED: cuda was asked for, runs on cpu (cuda: no cuda here)")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("TRT", "tensorrt"), (" CUDA ", "cuda"), ("TensorRT_RTX", "tensorrt-rtx"), ("coral", "edgetpu")],
)
def test_names_have_one_spelling(written: str, meant: str) -> None:
    """Configuration files spell as people do."""
    assert canonical(written) == meant


def test_a_ladder_has_each_rung_once_and_the_cpu_when_empty() -> None:
    """Order is kept, repetition is not."""
    assert ladder(["TRT", "cuda", "tensorrt", "cpu", "CPU"]) == ("tensorrt", "cuda", "cpu")
    assert ladder([]) == ("cpu",)


@pytest.mark.parametrize(
    ("effective", "asked", "met"),
    [("cuda", "gpu", True), ("webgpu", "gpu", True), ("cpu", "gpu", False), ("cuda", "tensorrt", False)],
)
def test_plain_gpu_is_met_by_any_gpu(effective: str, asked: str, met: bool) -> None:  # noqa: FBT001 - a parameter of the table
    """But never by the CPU, and a named accelerator only by itself."""
    assert satisfies(effective, asked) is met


def test_rungs_thrown_out_by_the_self_test_stand_in_the_final_report() -> None:
    """Case 8: the effective accelerator and the wrong one are both told."""
    report = Box("cpu").report("cpu", on_fallback=OnFallback.WARN)
    rejected = (Skipped("edgetpu", "failed the self-test"),)
    final = with_rejected(report, ("edgetpu", "cpu"), rejected, OnFallback.WARN)
    assert (final.asked, final.skipped, final.degraded) == (("edgetpu", "cpu"), rejected, True)
    assert not with_rejected(report, ("edgetpu", "cpu"), rejected, OnFallback.ALLOW).degraded


def test_check_time_is_the_median_and_slow_models_get_fewer_runs() -> None:
    """One cold outlier does not count; a model of 1.5 s a run is timed twice, not five times."""
    clock = ManualClock()
    times_s = iter([0.9, 0.01, 0.02, 0.03, 0.01])
    assert median_ms(lambda: clock.advance_s(next(times_s)), clock) == pytest.approx(20)
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        clock.advance_s(1.5)

    assert median_ms(slow, clock) == pytest.approx(1500)
    assert len(calls) == 2
