"""Fetch over MQTT, in blocks: the third way of an update beside HTTP and a folder.

Nothing here is trusted; what arrives is verified by whoever asked. What this module owes is an end: every
wait has a limit, and a connection that is away, a server that is silent or busy, and a file that is not there
are told apart.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Protocol

from vedette.errors import ChangedError, NotFoundError, UnavailableError
from vedette.link.block_transfer import Transfer, cancelled, not_connected, shown
from vedette.link.block_window import BlockFigures, BlockWindow
from vedette.mqtt.port import Outgoing
from vedette.wire.blocks import (
    BLOCK_EXPIRY_S,
    MAX_BLOCK_BYTES,
    MIN_BLOCK_BYTES,
    PACKET_OVERHEAD_BYTES,
    REQUEST_TYPE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from vedette.clock import Clock
    from vedette.link.block_inbox import BlockInbox
    from vedette.mqtt.port import Limits
    from vedette.wire.topics import DeviceTopics

# Blocks end where pages of the server's disk do.
_PAGE_BYTES = 4096
# On a link too slow for one block within the stall limit, smaller ones are tried, down to this.
_SMALLEST_TRIED_BYTES = 4096
# Of a blob that nobody seems to have, so many servers are asked: one copy may lag behind the others.
_BLOB_ABSENCES = 3
_RESTARTS = 3
_REACHABLE_BYTES = 1 << 20


class Interruption(Protocol):
    """Ends waiting from another thread; `update.interruption` has one."""

    @property
    def is_set(self) -> bool:
        """Whether nothing may be begun now."""
        ...

    def told(self, listener: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `listener`, which must not wait, when it is set meanwhile."""
        ...


class BlockFetcher:
    """Implements `update.ports.Fetcher` on the device's own topics; any thread, several transfers at a time.

    `publish` hands a message to the network and may refuse it; a request that is lost is made again.
    `inbox` is fed by the link. `stall_s` is how long no new block may come, `draw` gives a random number in
    [0, 1), and at most `buffer_bytes` of a transfer are under way or wait for blocks before them.
    """

    def __init__(
        self,
        topics: DeviceTopics,
        publish: Callable[[Outgoing], object],
        inbox: BlockInbox,
        *,
        clock: Clock,
        draw: Callable[[], float],
        stall_s: float = 30.0,
        interruption: Interruption | None = None,
        buffer_bytes: int = 2 << 20,
    ) -> None:
        self._topics = topics
        self._publish = publish
        self._inbox = inbox
        self._clock = clock
        self._draw = draw
        self._stall_s = stall_s
        self._interruption = interruption
        self._buffer_bytes = buffer_bytes
        self._cancels = 0
        self._largest_bytes = MAX_BLOCK_BYTES
        self.figures = BlockFigures()

    def cancel(self) -> None:
        """End the transfers under way, at once; any thread. Later ones are not concerned."""
        self._cancels += 1
        self._inbox.wake()

    def reachable(self) -> bool:
        """Whether a block server answers now, whatever it says; no longer than it may stall."""
        try:
            for _ in self.metadata("metadata/timestamp.json", _REACHABLE_BYTES):
                pass
        except NotFoundError:
            return True
        except UnavailableError:
            return False
        return True

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """A small file, in one piece; it ends one byte after `max_bytes` at the latest.

        Raises:
            NotFoundError: The block servers do not have it.
            UnavailableError: Anything else; `retry_after_s` where a server said one.
        """
        for _ in range(_RESTARTS):
            with contextlib.suppress(ChangedError):
                yield b"".join(self._pieces(path, 0, max_bytes + 1, up_to=True))
                return
        yield b"".join(self._pieces(path, 0, max_bytes + 1, up_to=True))

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """Pieces of bytes [start, end) of a blob, never more.

        Raises:
            NotFoundError: The block servers do not have it.
            ChangedError: They do not agree on what it is.
            UnavailableError: Anything else; `retry_after_s` where a server said one.
        """
        if start < end:
            yield from self._pieces(f"blobs/{sha256}", start, end, up_to=False)

    def _pieces(self, path: str, start: int, end: int, *, up_to: bool) -> Iterator[bytes]:
        interruption = self._interruption
        if interruption is None:
            yield from self._transfer(path, start, end, up_to=up_to)
            return
        if interruption.is_set:
            raise cancelled(path)
        with interruption.told(self.cancel):
            yield from self._transfer(path, start, end, up_to=up_to)

    def _transfer(self, path: str, start: int, end: int, *, up_to: bool) -> Iterator[bytes]:
        standing = self._inbox.standing
        if standing.limits is None:
            raise not_connected(path, standing.reason)
        block_bytes = self._block_bytes(path, standing.limits)
        xfer = secrets.token_hex(8)
        window = BlockWindow(
            path,
            xfer=xfer,
            block_bytes=block_bytes,
            start=start,
            end=end,
            draw=self._draw,
            figures=self.figures,
            up_to=up_to,
            absences=1 if up_to else _BLOB_ABSENCES,
            buffer_bytes=self._buffer_bytes,
        )
        cancels = self._cancels
        transfer = Transfer(
            path,
            xfer,
            window,
            inbox=self._inbox,
            standing=standing,
            send=self._send,
            clock=self._clock,
            stall_s=self._stall_s,
            ended=lambda: self._cancels != cancels,
            figures=self.figures,
        )
        try:
            yield from transfer.pieces()
        finally:
            if transfer.silent:
                self._largest_bytes = max(_SMALLEST_TRIED_BYTES, block_bytes // 2)
        self._largest_bytes = min(MAX_BLOCK_BYTES, 2 * self._largest_bytes)

    def _send(self, request: bytes) -> None:
        self._publish(
            Outgoing(
                self._topics.block_request,
                request,
                qos=0,
                content_type=REQUEST_TYPE,
                expiry_s=BLOCK_EXPIRY_S,
            )
        )

    def _block_bytes(self, path: str, limits: Limits) -> int:
        """As large as the broker lets through, and the link was found to carry in time."""
        block_bytes = min(self._largest_bytes, limits.max_packet_bytes - PACKET_OVERHEAD_BYTES)
        if block_bytes > _PAGE_BYTES:
            block_bytes -= block_bytes % _PAGE_BYTES
        if block_bytes < MIN_BLOCK_BYTES:
            raise UnavailableError(
                f"{shown(path)}: the broker takes packets of {limits.max_packet_bytes} bytes at most",
                cure=f"let it take {MIN_BLOCK_BYTES + PACKET_OVERHEAD_BYTES} bytes or more, better 160 KiB",
            )
        return block_bytes
