"""Verdicts on a candidate: at the limits, too early, too late, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from vedette.update.causes import Cause
from vedette.update.health import (
    ERROR,
    Outcome,
    Policy,
    Verdict,
    baseline_of,
    death_cause,
    evidence,
    frames_to_pass,
    judge_shadow,
    judge_trial,
    wilson,
)
from vedette.update.ports import WindowStats
from vedette.update.record import Baseline
from vedette.wire.rollout import Guards, Window

WINDOW = Window(min_s=600.0, min_frames=200, max_s=3600.0)
GUARDS = Guards(latency_ratio=1.5, error_rate=0.02, disagreement=0.03)
BASELINE = Baseline(frames=1000, failed=0, p95_ms=10.0)
GOOD = WindowStats(elapsed_s=600.0, frames=1000, failed=0, p95_ms=10.0, worker_deaths=0, last_death="")
SHADOWED = replace(GOOD, shadowed=1000)


def trial(stats: WindowStats, baseline: Baseline | None = BASELINE, **options: object) -> Verdict:
    return judge_trial(stats, baseline, guards=GUARDS, window=WINDOW, **options)  # type: ignore[arg-type]


def said(verdict: Verdict) -> tuple[str, Cause | None]:
    return verdict.outcome.value, verdict.cause


@pytest.mark.parametrize(
    ("elapsed_s", "frames", "outcome"),
    [(600.0, 200, "pass"), (599.9, 10_000, "inconclusive"), (3000.0, 199, "inconclusive")],
)
def test_a_window_closes_after_its_time_and_its_frames(elapsed_s: float, frames: int, outcome: str) -> None:
    assert trial(replace(GOOD, elapsed_s=elapsed_s, frames=frames)).outcome.value == outcome


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy.ROLLBACK, ("fail", Cause.TRIAL_TIMEOUT)),
        (Policy.CONFIRM, ("pass", None)),
        (Policy.HOLD, ("inconclusive", None)),
    ],
)
def test_too_few_frames_at_the_end_are_decided_by_policy(
    policy: Policy, expected: tuple[str, Cause | None]
) -> None:
    few = replace(GOOD, elapsed_s=3600.0, frames=199)
    assert said(trial(few, policy=policy)) == expected


def test_time_of_trials_before_a_restart_counts_towards_the_end_only() -> None:
    early = replace(GOOD, elapsed_s=100.0, frames=50)
    assert said(trial(early, used_before_s=3000.0)) == ("inconclusive", None)
    assert said(trial(early, used_before_s=3500.0)) == ("fail", Cause.TRIAL_TIMEOUT)


def test_figures_on_the_brink_are_decided_by_what_they_are_when_time_is_up() -> None:
    brink = replace(GOOD, failed=19)
    assert said(trial(brink)) == ("inconclusive", None)
    assert said(trial(replace(brink, elapsed_s=3600.0))) == ("pass", None)
    over = replace(brink, elapsed_s=3600.0, failed=21)
    assert said(trial(over)) == ("fail", Cause.ERROR_RATE)


def test_failing_frames_end_a_trial_early() -> None:
    assert said(trial(replace(GOOD, elapsed_s=5.0, frames=10, failed=5))) == ("fail", Cause.ERROR_RATE)
    assert said(trial(replace(GOOD, elapsed_s=5.0, frames=1, failed=1))) == ("inconclusive", None)


def test_a_camera_that_fails_with_any_model_is_not_the_candidate_s_fault() -> None:
    poor = replace(BASELINE, failed=100)
    assert said(trial(replace(GOOD, failed=90), poor)) == ("pass", None)
    assert said(trial(replace(GOOD, failed=90))) == ("fail", Cause.ERROR_RATE)
    assert said(trial(replace(GOOD, failed=250), poor)) == ("fail", Cause.ERROR_RATE)


def test_a_candidate_three_times_slower_is_caught_within_seconds() -> None:
    slow = replace(GOOD, elapsed_s=10.0, frames=150, p95_ms=30.0)
    assert said(trial(slow)) == ("fail", Cause.LATENCY_P95)
    assert "3.00 times" in trial(slow).detail


@pytest.mark.parametrize(("p95_ms", "outcome"), [(15.0, "pass"), (15.1, "inconclusive"), (40.0, "fail")])
def test_latency_at_its_limit(p95_ms: float, outcome: str) -> None:
    assert trial(replace(GOOD, p95_ms=p95_ms)).outcome.value == outcome
    late = replace(GOOD, p95_ms=p95_ms, elapsed_s=3600.0)
    assert trial(late).outcome.value == ("pass" if p95_ms <= 15.0 else "fail")


@pytest.mark.parametrize("baseline", [None, Baseline(29, 0, 1.0), Baseline(1000, 1000, None)])
def test_without_a_baseline_latency_is_said_to_be_unjudged(baseline: Baseline | None) -> None:
    verdict = trial(replace(GOOD, p95_ms=900.0), baseline)
    assert said(verdict) == ("pass", None)
    assert verdict.unjudged == ("latency_p95",)


def test_the_same_answer_to_everything_is_drift_unless_the_scene_is_dull() -> None:
    constant = replace(GOOD, elapsed_s=7.0, frames=100, constant_answers=True)
    assert said(trial(constant)) == ("fail", Cause.OUTPUT_DRIFT)
    assert said(trial(replace(constant, frames=99))) == ("inconclusive", None)
    assert said(trial(constant, replace(BASELINE, constant_answers=True))) == ("inconclusive", None)


@pytest.mark.parametrize(
    ("last_death", "cause"),
    [
        ("load_fail: no such operator", Cause.LOAD_FAIL),
        ("worker_hung: 10 s without an answer", Cause.WATCHDOG),
        ("worker_crashed: SIGSEGV", Cause.CRASH_LOOP),
        ("worker_crashed: killed by the kernel, out of memory", Cause.OOM),
        ("worker_crashed: killed by SIGKILL", Cause.OOM),
        ("", Cause.CRASH_LOOP),
    ],
)
def test_deaths_have_their_cause(last_death: str, cause: Cause) -> None:
    assert death_cause(last_death) is cause
    dying = replace(GOOD, frames=0, p95_ms=None, worker_deaths=3, last_death=last_death)
    assert said(trial(dying)) == ("fail", cause)
    assert said(trial(replace(dying, worker_deaths=1, given_up=True))) == ("fail", cause)
    assert said(trial(replace(dying, worker_deaths=2))) == ("inconclusive", None)


def test_a_shadow_that_disagrees_fails_and_one_that_does_not_passes() -> None:
    def shadow(disagreed: int, frames: int = 1000, elapsed_s: float = 600.0) -> tuple[str, Cause | None]:
        stats = replace(SHADOWED, shadowed=frames, disagreed=disagreed, elapsed_s=elapsed_s)
        return said(judge_shadow(stats, BASELINE, guards=GUARDS, window=WINDOW))

    assert shadow(10) == ("pass", None)
    assert shadow(29) == ("inconclusive", None)
    assert shadow(29, elapsed_s=3600.0) == ("pass", None)
    assert shadow(31, elapsed_s=3600.0) == ("fail", Cause.DISAGREEMENT)
    assert shadow(100) == ("fail", Cause.DISAGREEMENT)
    assert shadow(0, frames=0, elapsed_s=3600.0) == ("fail", Cause.TRIAL_TIMEOUT)


def test_disagreement_is_not_looked_at_unless_the_rollout_limits_it() -> None:
    stats = replace(SHADOWED, disagreed=1000)
    guards = Guards(disagreement=None)
    assert said(judge_shadow(stats, BASELINE, guards=guards, window=WINDOW)) == ("pass", None)


def test_a_limit_of_nothing_allows_nothing() -> None:
    strict = Guards(error_rate=0.0)
    late = replace(GOOD, elapsed_s=3600.0)
    assert judge_trial(late, None, guards=strict, window=WINDOW).outcome is Outcome.PASS
    assert judge_trial(replace(late, failed=1), None, guards=strict, window=WINDOW).outcome is Outcome.FAIL
    assert evidence(5, 5, 1.0) == -np.inf


def test_wilson_s_interval_by_the_book() -> None:
    """Agresti and Coull: 0 of 10 and 5 of 10 at 95 %."""
    assert wilson(0, 10, 1.96) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(5, 10, 1.96) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 0, 1.96) == (0.0, 1.0)


@pytest.mark.parametrize(("hits", "trials", "limit"), [(0, 71, 0.02), (1, 100, 0.02), (9, 300, 0.05)])
def test_the_frames_that_are_said_to_be_lacking_are_those_that_pass(
    hits: int, trials: int, limit: float
) -> None:
    """At the same share, that many are enough and a few less are not."""
    more = frames_to_pass(hits, trials, limit)
    for wanted, passes in ((trials + more, True), (int(0.97 * (trials + more)), False)):
        share = hits / trials
        _, high = wilson_of(share, wanted)
        assert (high <= limit) is passes
    assert frames_to_pass(3, 100, 0.02) == frames_to_pass(0, 0, 0.02) == 0


def wilson_of(share: float, trials: int) -> tuple[float, float]:
    """Wilson's interval as if a share of a frame could fail."""
    return wilson(share * trials, trials, 1.645)  # type: ignore[arg-type]


