"""Several ways to one update: each request goes by the first that is not away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vedette.clock import ManualClock
from vedette.errors import ChangedError, NotFoundError, RangeIgnoredError, TruncatedError, UnavailableError
from vedette.runtime.ways import REST_MIN_S, FirstAvailable

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT = bytes(range(100))


class Way:
    """A fetcher that a test takes away, for good or in the middle of an answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: Exception | None = None
        self.cut_after: int | None = None
        self.asked = 0

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """See Fetcher."""
        self.asked += 1
        yield f"{self.name}:{path}"[:max_bytes].encode()
        if self.error is not None:
            raise self.error

    def blob(self, _sha256: str, start: int, end: int) -> Iterator[bytes]:
        """See Fetcher."""
        self.asked += 1
        if self.error is not None:
            raise self.error
        cut = end if self.cut_after is None else start + self.cut_after
        yield CONTENT[start:cut]
        if cut < end:
            raise UnavailableError(f"{self.name}: cut")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000_000)


@pytest.fixture
def ways() -> tuple[Way, Way]:
    return Way("http"), Way("mqtt")


@pytest.fixture
def chosen(clock: ManualClock, ways: tuple[Way, Way]) -> FirstAvailable:
    return FirstAvailable([(way.name, way) for way in ways], clock, lambda _low, high: high)


def metadata(fetcher: FirstAvailable) -> bytes:
    return b"".join(fetcher.metadata("metadata/timestamp.json", 1000))


def blob(fetcher: FirstAvailable, start: int = 0) -> bytes:
    return b"".join(fetcher.blob("ab" * 32, start, len(CONTENT)))


def test_the_first_way_is_taken_while_it_is_there(chosen: FirstAvailable, ways: tuple[Way, Way]) -> None:
    assert metadata(chosen) == b"http:metadata/timestamp.json"
    assert blob(chosen) == CONTENT
    assert ways[1].asked == 0


def test_what_the_first_began_to_say_is_not_mixed_with_the_second(
    chosen: FirstAvailable, ways: tuple[Way, Way]
) -> None:
    ways[0].error = UnavailableError("reset after the first piece")
    assert metadata(chosen) == b"mqtt:metadata/timestamp.json"


def test_a_way_that_was_away_rests_and_is_then_asked_again(
    chosen: FirstAvailable, ways: tuple[Way, Way], clock: ManualClock
) -> None:
    """A server that takes 30 s to fail must not cost 30 s with each request."""
    ways[0].error = UnavailableError("no route")
    assert blob(chosen) == CONTENT
    for _ in range(5):
        metadata(chosen)
    assert ways[0].asked == 1
    ways[0].error = None
    clock.advance_s(REST_MIN_S + 1)
    assert metadata(chosen) == b"http:metadata/timestamp.json"


def test_a_blob_that_breaks_off_goes_on_by_the_other_way(
    chosen: FirstAvailable, ways: tuple[Way, Way]
) -> None:
    """Whoever fetches asks again for what is missing; no byte comes twice."""
    ways[0].cut_after = 40
    pieces = chosen.blob("ab" * 32, 0, len(CONTENT))
    begun = next(pieces)
    with pytest.raises(UnavailableError, match="cut"):
        next(pieces)
    assert begun + blob(chosen, len(begun)) == CONTENT
    assert ways[1].asked == 1


def test_when_all_are_away_each_says_why(chosen: FirstAvailable, ways: tuple[Way, Way]) -> None:
    ways[0].error = UnavailableError("no route", retry_after_s=40.0)
    ways[1].error = UnavailableError("not connected", retry_after_s=7.0)
    with pytest.raises(UnavailableError, match="http: no route; mqtt: not connected") as caught:
        blob(chosen)
    assert caught.value.retry_after_s == 7.0
    ways[1].error = None
    assert metadata(chosen) == b"mqtt:metadata/timestamp.json", "all rest, and are asked all the same"


def test_no_such_metadata_is_an_answer(chosen: FirstAvailable, ways: tuple[Way, Way]) -> None:
    """The walk over root files ends with it, at each look."""
    ways[0].error = NotFoundError("404")
    with pytest.raises(NotFoundError):
        metadata(chosen)
    assert ways[1].asked == 0


def test_a_blob_that_one_way_lacks_comes_by_another(chosen: FirstAvailable, ways: tuple[Way, Way]) -> None:
    ways[0].error = NotFoundError("404")
    assert blob(chosen) == CONTENT
    ways[1].error = NotFoundError("no server has it")
    with pytest.raises(NotFoundError):
        blob(chosen)
    ways[1].error = UnavailableError("not connected")
    with pytest.raises(UnavailableError) as caught:
        blob(chosen)
    assert not isinstance(caught.value, NotFoundError), "one that was not asked may have it"


def test_a_delta_that_no_way_has_gives_way_to_the_whole_file(
    chosen: FirstAvailable, ways: tuple[Way, Way]
) -> None:
    """Block servers say it less finally than a web server; together it is still no reason to wait."""
    ways[0].error, ways[1].error = NotFoundError("404"), TruncatedError("no block server has it")
    with pytest.raises(TruncatedError):
        blob(chosen)
    ways[1].error = None
    assert blob(chosen) == CONTENT, "nobody rests for saying so"


def test_what_the_caller_can_mend_reaches_it(chosen: FirstAvailable, ways: tuple[Way, Way]) -> None:
    ways[0].error, ways[1].error = RangeIgnoredError("200"), UnavailableError("not connected")
    with pytest.raises(RangeIgnoredError):
        blob(chosen, 50)
    ways[0].error = ChangedError("another ETag")
    with pytest.raises(ChangedError):
        blob(chosen)
