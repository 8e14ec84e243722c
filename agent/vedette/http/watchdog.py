"""Cut a connection that makes no progress, or that nobody wants any more.

A socket's timeout sees silence only. A handshake, a header or the framing of a chunk that comes a byte at a
time keeps it quiet for ever; so a thread looks at progress, and shuts the socket down under the reader. Names
are looked up, and connections made, by a thread that can be left behind: nothing can end those calls.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from urllib3.response import BaseHTTPResponse


class Watchdog:
    """Watches one request; `stalled` or `interrupted` say why it cut it.

    Use as a context; `feed` within `stall_s`.
    """

    def __init__(self, stall_s: float) -> None:
        self.stalled = False
        self.interrupted = False
        self._stall_s = stall_s
        self._deadline_s = time.monotonic() + stall_s
        self._paused_s: float | None = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._connecting: Future[socket.socket] | None = None
        self._thread = threading.Thread(target=self._watch, name="fetch-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:  # noqa: PYI034 - Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(timeout=self._stall_s)
        with self._lock:
            self._drop()

    def attach(self, connected: socket.socket) -> None:
        """Watch this socket; a duplicate is kept, because TLS takes the descriptor away from its object."""
        duplicate = socket.socket(fileno=os.dup(connected.fileno()))
        with self._lock:
            self._drop()
            self._socket = duplicate
            if self.stalled or self.interrupted:
                self._cut()

    def connect(self, make: Callable[[], socket.socket]) -> socket.socket:
        """What `make` gives, which may wait for name servers longer than is allowed here.

        Raises:
            OSError: As `make` raised it, or the request was cut meanwhile.
        """
        made: Future[socket.socket] = Future()
        with self._lock:
            self._connecting = made
            if self.stalled or self.interrupted:
                self._cut()
        threading.Thread(target=_connect, args=(make, made), name="fetch-connect", daemon=True).start()
        try:
            connected = made.result(timeout=2 * self._stall_s)
        except (CancelledError, FutureTimeoutError) as error:
            made.cancel()
            raise ConnectionAbortedError("given up while connecting") from error
        finally:
            with self._lock:
                self._connecting = None
        self.attach(connected)
        return connected

    def interrupt(self) -> None:
        """Cut it now; any thread."""
        with self._lock:
            self.interrupted = True
            self._cut()

    def feed(self) -> None:
        """There was progress."""
        with self._lock:
            self._deadline_s = time.monotonic() + self._stall_s

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """While the reader is busy with what it got, a slow disk is not the server's fault."""
        with self._lock:
            self._paused_s = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._deadline_s += time.monotonic() - self._paused_s
                self._paused_s = None

    def _watch(self) -> None:
        left_s = self._stall_s
        while not self._over.wait(left_s):
            with self._lock:
                left_s = self._deadline_s - time.monotonic()
                if left_s <= 0 and self._paused_s is None:
                    self.stalled = True
                    self._cut()
                    return
            left_s = max(left_s, self._stall_s / 8)

    def _cut(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # the other side was faster

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _connect(make: Callable[[], socket.socket], made: Future[socket.socket]) -> None:
    try:
        connected = make()
    except Exception as error:  # noqa: BLE001 - whatever it was, it belongs to whoever waits
        with contextlib.suppress(InvalidStateError):  # nobody waits any more
            made.set_exception(error)
        return
    try:
        made.set_result(connected)
    except InvalidStateError:
        connected.close()


class WatchedAdapter(HTTPAdapter):
    """Connections of requests that show their sockets to `watchdog`; no retries of its own."""

    def __init__(self) -> None:
        self.watchdog: Watchdog | None = None
        self._pools = _pools(self)
        super().__init__(pool_connections=2, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **options: Any) -> None:  # noqa: ANN401, FBT001, FBT002 - overridden
        """As in requests, with our connections."""
        super().init_poolmanager(connections, maxsize, block, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:  # noqa: ANN401 - overridden
        """As in requests, with our connections."""
        manager = super().proxy_manager_for(proxy, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager

    def connect(self, make: Callable[[], socket.socket]) -> socket.socket:
        """Connect under the eyes of the watchdog of the request under way."""
        return make() if self.watchdog is None else self.watchdog.connect(make)

    def show(self, connected: socket.socket | None) -> None:
        """Let the watchdog of the request under way see its socket."""
        if self.watchdog is not None and connected is not None:
            self.watchdog.attach(connected)


def _pools(adapter: WatchedAdapter) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return adapter.connect(super()._new_conn)

        def getresponse(self) -> BaseHTTPResponse:  # type: ignore[override]  # as urllib3 does
            adapter.show(self.sock)
            return super().getresponse()

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return adapter.connect(super()._new_conn)

        def getresponse(self) -> BaseHTTPResponse:  # type: ignore[override]  # as urllib3 does
            adapter.show(self.sock)
            return super().getresponse()

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}
