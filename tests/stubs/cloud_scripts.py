"""A server that plays a script of bytes for each connection; a large model at its worst."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    Script = Callable[[socket.socket, threading.Event], None]

PATIENCE_S = 20.0


class ScriptedCloud:
    """Listens while it is open; `requests` are the heads and bodies that came."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.requests: list[bytes] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                peer, _ = self._listener.accept()
            except TimeoutError:
                continue
            script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
            thread = threading.Thread(target=self._serve, args=(peer, script), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, peer: socket.socket, script: Script) -> None:
        peer.settimeout(PATIENCE_S)
        with peer, contextlib.suppress(OSError):
            self.requests.append(_request_from(peer))
            script(peer, self._over)


def _request_from(peer: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = peer.recv(65536)
        if not piece:
            return received
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [
        line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    ]
    while lengths and len(body) < int(lengths[0]):
        body += peer.recv(65536)
    return head + b"\r\n\r\n" + body


def says(
    body: bytes, *, status: str = "200 OK", headers: str = "", content_type: str = "application/json"
) -> Script:
    """One whole answer; it says that no other follows, or a client would ask again on what is closing."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: close\r\n{headers}\r\n"
    )

    def script(peer: socket.socket, _: threading.Event) -> None:
        peer.sendall(head.encode() + body)

    return script


def mute(peer: socket.socket, over: threading.Event) -> None:
    """Takes the request and says nothing."""
    del peer
    over.wait(PATIENCE_S)


def drips(text: bytes, every_s: float = 0.05) -> Script:
    """A byte now and then, so that no read ever waits for long."""

    def script(peer: socket.socket, over: threading.Event) -> None:
        for byte in text:
            peer.sendall(bytes([byte]))
            if over.wait(every_s):
                return

    return script


def sends(*pieces: bytes) -> Script:
    """Bytes as they are, then the end."""

    def script(peer: socket.socket, _: threading.Event) -> None:
        for piece in pieces:
            peer.sendall(piece)

    return script


def floods(peer: socket.socket, over: threading.Event) -> None:
    """An answer of 500 MB."""
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500000000\r\n\r\n")
    piece = b" " * 65536
    while not over.is_set():
        peer.sendall(piece)
