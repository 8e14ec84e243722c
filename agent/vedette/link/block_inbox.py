"""Where blocks wait between the link's thread, which only puts them here, and whoever fetches."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from vedette.wire.blocks import transfer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vedette.clock import Clock
    from vedette.mqtt.port import Limits


class Standing(NamedTuple):
    """How the connection stands: its number, and what its broker allows; None while there is none.

    `reason` says why there is none.
    """

    number: int
    limits: Limits | None
    reason: str


class BlockInbox:
    """Takes in blocks of the transfers that are open, and how the connection stands; any thread.

    What comes for no open transfer is dropped and counted at once, so is what is beyond `limit_bytes`: both
    would be asked for again, if anybody missed them.
    """

    def __init__(self, clock: Clock, *, limit_bytes: int = 8 << 20) -> None:
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._open: dict[str, deque[tuple[int, bytes]]] = {}
        self._held_bytes = 0
        self._standing = Standing(0, None, "no connection was made yet")
        self.foreign = 0
        self.dropped = 0

    @property
    def standing(self) -> Standing:
        """How the connection stands."""
        return self._standing

    def connected(self, limits: Limits) -> None:
        """A new connection is up, and the topic of blocks is subscribed to."""
        with self._changed:
            self._standing = Standing(self._standing.number + 1, limits, "")
            self._changed.notify_all()

    def lost(self, reason: str) -> None:
        """The connection ended, could not be made, or blocks cannot come through it."""
        with self._changed:
            self._standing = Standing(self._standing.number, None, reason)
            self._changed.notify_all()

    def arrived(self, payload: bytes) -> None:
        """A message came on the topic of blocks."""
        now_ns = self._clock.monotonic_ns()
        xfer = transfer_of(payload)
        with self._changed:
            waiting = self._open.get(xfer) if xfer is not None else None
            if waiting is None:
                self.foreign += 1
            elif self._held_bytes + len(payload) > self._limit_bytes:
                self.dropped += 1
            else:
                waiting.append((now_ns, payload))
                self._held_bytes += len(payload)
                self._changed.notify_all()

    def wake(self) -> None:
        """Let everybody who waits look again."""
        with self._changed:
            self._changed.notify_all()

    # What follows is for whoever fetches.

    def open(self, xfer: str) -> None:
        """Let blocks of this transfer in."""
        with self._changed:
            self._open[xfer] = deque()

    def close(self, xfer: str) -> None:
        """Drop what came of it, and what still comes."""
        with self._changed:
            for _, payload in self._open.pop(xfer, ()):
                self._held_bytes -= len(payload)

    def take(self, xfer: str) -> Iterator[tuple[int, bytes]]:
        """What came, each with the time of its arrival; without waiting."""
        waiting = self._open[xfer]
        while waiting:
            with self._changed:
                arrived_ns, payload = waiting.popleft()
                self._held_bytes -= len(payload)
            yield arrived_ns, payload

    def wait(self, xfer: str, known: Standing, timeout_s: float, *, ended: Callable[[], bool]) -> None:
        """Return when something came, the connection is not as `known`, `ended` after a wake, or in time."""
        with self._changed:
            if not self._open[xfer] and self._standing is known and not ended():
                self._changed.wait(max(0.0, timeout_s))
