"""A device's budget holds in any window, and says when it has room again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vedette_cloud.device_budgets import DAY_NS, MINUTE_NS, STEPS, DeviceBudgets, SlidingWindow

S = 10**9


def test_the_next_request_after_the_limit_has_to_wait_for_the_first_to_be_forgotten() -> None:
    budgets = DeviceBudgets(per_minute=2, per_day=None)
    assert budgets.take("box", 0) is None
    assert budgets.take("box", 30 * S) is None
    beyond = budgets.take("box", 31 * S)
    assert beyond is not None
    assert "2 requests a minute" in beyond.text("box")
    assert budgets.take("box", 31 * S + beyond.wait_ns - 1) is not None
    assert budgets.take("box", 31 * S + beyond.wait_ns) is None


def test_devices_do_not_share() -> None:
    budgets = DeviceBudgets(per_minute=1, per_day=None)
    assert budgets.take("one", 0) is None
    assert budgets.take("two", 0) is None
    assert budgets.take("one", 0) is not None


def test_the_limit_that_lasts_longest_is_named() -> None:
    budgets = DeviceBudgets(per_minute=1, per_day=1)
    budgets.take("box", 0)
    beyond = budgets.take("box", S)
    assert beyond is not None
    assert beyond.span == "day"
    assert DAY_NS - S <= beyond.wait_ns <= DAY_NS + DAY_NS // STEPS


def test_what_the_server_lost_costs_nothing() -> None:
    budgets = DeviceBudgets(per_minute=1, per_day=1)
    budgets.take("box", 0)
    budgets.give_back("box")
    assert budgets.take("box", S) is None
    assert budgets.take("box", S) is not None


def test_without_limits_nothing_is_refused() -> None:
    budgets = DeviceBudgets(per_minute=None, per_day=None)
    assert all(budgets.take("box", 0) is None for _ in range(1000))


@given(st.lists(st.integers(0, 20 * S), max_size=200), st.integers(0, 5))
def test_no_window_ever_holds_more_than_the_limit(pauses_ns: list[int], limit: int) -> None:
    window, now_ns, taken = SlidingWindow(limit, MINUTE_NS), 0, []
    for pause_ns in pauses_ns:
        now_ns += pause_ns
        if not window.wait_ns(now_ns):
            window.take(now_ns)
            taken.append(now_ns)
    for at_ns in taken:
        assert sum(at_ns <= other_ns < at_ns + MINUTE_NS for other_ns in taken) <= limit


@given(st.integers(1, 5), st.integers(0, MINUTE_NS))
def test_the_wait_that_is_told_is_enough(limit: int, start_ns: int) -> None:
    window = SlidingWindow(limit, MINUTE_NS)
    for _ in range(limit):
        window.take(start_ns)
    wait_ns = window.wait_ns(start_ns)
    assert MINUTE_NS <= wait_ns <= MINUTE_NS + MINUTE_NS // STEPS
    assert not window.wait_ns(start_ns + wait_ns)
