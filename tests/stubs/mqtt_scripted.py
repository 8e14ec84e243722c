"""A broker of a few lines that plays a part: what a real one would not do, or only in bad times."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

WELCOME_5 = bytes([0x20, 3, 0, 0, 0])
WELCOME_3_1_1 = bytes([0x20, 2, 0, 0])
# What brokers older than MQTT 5 answer to it: "unacceptable protocol version".
UNSUPPORTED_PROTOCOL_3_1_1 = bytes([0x20, 2, 0, 1])


class Peer:
    """The connection of one client, as the part sees it."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self._connection = connection
        self.number = number

    def receive(self) -> bytes:
        """The next packet; empty when the client went away."""
        head = self._exactly(2)
        if not head:
            return b""
        size, shift, at = head[1] & 0x7F, 7, 1
        while head[at] & 0x80:
            head += self._exactly(1)
            at += 1
            size |= (head[at] & 0x7F) << shift
            shift += 7
        return head + self._exactly(size)

    def expect(self, kind: int) -> bytes:
        """The next packet of a kind; others are passed over."""
        while packet := self.receive():
            if packet[0] >> 4 == kind:
                return packet
        raise ConnectionResetError

    def send(self, raw: bytes) -> None:
        """Bytes, as they are."""
        self._connection.sendall(raw)

    def grant(self) -> None:
        """Wait for SUBSCRIBE, and grant one filter in MQTT 5, or in 3.1.1 with `grant_3_1_1`."""
        subscribe = self.expect(8)
        self.send(bytes([0x90, 4, subscribe[2], subscribe[3], 0, 1]))

    def grant_3_1_1(self) -> None:
        """The same in 3.1.1."""
        subscribe = self.expect(8)
        self.send(bytes([0x90, 3, subscribe[2], subscribe[3], 1]))

    def until_gone(self) -> None:
        """Read whatever comes until the client goes away."""
        while self.receive():
            pass

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            piece = self._connection.recv(size - len(received))
            if not piece:
                return b""
            received += piece
        return received


class ScriptedBroker:
    """Plays a part for each connection, one after the other; then closes it."""

    def __init__(self, part: Callable[[Peer], None]) -> None:
        self._part = part
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="scripted-broker", daemon=True)
        self._connection: socket.socket | None = None
        self.connections = 0

    @property
    def port(self) -> int:
        """Where clients connect."""
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        for end in (self._listener, self._connection):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        self._thread.join(5.0)

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                self._connection, _ = self._listener.accept()
            except OSError:
                return
            self._connection.settimeout(30.0)
            with self._connection, contextlib.suppress(OSError):
                self._part(Peer(self._connection, self.connections_from_now()))

    def connections_from_now(self) -> int:
        """Count one, and say its number, from 0."""
        self.connections += 1
        return self.connections - 1


def publish(
    topic: bytes, payload: bytes, *, qos: int = 0, mid: int = 1, properties: bytes | None = b""
) -> bytes:
    """A PUBLISH packet of any bytes; `properties` None is MQTT 3.1.1."""
    body = len(topic).to_bytes(2, "big") + topic
    if qos:
        body += mid.to_bytes(2, "big")
    if properties is not None:
        body += bytes([len(properties)]) + properties
    body += payload
    size, head = len(body), bytearray([0x30 | qos << 1])
    while True:
        head.append((size & 0x7F) | (0x80 if size > 0x7F else 0))
        size >>= 7
        if not size:
            return bytes(head) + body
