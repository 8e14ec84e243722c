"""Which bytes an HTTP request means, by RFC 9110."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_fleet.http_range import answer_for, cache_control, etag_of, served_name

SERVED = ("metadata", "targets", "blobs")
SIZE = 1000
ETAG = '"e"'


def judged(**headers: str) -> tuple[int, int, int]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, start, end = answer_for(named, etag=ETAG, size_bytes=SIZE)
    return (status.value, start, end)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("bytes=0-9", (206, 0, 10)),
        ("bytes=990-", (206, 990, 1000)),
        ("bytes=990-5000", (206, 990, 1000)),
        ("bytes=-10", (206, 990, 1000)),
        ("bytes=-5000", (206, 0, 1000)),
        ("Bytes = 5 - 5", (206, 5, 6)),
        ("bytes=1000-", (416, 0, 0)),
        ("bytes=5000-6000", (416, 0, 0)),
        ("bytes=-0", (416, 0, 0)),
    ],
)
def test_a_range_is_those_bytes(asked: str, answer: tuple[int, int, int]) -> None:
    assert judged(range=asked) == answer


@pytest.mark.parametrize(
    "asked",
    ["bytes=9-5", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,5-6", "", "bytes", "bytes=" + "9" * 40],
)
def test_what_is_no_single_range_is_ignored(asked: str) -> None:
    assert judged(range=asked) == (200, 0, SIZE)


def test_a_changed_file_is_never_spliced() -> None:
    assert judged(range="bytes=5-", if_range=ETAG) == (206, 5, SIZE)
    assert judged(range="bytes=5-", if_range='"old"') == (200, 0, SIZE)
    assert judged(range="bytes=5-", if_range=f"W/{ETAG}") == (200, 0, SIZE), "a weak validator proves nothing"


def test_a_known_file_is_not_sent_again() -> None:
    assert judged(if_none_match=f'"x", W/{ETAG}') == (304, 0, 0)
    assert judged(if_none_match="*") == (304, 0, 0)
    assert judged(if_none_match='"x"') == (200, 0, SIZE)


@given(st.text(max_size=40), st.integers(0, 100))
def test_any_header_gives_bytes_inside_the_file(text: str, size: int) -> None:
    for asked in (text, f"bytes={text}"):
        status, start, end = answer_for({"range": asked}, etag=ETAG, size_bytes=size)
        assert 0 <= start <= end <= size
        assert status in {
            HTTPStatus.OK,
            HTTPStatus.PARTIAL_CONTENT,
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
        }
        assert status is not HTTPStatus.PARTIAL_CONTENT or start < end


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/metadata",
        "/metadata/",
        "/metadata/../x",
        "/blobs/%2e%2e/x",
        "/blobs/..%2fx",
        "/blobs//x",
        "/staged/2.root.json",
        "/.lock",
        "/metadata/.x.tmp",
        "/blobs/a%00b",
        "/blobs/a%5c..",
        "/blobs/%ff",
        "http://[/blobs/a",
        "*",
        "",
    ],
)
def test_nothing_but_plain_served_names_is_looked_for(target: str) -> None:
    assert served_name(target, SERVED) is None


@given(st.text(max_size=60))
def test_no_request_names_anything_outside(target: str) -> None:
    name = served_name(target, SERVED)
    if name is not None:
        assert name.split("/")[0] in SERVED
        assert not any(part in {"", ".", ".."} for part in name.split("/"))


def test_queries_do_not_matter_and_quoting_is_undone() -> None:
    assert served_name("/metadata/3.models-a%2Bb.json?x=1", SERVED) == "metadata/3.models-a+b.json"


def test_only_what_never_changes_is_cached_for_ever() -> None:
    """Case 40: a mutable URL that a cache keeps is an update that never comes."""
    for name in (
        "blobs/" + "a" * 64,
        "metadata/12.models-demo.json",
        "targets/" + "b" * 64 + ".rollouts.json",
    ):
        assert "immutable" in cache_control(name)
    assert cache_control("metadata/timestamp.json") == "no-cache"


def test_content_addressed_files_have_the_same_tag_on_every_server() -> None:
    assert etag_of("blobs/" + "a" * 64, "x") == f'"{"a" * 64}"'
    assert etag_of("metadata/timestamp.json", "x") == '"x"'
