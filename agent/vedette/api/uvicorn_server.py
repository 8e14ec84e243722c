"""The HTTP server; the only file that names uvicorn.

uvicorn trusts its clients in three respects. A connection may send a header slowly for ever, or one without
end, and there may be any number of connections; all three are bounded here.

It also copies a body five times on its way to an application, in pieces of 64 KiB with a pause after each.
Inference requests therefore leave it after their head, and their connection comes back with the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from vedette.api.guard import App
    from vedette.api.http_answer import HttpAnswer
    from vedette.api.quick_inference import Exchange, QuickInference

KEEP_ALIVE_S = 30
MAX_HEAD_BYTES = 16 << 10
MAX_CONNECTIONS = 128
GRACE_S = 2
SCRATCH_BYTES = 64 << 10
# Where a head is expected, little is read: what follows it has a better place.
HEAD_READ_BYTES = 2 << 10

_BUSY_BODY = b'{"error":"too many connections"}'
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BUSY_BODY), _BUSY_BODY)
)


class BoundedConnection(asyncio.BufferedProtocol):
    """Mixed in front of uvicorn's protocol: bounds for a request's head, and the short way for some."""

    # What uvicorn's protocols have, whichever parser they use.
    cycle: Any
    flow: Any
    server_state: Any
    connections: set[Any]
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    timeout_keep_alive: float
    timeout_keep_alive_task: asyncio.TimerHandle | None

    head_timeout_s = 10.0
    quick: QuickInference | None = None
    heads: HeadWriter
    # What was read is taken out of it before anything else is read, so all connections share it.
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _inside_message = False
    _exchange: Exchange | None = None
    _ahead = b""
    _fd = -1
    _closing = False

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        """Where the next bytes are read to: into the body under way, whose end they never pass."""
        exchange = self._exchange
        if exchange is not None and exchange.wants_body:
            return exchange.buffer()
        return self.scratch[:HEAD_READ_BYTES] if self._in_head() else self.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        exchange = self._exchange
        if exchange is not None and exchange.wants_body:
            exchange.received(nbytes)
            exchange.read_on(self._fd, expected=False)
        else:
            self.data_received(bytes(self.scratch[:nbytes]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a client, or tell it at once that there are too many."""
        super().connection_made(transport)
        self._fd = self.transport.get_extra_info("socket").fileno()
        if len(self.connections) > MAX_CONNECTIONS:
            self.transport.write(_BUSY)
            self.transport.close()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head; what belongs to a body, the application counts."""
        if self._exchange is not None:  # a client that does not wait for its answer
            self._ahead += data
            if len(self._ahead) > SCRATCH_BYTES:
                self.flow.pause_reading()
            return
        if self._began_quickly(data):
            return
        if not self._in_head():
            super().data_received(data)  # type: ignore[misc]
            return
        if self._head_timer is None:
            self._await_head()
        self._head_bytes += len(data)
        super().data_received(data)  # type: ignore[misc]
        if not self._in_head():
            self._head_is_over()
        elif self._head_bytes > MAX_HEAD_BYTES:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer, and the request under way."""
        self._head_is_over()
        if self._exchange is not None:
            self._exchange.abort()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The parser has begun a request."""
        self._inside_message = True
        super().on_message_begin()  # type: ignore[misc]

    def on_message_complete(self) -> None:
        """The parser has seen all of a request."""
        self._inside_message = False
        super().on_message_complete()  # type: ignore[misc]

    def shutdown(self) -> None:
        """Take no further request on this connection."""
        if self._exchange is None:
            super().shutdown()  # type: ignore[misc]
        else:
            self._closing = True

    def resume_writing(self) -> None:
        """The client takes its answers again."""
        super().resume_writing()
        if self._exchange is None:
            self.flow.resume_reading()

    # The short way ----------------------------------------------------------------------------------------

    def _began_quickly(self, data: bytes) -> bool:
        """Whether a request that begins with `data` goes on without uvicorn."""
        if self.quick is None or self._inside_message or not self._in_head():
            return False
        if self._head_timer is not None and self._head_bytes:
            return False
        begun = self.quick.begin(data, self._reply)
        if begun is None:
            return False
        exchange, head_bytes = begun
        self._head_is_over()
        self._keep_alive_is_over()
        self._exchange = exchange
        rest = memoryview(data)[head_bytes:]
        ahead = bytes(rest[exchange.feed(rest) :])
        if self._exchange is None:  # refused already
            self.loop.call_soon(self._go_on, ahead)
        else:
            self._ahead = ahead
            exchange.read_on(self._fd, expected=True)
        return True

    def _reply(self, answer: HttpAnswer) -> None:
        """Write an answer of the short way; the connection is uvicorn's again."""
        self._exchange = None
        if self.transport.is_closing():
            return
        close = self._closing or any(name == "Connection" for name, _ in answer.headers)
        head = self.heads.write(answer, self.server_state.default_headers, close=close)
        self.transport.write(head + answer.body)
        os.sched_yield()  # the client may wait for this very CPU
        self.server_state.total_requests += 1
        if close:
            self.transport.close()
            return
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self._idle_for_long)
        if self.flow.write_paused:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            self.loop.call_soon(self._go_on, ahead)

    def _go_on(self, ahead: bytes) -> None:
        if ahead and not self.transport.is_closing():
            self.data_received(ahead)

    def _idle_for_long(self) -> None:
        """Hang up; a client that did not even take its answer will not take the rest of it either."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _keep_alive_is_over(self) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    # Heads ------------------------------------------------------------------------------------------------

    def _in_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._head_is_late)

    def _head_is_over(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        self.transport.close()


class HeadWriter:
    """Heads of the short way's answers; what browsers are told of pages is not for whoever sends tensors."""

    def __init__(self) -> None:
        self._default: list[tuple[bytes, bytes]] = []
        self._usual: dict[str, bytes] = {}

    def write(self, answer: HttpAnswer, default: list[tuple[bytes, bytes]], *, close: bool) -> bytes:
        """Status line and headers; uvicorn gives a new `default` list when its date has changed."""
        if default is not self._default:
            self._default, self._usual = default, {}
        if answer.status == HTTPStatus.OK and not answer.headers and not close:
            usual = self._usual.get(answer.content_type)
            if usual is None:
                usual = self._usual[answer.content_type] = self._lines(answer)
            return b"%b%d\r\n\r\n" % (usual, len(answer.body))
        ending = b"\r\nconnection: close\r\n\r\n" if close else b"\r\n\r\n"
        return b"%b%d%b" % (self._lines(answer), len(answer.body), ending)

    def _lines(self, answer: HttpAnswer) -> bytes:
        """All but the length itself."""
        lines = [
            _STATUS_LINES[answer.status],
            *(name + b": " + value + b"\r\n" for name, value in self._default),
        ]
        lines += [f"{n}: {v}\r\n".encode("latin-1") for n, v in answer.headers if n != "Connection"]
        lines.append(b"content-type: %b\r\ncontent-length: " % answer.content_type.encode())
        return b"".join(lines)


_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


class DoorServer(uvicorn.Server):
    """A server that leaves signals alone: they are the daemon's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def build_server(app: App, *, head_timeout_s: float, quick: QuickInference | None = None) -> DoorServer:
    """A server for `serve(sockets=[…])`; it ends soon after `should_exit` is set."""
    members = {"head_timeout_s": head_timeout_s, "quick": quick, "heads": HeadWriter()}
    protocol = type("BoundedHttp", (BoundedConnection, AutoHTTPProtocol), members)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    return DoorServer(config)


async def serve(server: DoorServer, listener: socket.socket) -> None:
    """Serve until `should_exit`."""
    await server.serve(sockets=[listener])