def test_looking_after_every_frame_seldom_condemns_a_candidate_at_the_limit() -> None:
    """The claim as the claim: with the share at the limit, over 2000 looks, at most ERROR ever fail."""
    hits = (np.random.default_rng(7).random((2000, 2000)) < 0.02).cumsum(axis=1)
    trials = np.arange(1, 2001)
    bound = _highest_allowed(trials, 0.02)
    assert (hits > bound).any(axis=1).mean() <= ERROR


def test_a_candidate_five_times_over_the_limit_is_caught_within_a_few_hundred_frames() -> None:
    hits = (np.random.default_rng(8).random((500, 400)) < 0.10).cumsum(axis=1)
    caught = hits > _highest_allowed(np.arange(1, 401), 0.02)
    assert caught.any(axis=1).mean() > 0.98
    assert np.median(caught.argmax(axis=1)) < 120


def test_a_bad_candidate_seldom_passes_and_a_good_one_seldom_lingers() -> None:
    """Of 1000 frames: twice the limit passes in under 1 % of windows, a quarter of it in over 99 %."""
    rng = np.random.default_rng(9)
    passed = {
        share: np.mean(
            [
                trial(replace(GOOD, failed=int(n))).outcome is Outcome.PASS
                for n in rng.binomial(1000, share, 1500)
            ]
        )
        for share in (0.04, 0.005)
    }
    assert passed[0.04] < 0.01
    assert passed[0.005] > 0.99


