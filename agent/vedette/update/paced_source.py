"""Metadata that must get on: no server may deal it out by the byte for ever. Pure but for the clock.

A limit on time alone would shut out slow links (casebook 40), one on silence alone a server that drips. So
each file, and each refresh as a whole, has a fixed time beside what a link of `PACE_BYTES_PER_S` takes for
the bytes that came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.clock import Clock
    from vedette.trust.offer import MetadataSource

FILE_S = 30.0
REFRESH_S = 120.0
PACE_BYTES_PER_S = 1000  # a tenth of GPRS


class PacedSource:
    """Implements `MetadataSource`: another one, held to a pace; times are monotonic.

    `path` is the file that was asked for last in this refresh.
    """

    def __init__(self, source: MetadataSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """A refresh begins."""
        self._began_ns = self._clock.monotonic_ns()
        self._came_bytes = 0
        self.path = ""

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """See MetadataSource.

        Raises:
            UnavailableError: Also when it comes too slowly.
        """
        self.path = path
        began_ns, came_bytes = self._clock.monotonic_ns(), 0
        self._check(path, self._began_ns, self._came_bytes, REFRESH_S)
        for piece in self._source.metadata(path, max_bytes):
            came_bytes += len(piece)
            self._came_bytes += len(piece)
            self._check(path, began_ns, came_bytes, FILE_S)
            self._check(path, self._began_ns, self._came_bytes, REFRESH_S)
            yield piece

    def _check(self, path: str, began_ns: int, came_bytes: int, limit_s: float) -> None:
        taken_s = (self._clock.monotonic_ns() - began_ns) / 1e9
        if taken_s > limit_s + came_bytes / PACE_BYTES_PER_S:
            raise UnavailableError(
                f"{path}: given up, {came_bytes} bytes came in {taken_s:.0f} s",
                cure="it is tried again later; check the server, and what lies between it and this box",
            )
