"""Promises are kept on samples that nobody saw, and nothing is promised where nothing can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.gate import thresholds
from vedette.gate.betting import LEVELS, error_threshold, mean_is_at_most
from vedette.gate.binomial import allowed_errors, binomial_cdf
from vedette.gate.thresholds import agreement_threshold, selective_threshold

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = np.random.default_rng(5)
SCORES = POOL.beta(4, 1, 20_000)
# The surer, the seldomer another answer; at the very top there is none.
DIFFERS = POOL.random(20_000) < 0.6 * (1 - SCORES)


def broken(find: str, *, epsilon: float, samples: int, draws: int) -> float:
    """The share of draws after which the promise does not hold on the whole pool."""
    rng = np.random.default_rng(7)
    count = 0
    for _ in range(draws):
        picked = rng.integers(0, SCORES.size, samples)
        choose = agreement_threshold if find == "agreement" else selective_threshold
        threshold = choose(SCORES[picked], DIFFERS[picked], epsilon=epsilon, delta=0.05)
        if threshold is None:
            continue
        kept = threshold <= SCORES
        errors = float((kept & DIFFERS).sum())
        count += errors / (SCORES.size if find == "agreement" else max(1, kept.sum())) > epsilon
    return count / draws


@pytest.mark.parametrize("find", ["agreement", "selective"])
def test_a_promise_is_broken_no_more_often_than_delta(find: str) -> None:
    """5 %, and room for chance in 400 draws: three standard errors are 3.3 points."""
    assert broken(find, epsilon=0.05, samples=600, draws=400) <= 0.083


def mean_alone(samples: int, epsilon: float, delta: float) -> int:
    """As many errors as there should be, without any bound: it is wrong half the time."""
    del delta
    return int(samples * epsilon)


def without_delta(samples: int, epsilon: float, delta: float) -> int:
    """The exact bound, at odds that nobody asked for."""
    del delta
    return allowed_errors(samples, epsilon, 0.3)


def three_more(samples: int, epsilon: float, delta: float) -> int:
    """A slip: 600 samples allow 20 errors and not 23."""
    return allowed_errors(samples, epsilon, delta) + 3


@pytest.mark.parametrize("mistake", [mean_alone, without_delta, three_more])
def test_the_test_of_the_promise_would_see_a_broken_bound(
    monkeypatch: pytest.MonkeyPatch, mistake: Callable[[int, float, float], int]
) -> None:
    """The bar of the test above, not met: a test that passes whatever the bound is would prove nothing."""
    monkeypatch.setattr(thresholds, "allowed_errors", mistake)
    assert broken("agreement", epsilon=0.05, samples=600, draws=400) > 0.083


def test_the_test_of_the_promise_would_see_a_selective_bound_without_its_odds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sharper(most: int, trials: int, rate: float) -> float:
        return binomial_cdf(most, trials, rate) / 8

    monkeypatch.setattr(thresholds, "binomial_cdf", sharper)
    assert broken("selective", epsilon=0.05, samples=600, draws=400) > 0.083


def test_what_is_kept_is_not_wastefully_little() -> None:
    """Of the errors that may be kept, most are: else the large model is asked for nothing."""
    threshold = agreement_threshold(SCORES[:5000], DIFFERS[:5000], epsilon=0.05, delta=0.05)
    assert threshold is not None
    assert float(((threshold <= SCORES) & DIFFERS).mean()) > 0.03


def test_too_few_samples_promise_nothing() -> None:
    assert agreement_threshold(SCORES[:100], DIFFERS[:100], epsilon=0.02, delta=0.05) is None
    assert selective_threshold(SCORES[:100], DIFFERS[:100], epsilon=0.02, delta=0.05) is None


def test_selective_begins_where_a_test_can_pass() -> None:
    """Beginning at the strictest 2 % would certify nothing at any n up to 2,000: a silent "always ask"."""
    scores = np.linspace(0.9, 1.0, 1000)
    assert selective_threshold(scores, np.zeros(1000, bool), epsilon=0.02, delta=0.05) == scores[0]


@given(st.lists(st.tuples(st.sampled_from([0.2, 0.5, 0.5, 0.9]), st.booleans()), min_size=60, max_size=200))
def test_equal_scores_share_one_fate(samples: list[tuple[float, bool]]) -> None:
    """Where one of them would exceed the allowance, all of them go."""
    scores = np.array([score for score, _ in samples])
    differs = np.array([bad for _, bad in samples])
    threshold = agreement_threshold(scores, differs, epsilon=0.05, delta=0.05)
    if threshold is not None:
        kept = scores >= threshold
        assert int((kept & differs).sum()) <= allowed_errors(len(samples), 0.05, 0.05)
        looser = scores >= np.nextafter(max(scores[~kept], default=0.0), 0)
        if not kept.all():
            assert int((looser & differs).sum()) > allowed_errors(len(samples), 0.05, 0.05)


def test_losses_between_0_and_1_are_bounded_by_bets() -> None:
    """A mean loss just above the promise passes in at most 5 % of draws; one well below it, always."""
    rng = np.random.default_rng(11)
    passed = sum(mean_is_at_most(rng.beta(0.2, 1.6, 400), 0.109, 0.05) for _ in range(400))
    assert passed / 400 <= 0.083  # the mean is 0.111
    assert all(mean_is_at_most(rng.beta(0.2, 3.8, 400), 0.11, 0.05) for _ in range(50))


def test_a_detectors_threshold_keeps_its_promise_on_frames_that_nobody_saw() -> None:
    rng = np.random.default_rng(13)
    uncertainties = rng.gamma(1.0, 0.4, 20_000)
    losses = np.clip(uncertainties * rng.random(20_000), 0, 1)
    broke = 0
    for _ in range(200):
        picked = rng.integers(0, losses.size, 500)
        level = error_threshold(uncertainties[picked], losses[picked], epsilon=0.1, delta=0.05)
        assert level is not None
        broke += float(np.where(uncertainties <= level, losses, 0).mean()) > 0.1
    assert broke / 200 <= 0.097


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from([0.0, 0.1, 0.6, 1.0])), min_size=40, max_size=90))
def test_every_stricter_level_is_proven_too(samples: list[tuple[float, float]]) -> None:
    """Bets are not quite monotone: no level that fails is stepped over, and the next one does fail."""
    uncertainties = np.array([uncertainty for uncertainty, _ in samples])
    losses = np.array([loss for _, loss in samples])

    def proven(level: float) -> bool:
        return mean_is_at_most(np.where(uncertainties <= level, losses, 0.0), 0.3, 0.05)

    found = error_threshold(uncertainties, losses, epsilon=0.3, delta=0.05)
    within = [float(level) for level in LEVELS if found is not None and level <= found]
    assert all(proven(level) for level in within)
    if found is not None and len(within) < len(LEVELS):
        assert not proven(float(LEVELS[len(within)]))


@pytest.mark.parametrize("order", [1, -1])
def test_a_world_that_changed_under_way_proves_nothing_about_its_mean(order: int) -> None:
    """A good morning and a bad afternoon: bets in that order grew rich before noon, at a mean loss of 0.5."""
    losses = np.repeat([0.0, 1.0], 300)[::order]
    assert error_threshold(np.zeros(600), losses, epsilon=0.3, delta=0.05) is None
    assert error_threshold(np.zeros(600), losses * 0.2, epsilon=0.3, delta=0.05) is not None


def test_nothing_is_promised_to_a_detector_that_is_always_wrong() -> None:
    assert error_threshold(np.zeros(500), np.ones(500), epsilon=0.1, delta=0.05) is None
    assert error_threshold(np.array([]), np.array([]), epsilon=0.1, delta=0.05) is None
