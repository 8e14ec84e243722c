"""One file over MQTT: the window's decisions carried out, with an end to every wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import BadInputError, UnavailableError
from vedette.wire.blocks import PACKET_OVERHEAD_BYTES, decode_data, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vedette.clock import Clock
    from vedette.link.block_inbox import BlockInbox, Standing
    from vedette.link.block_window import BlockFigures, BlockWindow
    from vedette.mqtt.port import Limits

AWAY_CURE = "it is tried again; check the broker, and that this device may connect and subscribe"
_SILENT_CURE = "it is tried again; run `vedette-fleet serve-blocks` on this broker, and check its access list"
_LONGEST_WAIT_S = 1.0


class Transfer:
    """Brings in what `window` wants; `silent` says afterwards that not one block came in all the time.

    `send` hands a request to the network. `ended` is asked, also by other threads' wakes of the inbox,
    whether the transfer is to be given up. `standing` is the connection that the window was made for.
    """

    def __init__(
        self,
        path: str,
        xfer: str,
        window: BlockWindow,
        *,
        inbox: BlockInbox,
        standing: Standing,
        send: Callable[[bytes], object],
        clock: Clock,
        stall_s: float,
        ended: Callable[[], bool],
        figures: BlockFigures,
    ) -> None:
        self.silent = False
        self._path = path
        self._xfer = xfer
        self._window = window
        self._inbox = inbox
        self._standing = standing
        self._send = send
        self._clock = clock
        self._stall_s = stall_s
        self._ended = ended
        self._figures = figures
        self._moved = False
        self._progress_ns = clock.monotonic_ns()

    def pieces(self) -> Iterator[bytes]:
        """What comes, in order.

        Raises:
            NotFoundError: The block servers do not have it.
            ChangedError: It changed meanwhile.
            UnavailableError: No connection, nothing came within the stall limit, or it was to end.
        """
        self._inbox.open(self._xfer)
        try:
            while not self._window.complete:
                self._check()
                self._take()
                self._ask()
                piece = self._window.pop()
                if piece is None:
                    self._wait()
                    continue
                yield bytes(piece)
                self._progress_ns = self._clock.monotonic_ns()  # a slow disk is not the server's fault
        finally:
            self._inbox.close(self._xfer)

    def _check(self) -> None:
        """Whether to go on at all.

        A connection that is lost meanwhile may come back within the stall limit; what was under way in the
        old one is asked for again.
        """
        if self._ended():
            raise cancelled(self._path)
        standing = self._inbox.standing
        if standing.limits is not None and standing.number != self._standing.number:
            if not fits(self._window.block_bytes, standing.limits):
                raise UnavailableError(f"{shown(self._path)}: the broker takes smaller packets than before")
            self._window.forget_flight(self._clock.monotonic_ns())
        self._standing = standing

    def _take(self) -> None:
        for arrived_ns, payload in self._inbox.take(self._xfer):
            try:
                block = decode_data(payload)
            except BadInputError:
                self._figures.damaged += 1
                continue
            if self._window.take(block, arrived_ns):
                self._moved = True
                self._progress_ns = self._clock.monotonic_ns()

    def _ask(self) -> None:
        if self._standing.limits is None:
            return
        request = self._window.request(self._clock.monotonic_ns())
        if request is None:
            return
        try:
            self._send(encode_request(request))
        except BadInputError as error:
            raise UnavailableError(
                f"{shown(self._path)}: a request does not pass: {error.cause}", cure=error.cure
            ) from error

    def _wait(self) -> None:
        if self._window.complete:
            return
        now_ns = self._clock.monotonic_ns()
        stalls_in_s = self._stall_s - (now_ns - self._progress_ns) / 1e9
        if stalls_in_s <= 0:
            raise self._stalled(now_ns)
        due_ns = self._window.next_due_ns()
        wait_s = min(_LONGEST_WAIT_S, stalls_in_s)
        if due_ns is not None and self._standing.limits is not None:
            wait_s = min(wait_s, (due_ns - now_ns) / 1e9)
        self._inbox.wait(self._xfer, self._standing, wait_s, ended=self._ended)

    def _stalled(self, now_ns: int) -> UnavailableError:
        if self._standing.limits is None:
            return not_connected(self._path, self._standing.reason)
        left_ns = self._window.paused_until_ns - now_ns
        if left_ns > 0:
            return UnavailableError(
                f"{shown(self._path)}: the block servers are busy",
                cure="it is tried again; start more of them",
                retry_after_s=left_ns / 1e9,
            )
        self.silent = not self._moved
        return UnavailableError(
            f"{shown(self._path)}: no block came for {self._stall_s:g} s", cure=_SILENT_CURE
        )


def fits(block_bytes: int, limits: Limits) -> bool:
    """Whether the broker lets a block of that size pass."""
    return block_bytes + PACKET_OVERHEAD_BYTES <= limits.max_packet_bytes


def shown(path: str) -> str:
    """A file as messages name it."""
    return f"{path} over MQTT"


def cancelled(path: str) -> UnavailableError:
    """The error of a transfer that was given up on demand."""
    return UnavailableError(
        f"{shown(path)}: given up, because the update was to stop", cure="it is tried again at the next look"
    )


def not_connected(path: str, reason: str) -> UnavailableError:
    """The error of a transfer without a connection."""
    return UnavailableError(f"{shown(path)}: not connected to the broker: {reason}", cure=AWAY_CURE)
