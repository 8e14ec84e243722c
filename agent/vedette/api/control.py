"""The control socket: a Unix socket on which the command line talks to the daemon, and the client for it.

A thread of its own answers one client at a time; a client that says nothing is let go after CLIENT_TIMEOUT_S.
Whoever may open the socket may control the daemon: its mode is 0600.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING

import msgspec

from vedette.api.messages import MAX_LINE_BYTES, Reply, Request
from vedette.config.link import MAX_SOCKET_PATH_BYTES
from vedette.errors import ConfigError, UnavailableError, VedetteError, rebuild_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLIENT_TIMEOUT_S = 5.0
ACCEPT_SLICE_S = 0.5
STOP_WAIT_S = 1.0
BACKLOG = 8


class ControlServer(threading.Thread):
    """Answers requests with `answer`, which must not block long."""

    def __init__(self, path: Path, answer: Callable[[Request], bytes]) -> None:
        """Claim the socket.

        Args:
            path: Where it lies; a leftover of a dead daemon is replaced.
            answer: Gives the JSON body of a reply; a VedetteError becomes the reply's error.

        Raises:
            ConfigError: It cannot be made there.
            UnavailableError: Another daemon answers there.
        """
        super().__init__(name="control", daemon=True)
        self._path = path
        self._answer = answer
        self.crash: BaseException | None = None
        self._stopping = threading.Event()
        self._decoder: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
        self._socket = _claim(path)

    def run(self) -> None:
        """Serve until `stop`; what is no error of a request is our bug, and `crash` holds it."""
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - reported by the supervisor, which ends the process
            self.crash = error

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:  # closed by `stop`
                return
            with client, contextlib.suppress(OSError):
                client.settimeout(CLIENT_TIMEOUT_S)
                line = read_line(client)
                if line:
                    client.sendall(msgspec.json.encode(self._reply(line)) + b"\n")

    def _reply(self, line: bytes) -> Reply:
        try:
            return Reply(msgspec.Raw(self._answer(self._decoder.decode(line))))
        except msgspec.DecodeError as error:
            return Reply(error=f"the request is not understood: {error}", exit_code=2)
        except VedetteError as error:
            return Reply(error=error.cause, cure=error.cure, exit_code=error.exit_code)

    def stop(self) -> None:
        """Remove the socket and end the thread; one that waits for a slow client ends with the process."""
        self._stopping.set()
        with contextlib.suppress(OSError):  # wakes the thread
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self.ident is not None:
            self.join(STOP_WAIT_S)
        self._path.unlink(missing_ok=True)


def _claim(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():
            if _somebody_answers(path):
                raise UnavailableError(
                    f"another vedette-agent runs with the control socket {path}",
                    cure="stop it first, or give this one its own state_dir",
                )
            path.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        before = os.umask(0o177)
        try:
            with _address(path) as address:
                server.bind(address)
        finally:
            os.umask(before)
        server.listen(BACKLOG)
        server.settimeout(ACCEPT_SLICE_S)
    except OSError as error:
        server.close()
        raise ConfigError(
            f"the control socket {path} cannot be made: {error.strerror or error}",
            cure="name another in `control.socket`, such as one under /run",
        ) from error
    except VedetteError:
        server.close()
        raise
    return server


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """The path as the kernel takes it: a long one goes by a descriptor of its folder.

    Raises:
        OSError: The folder cannot be opened, or even the name alone is too long.
    """
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        yield os.fspath(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _somebody_answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(CLIENT_TIMEOUT_S)
        try:
            with _address(path) as address:
                probe.connect(address)
        except OSError:
            return False
        return True


def read_line(connection: socket.socket) -> bytes:
    """One line without its newline; empty at the end of the stream or beyond MAX_LINE_BYTES.

    Raises:
        OSError: The other side is gone or silent.
    """
    buffer = bytearray()
    while len(buffer) <= MAX_LINE_BYTES:
        piece = connection.recv(65536)
        if not piece:
            return b""
        buffer += piece
        end = buffer.find(b"\n")
        if end >= 0:
            return bytes(buffer[:end])
    return b""


def ask(path: Path, request: Request, *, timeout_s: float = 30.0) -> bytes:
    """Ask a running daemon.

    Returns:
        The JSON body of its reply.

    Raises:
        UnavailableError: Nobody answers there.
        VedetteError: What the daemon answered, in its own family.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with _address(path) as address:
                connection.connect(address)
            connection.sendall(msgspec.json.encode(request) + b"\n")
            line = read_line(connection)
        except OSError as error:
            raise UnavailableError(
                f"no vedette-agent answers at {path}: {error.strerror or error}",
                cure="start it with `vedette-agent run`, or name its configuration with --config",
            ) from error
    if not line:
        raise UnavailableError(f"the vedette-agent at {path} gave no answer")
    reply = msgspec.json.decode(line, type=Reply)
    if reply.error:
        raise rebuild_error(reply.exit_code, reply.error, reply.cure)
    return bytes(reply.body)
