"""Headers as servers really write them, and as nobody should (casebook 49)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.http.headers import (
    MAX_RETRY_AFTER_S,
    ContentRange,
    parse_content_range,
    parse_length,
    parse_retry_after,
    strong_tag,
)

DATE = "Tue, 01 Jun 2027 12:00:00 GMT"


@pytest.mark.parametrize(
    ("value", "expected_s"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("999999999999", MAX_RETRY_AFTER_S),
        ("Tue, 01 Jun 2027 12:02:00 GMT", 120.0),
        ("Tuesday, 01-Jun-27 12:02:00 GMT", 120.0),
        ("Tue, 01 Jun 2027 11:00:00 GMT", 0.0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", MAX_RETRY_AFTER_S),
        ("-5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("1e9", None),
        ("nan", None),
        ("Tue, 99 Foo 2027", None),
    ],
)
def test_retry_after_in_all_spellings(value: str | None, expected_s: float | None) -> None:
    assert parse_retry_after(value, date=DATE) == expected_s


def test_a_point_in_time_without_the_servers_date_is_of_no_use() -> None:
    """The clock of this box may stand at 1970."""
    assert parse_retry_after("Tue, 01 Jun 2027 12:02:00 GMT", date=None) is None


@given(value=st.text(), date=st.text())
def test_no_text_raises(value: str, date: str) -> None:
    seconds = parse_retry_after(value, date=date)
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_S
    assert parse_length(value) is None or value.strip().isdigit()
    tag = strong_tag(value)
    assert tag is None or tag.startswith('"')
    found = parse_content_range(value)
    assert found is None or found.start < found.end


@given(start=st.integers(0, 2**60), size=st.integers(1, 2**40), more=st.integers(0, 9))
def test_content_ranges_are_read_back(start: int, size: int, more: int) -> None:
    end = start + size
    value = f"bytes {start}-{end - 1}/{end + more}"
    assert parse_content_range(value) == ContentRange(start, end, end + more)
    assert parse_content_range(f"bytes {start}-{end - 1}/*") == ContentRange(start, end, None)
    assert parse_content_range(f"bytes {start}-{end - 1}/{end - 1}") is None


@pytest.mark.parametrize("tag", ['W/"a"', "a", '"', "", None, '"a"b"', '"' + "x" * 999 + '"'])
def test_tags_that_promise_nothing(tag: str | None) -> None:
    assert strong_tag(tag) is None
