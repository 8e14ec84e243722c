"""When the large model is asked again: its wishes, and what we have learned of it."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.escalate.breaker import Breaker, BreakerState, Limits
from vedette.escalate.retry_after import CAP_S, retry_after_s

NOW_S = 1_800_000_000.0
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "wanted_s"),
    [
        ("3", 3.0),
        (" 1.5 ", 1.5),
        ("0", 0.0),
        (formatdate(NOW_S + 5, usegmt=True), 5.0),
        (formatdate(NOW_S - 3600, usegmt=True), 0.0),
        (formatdate(NOW_S + 86_400 * 900, usegmt=True), CAP_S),
        ("9999999999", CAP_S),
        ("-5", None),
        ("inf", None),
        ("nan", None),
        ("1e9", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        ("1" * 400, None),
        ("Wed, 99 Foo 2099 99:99:99 GMT", None),
    ],
)
def test_case_49_a_wish_is_read_or_is_none(text: str, wanted_s: float | None) -> None:
    found = retry_after_s({"retry-after": text, "date": formatdate(NOW_S, usegmt=True)})
    assert found == wanted_s if wanted_s is None else found == pytest.approx(wanted_s)


def test_milliseconds_are_finer_and_go_first() -> None:
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "1"}) == 0.25
    assert retry_after_s({"retry-after-ms": "x", "retry-after": "1"}) == 1.0
    assert retry_after_s({}) is None


@given(st.text(max_size=80))
def test_whatever_comes_is_bounded(text: str) -> None:
    found = retry_after_s({"retry-after": text, "retry-after-ms": text})
    assert found is None or 0.0 <= found <= CAP_S


def test_a_link_that_fails_every_other_time_is_rested() -> None:
    """Counting failures in a row would never notice."""
    breaker = Breaker(lambda: 0.0)
    for call in range(10):
        assert breaker.may_call(0)
        if call % 2:
            breaker.failed(0)
        else:
            breaker.succeeded()
    assert breaker.state(0) is BreakerState.OPEN
    assert not breaker.may_call(0)


@pytest.mark.parametrize(("drawn", "rests_s"), [(0.0, (1.0, 1.0, 1.0, 1.0)), (0.5, (1.5, 2.5, 3.5, 3.5))])
def test_after_a_rest_one_call_tries_and_what_the_rests_are_drawn_from_doubles(
    drawn: float, rests_s: tuple[float, ...]
) -> None:
    """Between half of the least and 2, 4, 6, 6 seconds."""
    breaker = Breaker(lambda: drawn, Limits(failures=1, window=1, rest_min_s=2.0, rest_max_s=6.0))
    breaker.failed(0)
    at_s = 0.0
    for rest_s in rests_s:
        assert not breaker.may_call(round((at_s + rest_s) * SECOND) - 1)
        at_s += rest_s
        now_ns = round(at_s * SECOND)
        assert breaker.state(now_ns) is BreakerState.HALF_OPEN
        assert breaker.may_call(now_ns)
        assert not breaker.may_call(now_ns)  # one, and not all cameras at once
        breaker.failed(now_ns)
    breaker.may_call(round((at_s + 3) * SECOND))
    breaker.succeeded()
    assert breaker.state(0) is BreakerState.CLOSED
    assert breaker.may_call(0)


def test_calls_under_way_when_it_opened_do_not_prolong_the_rest() -> None:
    breaker = Breaker(lambda: 0.0, Limits(failures=1, window=1, rest_min_s=2.0))
    breaker.failed(0)
    breaker.failed(SECOND - 1)
    assert breaker.may_call(SECOND)
    breaker.abandoned()
    assert breaker.may_call(SECOND)


def test_a_wish_holds_for_every_camera_and_a_shorter_one_does_not_cut_it() -> None:
    breaker = Breaker(lambda: 0.0)
    breaker.wait(5.0, 0)
    breaker.wait(1.0, 0)
    assert not breaker.may_call(5 * SECOND - 1)
    assert breaker.pause_s(SECOND) == pytest.approx(4.0)
    assert breaker.may_call(5 * SECOND)
