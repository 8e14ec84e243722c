"""The fetch loop over a scripted network: what it asks for next, how long it waits, when it gives up."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.errors import (
    BadInputError,
    NotFoundError,
    RangeIgnoredError,
    StorageError,
    UnavailableError,
)
from vedette.update.fetching import BlobFetch, FetchLimits, FetchResult
from vedette.update.part_file import BLOCK_BYTES, PartFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 4 * BLOCK_BYTES + 100
BLOB = bytes(range(251)) * (SIZE // 251 + 1)
BLOB = BLOB[:SIZE]
SHA256 = hashlib.sha256(BLOB).hexdigest()


class ScriptedFetcher:
    """Gives as many bytes to each request as its script says, then breaks off; honest after its end."""

    def __init__(self, script: list[int | Exception], *, ranges: bool = True) -> None:
        self.script = list(script)
        self.asked: list[tuple[int, int]] = []
        self._ranges = ranges

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        raise NotFoundError(f"{path}: no metadata of {max_bytes} bytes here")

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        assert sha256 == SHA256
        self.asked.append((start, end))
        step = self.script.pop(0) if self.script else SIZE
        if isinstance(step, Exception):
            raise step
        if start > 0 and not self._ranges:
            raise RangeIgnoredError("all or nothing")
        stop = min(end, start + step)
        for offset in range(start, stop, 10_000):
            yield BLOB[offset : min(offset + 10_000, stop)]
        if stop < end:
            raise UnavailableError("cut")


class Waits:
    """Remembers waits; says stop after a number of questions."""

    def __init__(self, stop_after: int = 1 << 30) -> None:
        self.slept_s: list[float] = []
        self._left = stop_after

    def __call__(self, seconds: float) -> bool:
        self._left -= 1
        if seconds > 0:
            self.slept_s.append(seconds)
        return self._left < 0


@pytest.fixture
def part(tmp_path: Path) -> Iterator[PartFile]:
    with PartFile(tmp_path, SHA256, SIZE) as opened:
        yield opened


def run(
    fetcher: ScriptedFetcher, part: PartFile, waits: Waits | None = None, limits: FetchLimits | None = None
) -> FetchResult:
    return BlobFetch(fetcher, part, wait=waits or Waits(), draw=lambda: 0.0, limits=limits).run()


def test_a_cut_goes_on_at_the_very_byte(part: PartFile) -> None:
    """Also in the middle of a block, as long as the process lives."""
    fetcher = ScriptedFetcher([100_000, 50_001])
    result = run(fetcher, part)
    assert fetcher.asked == [(0, SIZE), (100_000, SIZE), (150_001, SIZE)]
    assert result == FetchResult(complete=True, fetched_bytes=SIZE, tries=3)
    assert part.verify().read_bytes() == BLOB


def test_after_a_restart_it_goes_on_at_the_block(tmp_path: Path) -> None:
    with PartFile(tmp_path, SHA256, SIZE) as part:
        assert not run(ScriptedFetcher([]), part, Waits(stop_after=13)).complete
    fetcher = ScriptedFetcher([])
    with PartFile(tmp_path, SHA256, SIZE) as part:
        assert run(fetcher, part).complete
        assert part.verify().read_bytes() == BLOB
    assert fetcher.asked == [(2 * BLOCK_BYTES, SIZE)]


def test_only_what_is_missing_is_asked_for(part: PartFile) -> None:
    part.write(BLOCK_BYTES, BLOB[BLOCK_BYTES : 2 * BLOCK_BYTES])
    fetcher = ScriptedFetcher([])
    run(fetcher, part)
    assert fetcher.asked == [(0, BLOCK_BYTES), (2 * BLOCK_BYTES, SIZE)]


def test_nothing_is_asked_when_all_is_there(part: PartFile) -> None:
    run(ScriptedFetcher([]), part)
    fetcher = ScriptedFetcher([])
    assert run(fetcher, part) == FetchResult(complete=True, fetched_bytes=0, tries=0)
    assert fetcher.asked == []


def test_waits_grow_and_progress_makes_them_short_again(part: PartFile) -> None:
    away = UnavailableError("away")
    waits = Waits()
    run(ScriptedFetcher([away, away, away, 50_000, away]), part, waits)
    assert waits.slept_s == [1.0, 2.0, 4.0, 0.5, 1.0]


def test_waits_end_at_a_limit_and_give_up_after_it(part: PartFile) -> None:
    waits = Waits()
    limits = FetchLimits(tries=6, longest_wait_s=8.0)
    with pytest.raises(UnavailableError, match="away"):
        run(ScriptedFetcher([UnavailableError("away")] * 9), part, waits, limits)
    assert waits.slept_s == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_single_bytes_are_no_progress(part: PartFile) -> None:
    with pytest.raises(UnavailableError):
        run(ScriptedFetcher([1] * 100), part)


def test_answers_without_a_byte_are_no_progress(part: PartFile) -> None:
    class Empty(ScriptedFetcher):
        def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
            assert sha256
            self.asked.append((start, end))
            return iter(())

    fetcher = Empty([])
    with pytest.raises(UnavailableError, match="without a byte"):
        run(fetcher, part, limits=FetchLimits(tries=3))
    assert len(fetcher.asked) == 3


def test_a_stop_is_obeyed_within_a_piece(part: PartFile) -> None:
    result = run(ScriptedFetcher([]), part, Waits(stop_after=2))
    assert result == FetchResult(complete=False, fetched_bytes=30_000, tries=1)


def test_a_stop_ends_a_wait(part: PartFile) -> None:
    assert not run(ScriptedFetcher([UnavailableError("away")]), part, Waits(stop_after=0)).complete


def test_not_found_is_final(part: PartFile) -> None:
    fetcher = ScriptedFetcher([NotFoundError("gone")])
    with pytest.raises(NotFoundError):
        run(fetcher, part)
    assert len(fetcher.asked) == 1


def test_a_disk_that_refuses_is_not_the_networks_fault(part: PartFile) -> None:
    fetcher = ScriptedFetcher([StorageError("full", kind="no_space")])
    with pytest.raises(StorageError):
        run(fetcher, part)
    assert len(fetcher.asked) == 1


def test_all_or_nothing_servers_are_asked_for_all(part: PartFile) -> None:
    fetcher = ScriptedFetcher([200_000], ranges=False)
    result = run(fetcher, part)
    assert fetcher.asked == [(0, SIZE), (200_000, SIZE), (0, SIZE)]
    assert result.complete
    assert part.verify().read_bytes() == BLOB


def test_bytes_are_bounded_over_restarts(part: PartFile) -> None:
    """Invariant I5: what an earlier run fetched counts."""
    loop = BlobFetch(ScriptedFetcher([]), part, wait=Waits(), draw=lambda: 0.5, spent_bytes=SIZE + 1)
    with pytest.raises(BadInputError, match="not whole"):
        loop.run()


def test_progress_is_told(part: PartFile) -> None:
    told: list[int] = []
    BlobFetch(ScriptedFetcher([]), part, wait=Waits(), draw=lambda: 0.5, progress=told.append).run()
    assert told[0] == 10_000
    assert told == sorted(told)
    assert told[-1] == SIZE


@settings(max_examples=40, deadline=None)
@given(script=st.lists(st.integers(0, SIZE), max_size=12), ranges=st.booleans())
def test_any_order_of_cuts_ends_with_the_blob_or_within_the_bounds(
    tmp_path_factory: pytest.TempPathFactory, script: list[int], *, ranges: bool
) -> None:
    with PartFile(tmp_path_factory.mktemp("part"), SHA256, SIZE) as part:
        loop = BlobFetch(ScriptedFetcher(list(script), ranges=ranges), part, wait=Waits(), draw=lambda: 0.5)
        try:
            result = loop.run()
        except (BadInputError, UnavailableError):
            return
        assert result.complete
        assert result.fetched_bytes <= 2 * SIZE
        assert part.verify().read_bytes() == BLOB
