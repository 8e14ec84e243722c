"""The restart policy: growing pauses with full jitter, a cap, a budget within a window."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.clock import ManualClock
from vedette.runtime.plan import RestartPolicy
from vedette.runtime.restart import Restarts, pause_text

POLICY = RestartPolicy(window_s=60, budget=5, backoff_min_s=0.2, backoff_max_s=30)


class LongestDraw(random.Random):
    """Jitter at its upper end."""

    def random(self) -> float:
        return 1.0

    def uniform(self, a: float, b: float) -> float:
        del a
        return b


def restarts(
    policy: RestartPolicy = POLICY, rng: random.Random | None = None
) -> tuple[Restarts, ManualClock]:
    clock = ManualClock()
    return Restarts(policy, clock, rng or LongestDraw()), clock


def test_the_longest_pause_doubles_with_each_death_in_a_row() -> None:
    """The pauses of a child that dies again and again, at the upper end of the jitter."""
    tracked, _ = restarts()
    assert [tracked.died() for _ in range(5)] == pytest.approx([0.4, 0.8, 1.6, 3.2, 6.4])


def test_no_pause_is_longer_than_the_cap_however_many_deaths() -> None:
    """Also after so many that the exponential alone would overflow."""
    tracked, clock = restarts(RestartPolicy(window_s=1, budget=5, backoff_min_s=0.2, backoff_max_s=30))
    pauses = []
    for _ in range(2000):
        clock.advance_s(100)
        pauses.append(tracked.died())
    assert max(pauses) == pauses[-1] == 30


def test_a_child_that_worked_again_starts_from_the_shortest_pause() -> None:
    """`proved_good` forgives the row, not the total."""
    tracked, _ = restarts()
    for _ in range(4):
        tracked.died()
    tracked.proved_good()
    assert tracked.died() == pytest.approx(0.4)
    assert tracked.total == 5


def test_beyond_the_budget_only_the_slowest_pace_is_left() -> None:
    """Five deaths in a minute are normal, the sixth is not: from half the cap to the cap."""
    slow, _ = restarts(rng=random.Random(7))  # noqa: S311 - reproducible jitter
    for _ in range(5):
        slow.died()
        assert not slow.over_budget
    pauses = [slow.died() for _ in range(50)]
    assert slow.over_budget
    assert all(15 <= pause <= 30 for pause in pauses)
    assert len(set(pauses)) > 40


def test_deaths_outside_the_window_are_forgotten() -> None:
    """Six deaths, then an hour of peace: no longer over budget."""
    tracked, clock = restarts()
    for _ in range(6):
        tracked.died()
    assert tracked.over_budget
    clock.advance_s(61)
    assert not tracked.over_budget


@pytest.mark.parametrize("spacing_s", [12.1, 30.0])
def test_deaths_that_are_far_enough_apart_stay_within_the_budget(spacing_s: float) -> None:
    """Fewer than six in any minute is within a budget of five."""
    tracked, clock = restarts()
    for _ in range(40):
        clock.advance_s(spacing_s)
        tracked.died()
        assert not tracked.over_budget


@given(
    st.floats(0.001, 10),
    st.floats(1, 10),
    st.integers(1, 20),
    st.lists(st.floats(0, 100), min_size=1, max_size=60),
    st.integers(),
)
def test_every_pause_lies_between_zero_and_the_cap(
    low_s: float, factor: float, budget: int, gaps_s: list[float], seed: int
) -> None:
    """Whatever the policy and the deaths."""
    policy = RestartPolicy(window_s=60, budget=budget, backoff_min_s=low_s, backoff_max_s=low_s * factor)
    tracked, clock = restarts(policy, random.Random(seed))  # noqa: S311 - reproducible jitter
    for gap_s in gaps_s:
        clock.advance_s(gap_s)
        assert 0 <= tracked.died() <= policy.backoff_max_s
    assert tracked.total == len(gaps_s)


def test_two_boxes_do_not_retry_in_step() -> None:
    """Full jitter: the same deaths give other pauses with another seed."""
    one, _ = restarts(rng=random.Random(1))  # noqa: S311 - reproducible jitter
    other, _ = restarts(rng=random.Random(2))  # noqa: S311 - as above
    pairs = [(one.died(), other.died()) for _ in range(20)]
    assert all(a != b for a, b in pairs)
    assert any(a < b for a, b in pairs)
    assert any(a > b for a, b in pairs)
    assert any(later < earlier for (earlier, _), (later, _) in pairwise(pairs))


@pytest.mark.parametrize(
    ("delay_s", "text"),
    [(0.0004, "0 ms"), (0.041, "41 ms"), (0.94, "940 ms"), (1.2, "1.2 s"), (30, "30.0 s")],
)
def test_a_pause_is_said_so_that_short_ones_can_be_told_apart(delay_s: float, text: str) -> None:
    """`trying again in 0.0 s` said nothing."""
    assert pause_text(delay_s) == text
