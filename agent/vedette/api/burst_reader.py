"""Takes a body in while it comes in one go, as it does from a client on the same box.

Once more around the event loop costs as much time as 100 KB take, and a CPU that fell asleep in the middle
as much as 200 KB. So it is looked again at once, and for a moment without sleeping, where another CPU is
there to send the rest meanwhile.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vedette.clock import Clock

LINGER_NS = 100_000
# Less than that at once comes from a client that is not worth waiting for.
BURST_BYTES = 16 << 10


class Taker(Protocol):
    """Whoever takes a body in."""

    wants_body: bool

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        ...

    def received(self, size_bytes: int, /) -> None:
        """So many bytes were put there."""
        ...


class BurstReader:
    """Reads sockets that do not block; one event loop owns it."""

    def __init__(self, clock: Clock, *, usable_cpus: int) -> None:
        self._clock = clock
        self._linger_ns = LINGER_NS if usable_cpus > 1 else 0

    def read(self, fd: int, taker: Taker, *, expected: bool) -> None:
        """Read as long as bytes come; an error or the end is left for the event loop to find.

        Args:
            fd: The socket.
            taker: Whose body it is; nothing beyond its end is read.
            expected: The body has only just been announced, so that its beginning is worth waiting for.
        """
        lingers, since_ns = expected, self._clock.monotonic_ns()
        while taker.wants_body:
            try:
                size_bytes = os.readv(fd, [taker.buffer()])
            except BlockingIOError:
                if lingers and self._clock.monotonic_ns() - since_ns < self._linger_ns:
                    continue
                return
            except OSError:
                return
            if not size_bytes:
                return
            taker.received(size_bytes)
            lingers, since_ns = lingers or size_bytes >= BURST_BYTES, self._clock.monotonic_ns()
