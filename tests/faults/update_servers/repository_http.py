"""A small HTTP server of a repository on loopback that is honest until a fault is asked for."""

from __future__ import annotations

import dataclasses
import re
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from typing_extensions import Self

SHUTDOWN_S = 5.0
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclasses.dataclass
class Fault:
    """What is wrong with the server; nothing by default. Sizes in bytes."""

    status: int = 0
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    redirect: str = ""
    ignore_range: bool = False
    content_range: str = ""
    length_offset: int = 0  # what Content-Length says above the truth
    body_limit: int | None = None  # close in good order after so much of a body
    most_per_answer: int | None = None  # a 206 may be shorter than what was asked for
    reset_after: int | None = None  # reset the connection after so much of a body
    rate_bytes_per_s: float = 0.0
    silent_after: int | None = None  # send no more after so much of a body
    drip_header: bool = False
    drip_body: bool = False
    drip_chunks: bool = False  # the size line of a chunk never ends
    chunked: bool = False
    etags: list[str] = dataclasses.field(
        default_factory=list
    )  # of one answer after the other; the last stays
    faulty_answers: int = 1 << 30  # honest again after so many


class RepositoryServer:
    """Serves `files` by path; counts answers and the bytes of their bodies."""

    def __init__(
        self, files: dict[str, bytes], fault: Fault | None = None, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.files = files
        self.fault = fault or Fault()
        self.requests: list[tuple[str, str | None]] = []
        self.connections = 0
        self.sent_bytes = 0
        self.agent = ""
        self.stopped = threading.Event()
        self._scheme = "http" if tls is None else "https"
        repository = self

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that cuts the connection is what is tested."""

        class Handler(_Handler):
            server_of = repository

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=SHUTDOWN_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10.0
    server_of: RepositoryServer

    def setup(self) -> None:
        super().setup()
        self.server_of.connections += 1

    def do_GET(self) -> None:
        server = self.server_of
        server.requests.append((self.path, self.headers.get("Range")))
        server.agent = self.headers.get("User-Agent", "")
        fault = server.fault if len(server.requests) <= server.fault.faulty_answers else Fault()
        content = server.files.get(unquote(self.path.lstrip("/")))
        if fault.drip_header:
            self._drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 10_000)
        elif fault.redirect:
            self._answer(
                302, b"", {"Location": fault.redirect.replace("{n}", str(len(server.requests)))}, fault
            )
        elif fault.status:
            self._answer(fault.status, b"no", fault.headers, fault)
        elif content is None:
            self._answer(404, b"not there", {}, fault)
        else:
            self._serve(content, fault)

    def _serve(self, content: bytes, fault: Fault) -> None:
        etag = ""
        if fault.etags:
            etag = fault.etags.pop(0) if len(fault.etags) > 1 else fault.etags[0]
        headers = {**fault.headers, **({"ETag": etag} if etag else {})}
        asked = None if fault.ignore_range else _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None or self.headers.get("If-Range", etag) != etag:
            self._answer(200, content, headers, fault)
            return
        start, end = int(asked[1]), min(int(asked[2]) + 1, len(content))
        if start >= len(content):
            self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"}, fault)
            return
        if fault.most_per_answer is not None:
            end = min(end, start + fault.most_per_answer)
        headers["Content-Range"] = fault.content_range or f"bytes {start}-{end - 1}/{len(content)}"
        self._answer(206, content[start:end], headers, fault)

    def _answer(self, status: int, body: bytes, headers: dict[str, str], fault: Fault) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if fault.chunked or fault.drip_chunks:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) + fault.length_offset))
        self.end_headers()
        if fault.drip_chunks:
            self._drip(b"1;" + b"x" * 10_000)
        elif fault.chunked:
            self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        else:
            self._send(body, fault)

    def _send(self, body: bytes, fault: Fault) -> None:
        if fault.drip_body:
            self._drip(body)
            return
        limits = (fault.body_limit, fault.reset_after, fault.silent_after)
        limit = min((limit for limit in limits if limit is not None), default=len(body))
        for start in range(0, min(limit, len(body)), 16384):
            piece = body[start : min(start + 16384, limit)]
            self.wfile.write(piece)
            self.server_of.sent_bytes += len(piece)
            if fault.rate_bytes_per_s and self.server_of.stopped.wait(len(piece) / fault.rate_bytes_per_s):
                return
        if limit >= len(body) and fault.length_offset <= 0:
            return
        if fault.silent_after is not None:
            self.server_of.stopped.wait(SHUTDOWN_S)
        self.close_connection = True
        if fault.reset_after is not None:
            # Zero seconds of lingering: a reset goes out instead of an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.shutdown(socket.SHUT_RD)
            self.connection.close()

    def _drip(self, content: bytes) -> None:
        for index in range(len(content)):
            self.wfile.write(content[index : index + 1])
            self.wfile.flush()
            if self.server_of.stopped.wait(0.02):
                return

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002, ANN401 - overridden
        """Keep quiet."""
