"""Exact bounds, against fractions, SciPy's values and the table of the design."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from vedette.gate.binomial import (
    allowed_errors,
    binomial_cdf,
    least_samples,
    upper_bound,
    wilson_interval,
)

if TYPE_CHECKING:
    from fractions import Fraction


@given(st.integers(1, 40), st.integers(-1, 41), st.fractions(0, 1, max_denominator=50))
def test_the_distribution_is_that_of_fractions(trials: int, most: int, rate: Fraction) -> None:
    exact = sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(min(most, trials) + 1))
    assert binomial_cdf(most, trials, float(rate)) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize(
    ("most", "trials", "rate"), [(480, 100_000, 0.005), (0, 100_000, 1e-5), (60_000, 100_000, 0.6)]
)
def test_large_numbers_lose_no_digits_that_matter(most: int, trials: int, rate: float) -> None:
    assert binomial_cdf(most, trials, rate) == pytest.approx(binom.cdf(most, trials, rate), rel=1e-8)


@given(st.integers(1, 3000), st.floats(0.002, 0.3), st.floats(0.01, 0.3))
def test_one_error_more_than_allowed_would_prove_nothing(samples: int, epsilon: float, delta: float) -> None:
    allowed = allowed_errors(samples, epsilon, delta)
    if allowed >= 0:
        assert binom.cdf(allowed, samples, epsilon) <= delta + 1e-12
        assert upper_bound(allowed, samples, delta) <= epsilon + 1e-9
    assert binom.cdf(allowed + 1, samples, epsilon) > delta - 1e-12


@pytest.mark.parametrize(("epsilon", "least"), [(0.005, 598), (0.01, 299), (0.02, 149), (0.05, 59)])
def test_fewer_samples_than_the_least_promise_nothing(epsilon: float, least: int) -> None:
    assert least_samples(epsilon, 0.05) == least
    assert allowed_errors(least, epsilon, 0.05) == 0
    assert allowed_errors(least - 1, epsilon, 0.05) == -1
    assert allowed_errors(0, epsilon, 0.05) == -1


@pytest.mark.parametrize(
    ("epsilon", "samples", "share"),
    [(0.02, 1000, 0.60), (0.02, 300, 0.17), (0.01, 500, 0.20), (0.05, 10_000, 0.93), (0.005, 5000, 0.64)],
)
def test_the_share_of_the_allowance_that_may_be_used(epsilon: float, samples: int, share: float) -> None:
    assert allowed_errors(samples, epsilon, 0.05) / (samples * epsilon) == pytest.approx(share, abs=0.01)


@given(st.integers(0, 500), st.integers(1, 500))
def test_wilsons_interval_holds_the_share_and_stays_within_0_and_1(hits: int, samples: int) -> None:
    hits = min(hits, samples)
    low, high = wilson_interval(hits, samples)
    assert 0.0 <= low <= hits / samples + 1e-12
    assert hits / samples - 1e-12 <= high <= 1.0


def test_known_intervals() -> None:
    """The first is Wilson's for 10 of 100, the second says that nothing is known."""
    assert wilson_interval(10, 100) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_what_is_no_rate_is_an_error() -> None:
    with pytest.raises(ValueError, match="rate"):
        binomial_cdf(1, 10, 1.5)