def test_equal_latencies_seldom_fail_whenever_one_looks() -> None:
    """Log-normal times with a spread of 0.5, the same for both; the limit is a modest 1.15."""
    rng = np.random.default_rng(10)
    guards = Guards(latency_ratio=1.15)
    wrong = 0
    for _ in range(300):
        old, new = rng.lognormal(2.0, 0.5, 1000), rng.lognormal(2.0, 0.5, 1000)
        baseline = Baseline(1000, 0, float(np.percentile(old, 95)))
        looks = (
            replace(GOOD, frames=n, p95_ms=float(np.percentile(new[:n], 95)))
            for n in (30, 60, 120, 300, 1000)
        )
        wrong += any(
            judge_trial(look, baseline, guards=guards, window=WINDOW).outcome is Outcome.FAIL
            for look in looks
        )
    assert wrong / 300 <= ERROR


def test_the_baseline_keeps_what_verdicts_need() -> None:
    stats = replace(GOOD, failed=3, constant_answers=True)
    assert baseline_of(stats) == Baseline(1000, 3, 10.0, constant_answers=True)


def _highest_allowed(trials: np.ndarray[tuple[int], np.dtype[np.int64]], limit: float) -> list[int]:
    """The largest count that is no evidence yet, after each number of trials."""
    allowed, hits = [], 0
    for n in trials:
        while hits < n and evidence(hits + 1, int(n), limit) <= np.log(1 / ERROR):
            hits += 1
        allowed.append(hits)
    return allowed
