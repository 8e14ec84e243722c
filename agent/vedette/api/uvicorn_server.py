"""The HTTP server; the only file that names uvicorn.

uvicorn trusts its clients in three respects. A connection may send a header slowly for ever, or one without
end, and there may be any number of connections; all three are bounded here.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from vedette.api.guard import App

KEEP_ALIVE_S = 30
MAX_HEAD_BYTES = 16 << 10
MAX_CONNECTIONS = 128
GRACE_S = 2

_BUSY_BODY = b'{"error":"too many connections"}'
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BUSY_BODY), _BUSY_BODY)
)


class BoundedConnection(asyncio.Protocol):
    """Mixed in front of uvicorn's protocol: a request's head has a time and a size."""

    # What uvicorn's protocols have, whichever parser they use.
    cycle: Any
    connections: set[Any]
    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop

    head_timeout_s = 10.0
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a client, or tell it at once that there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            self.transport.write(_BUSY)
            self.transport.close()
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head; what belongs to a body, the application counts."""
        if not self._in_head():
            super().data_received(data)
            return
        if self._head_timer is None:
            self._await_head()
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head():
            self._head_is_over()
        elif self._head_bytes > MAX_HEAD_BYTES:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._head_is_over()
        super().connection_lost(exc)

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


class DoorServer(uvicorn.Server):
    """A server that leaves signals alone: they are the daemon's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def build_server(app: App, *, head_timeout_s: float) -> DoorServer:
    """A server for `serve(sockets=[…])`; it ends soon after `should_exit` is set."""
    protocol = type("BoundedHttp", (BoundedConnection, AutoHTTPProtocol), {"head_timeout_s": head_timeout_s})
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
