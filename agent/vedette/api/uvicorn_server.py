"""The HTTP server; the only file that names uvicorn.

uvicorn trusts its clients: a header, a trailer or a chunk's extension may come slowly or without end,
requests may be sent ahead without bound, and there may be any number of connections. Here all have a bound.

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

from vedette.api.http_answer import error_answer

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from vedette.api.guard import App
    from vedette.api.http_answer import HttpAnswer
    from vedette.api.quick_inference import Exchange, QuickInference

KEEP_ALIVE_S = 30
MAX_HEAD_BYTES = 16 << 10
MAX_CONNECTIONS = 128
# Beyond them, for whoever asks how the box is: being busy with others is no sign of being dead.
PROBE_CONNECTIONS = 8
PROBE_STARTS = (b"GET /healthz ", b"GET /readyz ", b"GET /metrics ", b"GET /v2/health/")
GRACE_S = 2
SCRATCH_BYTES = 64 << 10
MAX_AHEAD_BYTES = 4 * SCRATCH_BYTES
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
    pipeline: Any
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
    # Since the request began, or since the last byte of its body: a head, a trailer, a chunk's extension.
    _framing_bytes = 0
    _idle_since_s = 0.0
    _for_probes = False
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
        self._idle_since_s = self.loop.time()
        if len(self.connections) > MAX_CONNECTIONS and not self._make_room():
            if len(self.connections) > MAX_CONNECTIONS + PROBE_CONNECTIONS:
                self._refuse_for_others()
                return
            self._for_probes = True
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Count what is of no body; what belongs to a body, the application counts."""
        if self._for_probes and not self._is_probe(data):
            self._refuse_for_others()
            return
        if self._exchange is not None or self._answer_is_pending():
            self._keep_for_later(data)
            return
        if self._began_quickly(data):
            return
        if self._in_head() and self._head_timer is None:
            self._await_head()
        # h11, the other parser, tells no `on_message_begin`, and bounds what follows a head itself.
        if self._in_head() or self._inside_message:
            self._framing_bytes += len(data)
        super().data_received(data)  # type: ignore[misc]
        if not self._in_head():
            self._head_is_over()
        if self._framing_bytes > MAX_HEAD_BYTES:
            self._refuse_framing()

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

    def on_headers_complete(self) -> None:
        """The parser has seen a head."""
        self._framing_bytes = 0
        super().on_headers_complete()  # type: ignore[misc]

    def on_body(self, body: bytes) -> None:
        """The parser has seen a part of a body; one that was refused already is not waited for."""
        if not self.cycle.response_complete:
            self._framing_bytes = 0
        super().on_body(body)  # type: ignore[misc]

    def on_message_complete(self) -> None:
        """The parser has seen all of a request."""
        self._inside_message = False
        self._framing_bytes = 0
        super().on_message_complete()  # type: ignore[misc]

    def on_response_complete(self) -> None:
        """An answer was written: what the client sent ahead is next."""
        super().on_response_complete()  # type: ignore[misc]
        self._idle_since_s = self.loop.time()
        if self._ahead and self._in_head():
            self._take_up_later()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so in the form of all errors."""
        self._refuse(error_answer(400, msg))

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
        if self._framing_bytes:
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
        self._idle_since_s = self.loop.time()
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
            self._take_up_later()

    def _keep_for_later(self, data: bytes) -> None:
        """Of a client that does not wait for its answer; uvicorn may read on though it is paused."""
        self._ahead += data
        if len(self._ahead) > MAX_AHEAD_BYTES:
            self.transport.abort()
        elif len(self._ahead) > SCRATCH_BYTES:
            self.flow.pause_reading()

    def _take_up_later(self) -> None:
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

    def _answer_is_pending(self) -> bool:
        """Whether all of a request is here and its answer is not yet written."""
        return not self._in_head() and not self._inside_message and not self.cycle.more_body

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._head_is_late)

    def _head_is_over(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if not self._inside_message:
            self._framing_bytes = 0

    def _head_is_late(self) -> None:
        self._head_timer = None
        self.transport.close()

    def _refuse_framing(self) -> None:
        """Say why, unless an answer to an earlier request, or this one's, would be mixed with it."""
        if self._in_head() and self._inside_message and not self.pipeline:
            self._refuse(error_answer(431, f"a head may have {MAX_HEAD_BYTES} bytes"))
        else:
            self.transport.abort()

    def _refuse(self, answer: HttpAnswer) -> None:
        self.transport.write(self.heads.write(answer, [], close=True) + answer.body)
        self.transport.close()

    # Too many connections ---------------------------------------------------------------------------------

    def _make_room(self) -> bool:
        """Hang up on whoever has asked nothing for longest; False where all are being answered."""
        idle = [one for one in self.connections if one is not self and one.is_idle()]
        if not idle:
            return False
        # Closing takes a moment, in which it still counts: it is not chosen twice.
        min(idle, key=lambda one: one._idle_since_s).transport.abort()  # noqa: SLF001 - of our own class
        return True

    def is_idle(self) -> bool:
        """Whether no request is under way: none was sent, or only a part of its head."""
        return self._exchange is None and self._in_head() and not self.transport.is_closing()

    def _is_probe(self, data: bytes) -> bool:
        return bool(self._framing_bytes) or data.startswith(PROBE_STARTS)

    def _refuse_for_others(self) -> None:
        self.transport.write(_BUSY)
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
