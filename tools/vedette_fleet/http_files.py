"""A static HTTP server for a repository, with Range; in production any web server or object store does it.

A thread a connection, bounded in number; a request must be complete in a fixed time, and a peer that takes no
byte is cut off. Only plain files below the served folders are opened, through no link.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

from vedette.errors import UnavailableError
from vedette_fleet.http_range import Answer, answer_for, cache_control, etag_of, served_name
from vedette_fleet.served_files import open_below
from vedette_fleet.tuf_repository import SERVED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.clock import Clock

MAX_CONNECTIONS = 64
HEAD_TIMEOUT_S = 15.0  # from the first byte awaited to the last header
STALL_TIMEOUT_S = 30.0
ACCEPT_TIMEOUT_S = 1.0
_BLOCK_BYTES = 1 << 16  # what a peer must take within the stall timeout


class FileServer(HTTPServer):
    """Serves one repository until `shutdown`; `log` is told a line per request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        root: Path,
        *,
        clock: Clock,
        log: Callable[[str], None],
        max_connections: int = MAX_CONNECTIONS,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        self.root = root.resolve()
        self.clock = clock
        self.log = log
        self.head_timeout_s = head_timeout_s
        self.stall_timeout_s = stall_timeout_s
        self._places = threading.BoundedSemaphore(max_connections)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, _Request)
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}",
                cure="choose another --port, or 0 for any that is free",
            ) from error

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def server_bind(self) -> None:
        """Bind without the look-up of our own name, which can take seconds offline."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """Give the connection a thread, or refuse it when all are taken."""
        if not self._places.acquire(timeout=ACCEPT_TIMEOUT_S):
            with contextlib.suppress(OSError):
                request.settimeout(ACCEPT_TIMEOUT_S)
                request.sendall(
                    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"
                )
            self.shutdown_request(request)
            return
        thread = threading.Thread(target=self._serve, args=(request, client_address), daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._places.release()
            self.shutdown_request(request)

    def _serve(self, request: socket.socket, client_address: Any) -> None:  # noqa: ANN401 - as above
        try:
            with contextlib.suppress(OSError):  # the peer went away, or was cut off
                self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)
            self._places.release()


class _HeadReader(io.RawIOBase):
    """Reads a connection under one deadline for a whole request head (a slow sender is cut off)."""

    def __init__(self, connection: socket.socket, clock: Clock, timeout_s: float) -> None:
        self._connection = connection
        self._clock = clock
        self._timeout_s = timeout_s
        self._deadline_ns = 0
        self.restart()

    def restart(self) -> None:
        """The next head may take its whole time again."""
        self._deadline_ns = self._clock.monotonic_ns() + round(self._timeout_s * 1e9)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        left_s = (self._deadline_ns - self._clock.monotonic_ns()) / 1e9
        if left_s <= 0:
            raise TimeoutError("the request's head took too long")
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class _Request(BaseHTTPRequestHandler):
    server: FileServer
    protocol_version = "HTTP/1.1"
    server_version = "vedette-fleet"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = _HeadReader(self.connection, self.server.clock, self.server.head_timeout_s)
        self.rfile = io.BufferedReader(self._head, 8192)

    def handle_one_request(self) -> None:
        self._head.restart()
        super().handle_one_request()

    def do_GET(self) -> None:
        """Send a file, or the part that is asked for."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Send the headers of a file."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """One line on the server's log; what a peer sent is shown without control characters."""
        line = (format % args).encode("ascii", "backslashreplace").decode()
        self.server.log(f"{self.client_address[0]} {''.join(c if c.isprintable() else '?' for c in line)}")

    def _answer(self, *, with_body: bool) -> None:
        self.connection.settimeout(self.server.stall_timeout_s)
        if self.headers.get("Content-Length", "0").strip() != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # a body nobody asked for would be read as the next request
        name = served_name(self.path, SERVED)
        try:
            descriptor = None if name is None else open_below(self.server.root, name)
        except OSError:  # for want of descriptors, say: the file may well be there
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, with_body=with_body)
            return
        if name is None or descriptor is None:
            self._refuse(HTTPStatus.NOT_FOUND, with_body=with_body)
            return
        try:
            self._send(name, descriptor, with_body=with_body)
        finally:
            os.close(descriptor)

    def _send(self, name: str, descriptor: int, *, with_body: bool) -> None:
        status = os.fstat(descriptor)
        etag = etag_of(name, f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")
        headers = {key.lower(): value for key, value in self.headers.items()}
        answer = answer_for(headers, etag=etag, size_bytes=status.st_size)
        self.send_response(answer.status)
        self.send_header("ETag", etag)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Cache-Control", cache_control(name))
        if answer.status is HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            self.send_header("Content-Range", f"bytes */{status.st_size}")
        if answer.status is HTTPStatus.PARTIAL_CONTENT:
            self.send_header("Content-Range", f"bytes {answer.start}-{answer.end - 1}/{status.st_size}")
        if answer.status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", _content_type(name))
            self.send_header("Content-Length", str(answer.end - answer.start))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if with_body:
            self._send_bytes(descriptor, answer)

    def _send_bytes(self, descriptor: int, answer: Answer) -> None:
        offset = answer.start
        while offset < answer.end:
            block = os.pread(descriptor, min(_BLOCK_BYTES, answer.end - offset), offset)
            if not block:  # the file was cut: less than was promised, so the peer must see a broken answer
                self.close_connection = True
                return
            self.wfile.write(block)
            offset += len(block)

    def _refuse(self, status: HTTPStatus, *, with_body: bool) -> None:
        body = f"{status.value} {status.phrase}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def _content_type(name: str) -> str:
    return "application/json" if name.endswith(".json") else "application/octet-stream"
