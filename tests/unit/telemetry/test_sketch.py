"""The sketch's promise is tested as the promise: every quantile within 1 %, also after merging."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.telemetry.sketch import MAX_VALUE_MS, RELATIVE_ACCURACY, Sketch

if TYPE_CHECKING:
    from collections.abc import Callable

QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
DISTRIBUTIONS: dict[str, Callable[[random.Random], float]] = {
    "constant": lambda _: 4.2,
    "uniform": lambda rng: rng.uniform(0.01, 50.0),
    "exponential": lambda rng: rng.expovariate(0.2),
    "lognormal": lambda rng: rng.lognormvariate(1.5, 1.2),
    "pareto, heavy tail": lambda rng: rng.paretovariate(1.1),
    "two modes far apart": lambda rng: rng.gauss(900, 5) if rng.random() < 0.05 else rng.uniform(9, 11),
    "microseconds to hours": lambda rng: 10 ** rng.uniform(-3, 7),
    "many zeros": lambda rng: max(0.0, rng.uniform(-1, 1)),
}


def sketch_of(values: list[float]) -> Sketch:
    sketch = Sketch()
    for value in values:
        sketch.record(value)
    return sketch


def assert_guarantee(sketch: Sketch, values: list[float]) -> None:
    ordered = sorted(values)
    for q in QUANTILES:
        true = ordered[math.floor(q * (len(ordered) - 1))]
        answer = sketch.quantile(q)
        assert answer is not None
        assert abs(answer - true) <= true * RELATIVE_ACCURACY * (1 + 1e-9), f"q={q}"


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_quantile_is_within_one_per_cent(name: str) -> None:
    rng = random.Random(name)  # noqa: S311 - reproducible data, no secret
    values = [DISTRIBUTIONS[name](rng) for _ in range(3000)]
    sketch = sketch_of(values)
    assert_guarantee(sketch, values)
    assert sketch.count == 3000
    assert sketch.sum == pytest.approx(math.fsum(values))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_merged_parts_answer_like_the_whole(name: str) -> None:
    """Case 43: cut in unequal parts and merged in any order, the quantiles are those of all values."""
    rng = random.Random(name)  # noqa: S311 - reproducible data, no secret
    values = [DISTRIBUTIONS[name](rng) for _ in range(2000)]
    parts = [values[:3], values[3:900], [], values[900:901], values[901:]]
    rng.shuffle(parts)
    merged = Sketch.merged(sketch_of(part) for part in parts)
    assert_guarantee(merged, values)
    assert merged.count == 2000
    assert merged.sum == pytest.approx(math.fsum(values))


def test_a_slow_device_is_seen_in_the_fleet_percentiles() -> None:
    """Case 43: averaging the devices' own p95 and p99 gives 455 twice; the truth is 12 and 900."""
    fast = sketch_of([10.0] * 990 + [12.0] * 10)
    slow = sketch_of([10.0] * 50 + [900.0] * 50)
    fleet = Sketch.merged([fast, slow])
    assert fleet.quantile(0.95) == pytest.approx(12.0, rel=RELATIVE_ACCURACY)
    assert fleet.quantile(0.99) == pytest.approx(900.0, rel=RELATIVE_ACCURACY)
    assert fleet.count == 1100
    assert fleet.sum == pytest.approx(9900 + 120 + 500 + 45_000)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(1e-6, 1e8) | st.just(0.0), max_size=40),
        min_size=1,
        max_size=5,
    ).filter(any)
)
def test_the_guarantee_holds_for_any_values_and_any_cut(parts: list[list[float]]) -> None:
    merged = Sketch.merged(sketch_of(part) for part in parts)
    assert_guarantee(merged, [value for part in parts for value in part])


def test_merging_leaves_the_other_sketch_alone() -> None:
    part, whole = sketch_of([1.0, 2.0]), Sketch()
    whole.merge(part)
    whole.record(100.0)
    assert (part.count, part.sum) == (2, 3.0)
    assert part.quantile(1.0) == pytest.approx(2.0, rel=RELATIVE_ACCURACY)


def test_nothing_recorded_is_no_number() -> None:
    assert Sketch().quantile(0.5) is None
    assert Sketch.merged([]).count == 0


@pytest.mark.parametrize("value", [-0.001, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_duration_is_refused_and_leaves_no_trace(value: float) -> None:
    """Case 46: a negative latency is a clock fault, never a data point."""
    sketch = sketch_of([5.0])
    with pytest.raises(ValueError, match="no duration"):
        sketch.record(value)
    assert (sketch.count, sketch.sum) == (1, 5.0)


@pytest.mark.parametrize("q", [-0.01, 1.01, float("nan")])
def test_a_quantile_outside_its_range_is_refused(q: float) -> None:
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        sketch_of([1.0]).quantile(q)


def test_absurd_values_do_not_make_it_grow() -> None:
    """A bin for each per cent between a femtosecond and 31 years, and no more; nothing is collapsed."""
    sketch = Sketch()
    for step in range(-3000, 3001):
        value = 10.0 ** (step / 250)
        if value <= MAX_VALUE_MS:
            sketch.record(value)
    sketch.record(1e-300)
    assert len(sketch.histogram().bins) <= 2420
    assert sketch.quantile(1.0) == pytest.approx(MAX_VALUE_MS, rel=RELATIVE_ACCURACY)
    with pytest.raises(ValueError, match="no duration"):
        sketch.record(1e13)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_its_bins_are_those_of_the_published_sketch(name: str) -> None:
    """The library of the algorithm's authors is the oracle: same bins, same quantiles."""
    from ddsketch import DDSketch

    rng = random.Random(name)  # noqa: S311 - reproducible data, no secret
    oracle, sketch = DDSketch(RELATIVE_ACCURACY), Sketch()
    for _ in range(500):
        value = DISTRIBUTIONS[name](rng)
        oracle.add(value)
        sketch.record(value)
    for q in QUANTILES:
        assert sketch.quantile(q) == pytest.approx(oracle.get_quantile_value(q), rel=1e-9)


def test_counts_for_fixed_bounds_add_up() -> None:
    """Buckets of a scrape: cumulative, and right to a bin."""
    sketch = sketch_of([0.0, 0.5, 1.5, 3.0, 700.0])
    assert sketch.counts_up_to([0.1, 1.0, 2.0, 1000.0]) == [1, 2, 3, 5]
    assert (sketch.min, sketch.max) == (0.0, 700.0)
