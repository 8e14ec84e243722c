"""Small messages between the daemon and its children: one datagram each, with file descriptors alongside.

A SOCK_SEQPACKET pair keeps message borders, has a bounded kernel buffer, and tells when the peer dies.
"""

from __future__ import annotations

import array
import os
import select
import socket
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from vedette.errors import BadInputError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

In = TypeVar("In")
Out = TypeVar("Out", bound=msgspec.Struct)

MAX_MESSAGE_BYTES = 160 * 1024
MAX_DESCRIPTORS = 16
_ANCILLARY_BYTES = socket.CMSG_LEN(MAX_DESCRIPTORS * array.array("i").itemsize)


class PeerGoneError(UnavailableError):
    """The process at the other end is dead or has closed its side."""


class Channel(Generic[In]):
    """One end of a pair; `incoming` is the union of message types that may arrive.

    A channel without descriptors is quicker to read; any that a peer sends all the same the kernel discards.
    """

    def __init__(self, sock: socket.socket, incoming: object, *, with_descriptors: bool = True) -> None:
        self._socket = sock
        self._with_descriptors = with_descriptors
        self._decoder: msgspec.msgpack.Decoder[In] = msgspec.msgpack.Decoder(incoming)
        self._encoder = msgspec.msgpack.Encoder()
        # Kept: to have so much memory lent for each message takes four times as long as to read one.
        self._buffer = memoryview(bytearray(MAX_MESSAGE_BYTES + 1))
        self._readable = select.poll()
        self._readable.register(sock.fileno(), select.POLLIN)
        sock.setblocking(False)  # noqa: FBT003 - the standard library's signature

    @classmethod
    def from_fd(cls, fd: int, incoming: object) -> Channel[In]:
        """Adopt an inherited descriptor."""
        return cls(socket.socket(fileno=fd), incoming)

    def for_sending(self) -> Channel[None]:
        """The same end once more, for another thread that only sends, and closes it by itself.

        Raises:
            OSError: The system has no descriptor left for it.
        """
        return Channel(self._socket.dup(), None)

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def send(self, message: msgspec.Struct, fds: Sequence[int] = ()) -> bool:
        """Send without waiting.

        Returns:
            False when the peer's buffer is full; nothing was sent then.

        Raises:
            PeerGoneError: Nobody is at the other end.
            BadInputError: The message is larger than a datagram may be.
        """
        return self.send_bytes(self._encoder.encode(message), fds)

    def send_bytes(self, payload: bytes, fds: Sequence[int] = ()) -> bool:
        """Like `send`, for a message that is already encoded."""
        if len(payload) > MAX_MESSAGE_BYTES:
            raise BadInputError(
                f"a message of {len(payload)} bytes is above the limit of {MAX_MESSAGE_BYTES}"
            )
        try:
            if fds:
                socket.send_fds(self._socket, [payload], list(fds))
            else:
                self._socket.send(payload)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionError, OSError) as error:
            raise PeerGoneError(f"the peer process is gone ({error})") from error
        return True

    def receive(self, timeout_s: float = 0.0) -> tuple[In, list[int]] | None:
        """The next message and its descriptors, or None when none came in time.

        Raises:
            PeerGoneError: The other end closed and everything it sent was read.
            BadInputError: A message that is none of the expected ones.
        """
        if timeout_s > 0:
            self._readable.poll(timeout_s * 1000)
        fds: list[int] = []
        try:
            if self._with_descriptors:
                size_bytes, ancillary, _, _ = self._socket.recvmsg_into([self._buffer], _ANCILLARY_BYTES)
                fds = _descriptors_in(ancillary) if ancillary else fds
            else:
                size_bytes = self._socket.recv_into(self._buffer)
        except BlockingIOError:
            return None
        except ConnectionError as error:
            raise PeerGoneError(f"the peer process is gone ({error})") from error
        if not size_bytes:
            raise PeerGoneError("the peer process closed its side")
        try:
            return self._decoder.decode(self._buffer[:size_bytes]), fds
        except msgspec.DecodeError as error:
            for fd in fds:
                os.close(fd)
            raise BadInputError(f"unexpected message from a peer process: {error}") from error

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def _descriptors_in(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came along; as `socket.recv_fds` reads them."""
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends: one to keep, one for a child to inherit."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_MESSAGE_BYTES)
    return ours, theirs
