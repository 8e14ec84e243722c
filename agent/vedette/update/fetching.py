"""The loop that brings a blob in, over whatever the network does. Pure but for the waiting that it is given.

Limits: tries in a row without progress, and bytes in all. A connection that is reset every few hundred
kilobytes makes progress and may go on as long as it likes (casebook 40); a server that sends the same bytes
again and again ends at twice the size of the blob.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from vedette.errors import (
    BadInputError,
    ChangedError,
    NotFoundError,
    RangeIgnoredError,
    StorageError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update.ports import Fetcher


MIN_PROGRESS_BYTES = 16384  # less in a try is none, or a hostile server could deal out single bytes


class Sink(Protocol):
    """Where a blob is put together; `part_file.PartFile` is one."""

    sha256: str
    size_bytes: int

    def missing(self) -> list[tuple[int, int]]:
        """Ranges [start, end) of bytes that have yet to come, in order."""
        ...

    def write(self, offset: int, piece: bytes) -> None:
        """Take bytes; what is there already is not written again."""
        ...

    def flush(self) -> None:
        """Make durable what came."""
        ...

    def remove(self) -> None:
        """Throw all of it away."""
        ...

    def open(self) -> None:
        """Begin, or take up what is there."""
        ...


class FetchLimits(msgspec.Struct, frozen=True):
    """When to give up: `tries` in a row without progress, `bytes_ratio` of the blob's size in all.

    The wait before a try is drawn from the upper half of an interval that doubles from `first_wait_s` up to
    `longest_wait_s` (AWS Architecture Blog 2015, "equal jitter"); a server's Retry-After makes it longer.
    """

    tries: int = 8
    bytes_ratio: float = 2.0
    first_wait_s: float = 1.0
    longest_wait_s: float = 300.0


class FetchResult(msgspec.Struct, frozen=True):
    """What came: `fetched_bytes` in this call, also those that were there already; `tries` made."""

    complete: bool
    fetched_bytes: int
    tries: int


class BlobFetch:
    """Brings in one blob; after a stop, `run` may be called again and goes on.

    `wait` sleeps for seconds, or returns true at once when the fetch is to stop; it is asked with 0 between
    pieces. `failed` is told what went wrong before each wait, None where it was no fault. `draw` gives a
    random number in [0, 1). `progress` is told the bytes fetched so far. `spent_bytes` is what earlier runs
    fetched of the same blob.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        sink: Sink,
        *,
        wait: Callable[[float], bool],
        draw: Callable[[], float],
        limits: FetchLimits | None = None,
        progress: Callable[[int], None] | None = None,
        failed: Callable[[UnavailableError | None], None] | None = None,
        spent_bytes: int = 0,
    ) -> None:
        self._fetcher = fetcher
        self._sink = sink
        self._wait = wait
        self._draw = draw
        self._limits = limits or FetchLimits()
        self._progress = progress
        self._failed = failed
        self._spent_bytes = spent_bytes
        self._fetched_bytes = 0
        self._position = 0
        self._whole = False
        self._restarted = False
        self._idle_tries = 0

    def run(self) -> FetchResult:
        """Fetch until nothing is missing, or `wait` says stop; what came is durable either way.

        Raises:
            NotFoundError: It is not there; trying again is useless.
            BadInputError: More bytes came than are signed, or than may be spent.
            TruncatedError: It ended too early, try after try.
            UnavailableError: Given up after too many tries without progress.
            StorageError: The disk refuses; not a matter of trying again.
        """
        tries = 0
        try:
            while missing := self._sink.missing():
                tries += 1
                stopped = self._try_once(missing)
                if stopped:
                    return FetchResult(complete=False, fetched_bytes=self._fetched_bytes, tries=tries)
        finally:
            self._sink.flush()
        return FetchResult(complete=True, fetched_bytes=self._fetched_bytes, tries=tries)

    def _try_once(self, missing: list[tuple[int, int]]) -> bool:
        """One request; true when the fetch is to stop."""
        missing_bytes = sum(end - start for start, end in missing)
        start, end = (0, self._sink.size_bytes) if self._whole else self._resume(missing[0])
        self._position = start
        try:
            for piece in self._fetcher.blob(self._sink.sha256, start, end):
                self._spend(len(piece))
                self._sink.write(self._position, piece)
                self._position += len(piece)
                if self._wait(0):
                    return True
        except (NotFoundError, StorageError):
            raise
        except RangeIgnoredError as error:
            return self._from_the_beginning(error)
        except ChangedError as error:
            return self._start_over(error)
        except UnavailableError as error:
            return self._after_failure(error, progress=self._is_progress(start, missing_bytes))
        if self._position == start:
            nothing = UnavailableError(f"blob {self._sink.sha256[:16]}: an answer without a byte")
            return self._after_failure(nothing, progress=False)
        return False

    def _resume(self, first: tuple[int, int]) -> tuple[int, int]:
        """Go on in the middle of a block that was cut off, if this is the range that the last try was in."""
        start, end = first
        return (self._position if start < self._position < end else start), end

    def _is_progress(self, start: int, missing_bytes: int) -> bool:
        """Whether a try that failed brought enough that is new."""
        if not self._whole:
            return self._position - start >= MIN_PROGRESS_BYTES
        return missing_bytes - sum(end - start for start, end in self._sink.missing()) >= MIN_PROGRESS_BYTES

    def _spend(self, count: int) -> None:
        self._fetched_bytes += count
        if self._progress is not None:
            self._progress(self._fetched_bytes)
        spent = self._spent_bytes + self._fetched_bytes
        # A blob smaller than a few packets may well be sent three times.
        if spent > max(self._limits.bytes_ratio * self._sink.size_bytes, 65536):
            raise BadInputError(
                f"blob {self._sink.sha256[:16]}: {spent} bytes were fetched of {self._sink.size_bytes}, and "
                "it is still not whole",
                cure="serve blobs with support for Range, and never overwrite one",
            )

    def _from_the_beginning(self, error: RangeIgnoredError) -> bool:
        if self._whole:
            return self._after_failure(error, progress=False)
        self._whole = True
        return self._after_failure(None, progress=True)

    def _start_over(self, error: ChangedError) -> bool:
        """Once; an object that changes again is a moving target."""
        if self._restarted:
            raise error
        self._restarted = True
        self._position = 0
        self._sink.remove()
        self._sink.open()
        return self._after_failure(None, progress=True)

    def _after_failure(self, error: UnavailableError | None, *, progress: bool) -> bool:
        """Wait before the next try, longer after each idle one; true when the fetch is to stop."""
        self._idle_tries = 0 if progress else self._idle_tries + 1
        if error is not None and self._idle_tries >= self._limits.tries:
            raise error
        if self._failed is not None:
            self._failed(error)
        longest_s = min(self._limits.first_wait_s * 2**self._idle_tries, self._limits.longest_wait_s)
        wait_s = longest_s * (1 + self._draw()) / 2
        if error is not None and error.retry_after_s is not None:
            wait_s += error.retry_after_s
        return self._wait(wait_s)
