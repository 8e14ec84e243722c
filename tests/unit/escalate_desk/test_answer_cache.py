"""The very same picture is paid for once; nothing like it is taken for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.stubs.asked_cases import SECOND_NS, says

from vedette.escalate.answer_cache import AnswerCache, cache_key


def test_an_answer_is_given_again_until_its_time_is_over() -> None:
    cache = AnswerCache(10_000, 5.0)
    cache.put(b"k", says("cat"), 0)
    assert cache.get(b"k", 5 * SECOND_NS - 1) == says("cat")
    assert cache.get(b"k", 5 * SECOND_NS) is None
    assert cache.get(b"other", 0) is None
    assert (cache.hits, cache.misses) == (1, 2)


def test_whoever_was_not_asked_for_longest_goes_first() -> None:
    cache = AnswerCache(2500, 60.0)
    for key in (b"a", b"b", b"c"):
        cache.put(key, says("cat"), 0)
    assert cache.get(b"a", 1) is not None
    cache.put(b"d", says("cat"), 2)
    assert [cache.get(key, 3) is not None for key in (b"a", b"b", b"c", b"d")] == [True, False, True, True]


def test_all_that_an_answer_depends_on_is_in_its_key() -> None:
    keys = {
        cache_key(b"x", "m", "p", "c"),
        cache_key(b"y", "m", "p", "c"),
        cache_key(b"x", "n", "p", "c"),
        cache_key(b"x", "m", "q", "c"),
        cache_key(b"x", "m", "p", "d"),
        cache_key(b"x", "mp", "", "c"),
    }
    assert len(keys) == 6


def test_a_new_model_forgets_all_and_no_room_keeps_nothing() -> None:
    cache = AnswerCache(10_000, 60.0)
    cache.put(b"a", says("cat"), 0)
    cache.clear()
    assert (cache.get(b"a", 0), cache.size_bytes) == (None, 0)
    off = AnswerCache(0, 60.0)
    off.put(b"a", says("cat"), 0)
    assert off.get(b"a", 0) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=80), st.integers(0, 4000))
def test_it_never_holds_more_than_its_bytes(steps: list[tuple[int, int]], room: int) -> None:
    cache = AnswerCache(room, 3.0)
    for at, (key, words) in enumerate(steps):
        cache.put(bytes([key]), says("cat", **{f"w{i}": 0.0 for i in range(words)}), at * SECOND_NS)
        cache.get(bytes([key ^ 1]), at * SECOND_NS)
        assert 0 <= cache.size_bytes <= room
