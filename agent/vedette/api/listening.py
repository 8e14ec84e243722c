"""The socket that the door listens on: loopback, or a Unix socket of mode 0660."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from pathlib import Path

from vedette.config.link import MAX_SOCKET_PATH_BYTES
from vedette.errors import ConfigError, UnavailableError

UNIX_PREFIX = "unix:"
BACKLOG = 128
PROBE_TIMEOUT_S = 1.0
# Reading and writing for owner and group: who may ask is decided by the file's group.
UMASK = 0o117


def open_listener(listen: str) -> tuple[socket.socket, str]:
    """Listen on `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` or `unix:PATH`; port 0 takes a free one.

    Returns:
        The socket, and where it is, for a person.

    Raises:
        ConfigError: An address that is not of this box alone, or cannot be listened on.
        UnavailableError: Somebody else listens there.
    """
    if listen.startswith(UNIX_PREFIX):
        path = Path(listen.removeprefix(UNIX_PREFIX))
        return _unix(path), f"unix:{path}"
    return _loopback(listen)


def host_names(listen: str) -> tuple[str, ...] | None:
    """Names that a client may ask this address by, beside loopback's own; None: any, on a Unix socket."""
    if listen.startswith(UNIX_PREFIX):
        return None
    return (listen.rpartition(":")[0],)


def _loopback(listen: str) -> tuple[socket.socket, str]:
    host, _, port = listen.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not port.isascii() or not port.isdigit() or int(port) > 65535 or not is_loopback(bare):
        raise ConfigError(
            f"http.listen {listen!r} is no address of this box alone",
            cure="127.0.0.1:8080 or unix:/run/vedette/http.sock; others reach it through a proxy that "
            "asks who they are",
        )
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    # asyncio switches Nagle's delay off only where the socket says that it is TCP: else 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1" if bare == "localhost" else bare, int(port)))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UnavailableError(
            f"the HTTP door cannot listen on {listen}: {error.strerror}",
            cure="another program may; choose another http.listen",
        ) from error
    address = listener.getsockname()
    return listener, f"http://{host}:{address[1]}"


def is_loopback(host: str) -> bool:
    """Whether an address, or the name `localhost`, is of this box alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _unix(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"http.listen: a socket's path may have {MAX_SOCKET_PATH_BYTES} bytes, {path} has more",
            cure="choose one under /run",
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_leftover(path)
        before = os.umask(UMASK)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"http.listen: the socket {path} cannot be made: {error.strerror or error}",
            cure="its folder must exist and be writable for the agent",
        ) from error
    except UnavailableError:
        listener.close()
        raise
    return listener


def _remove_leftover(path: Path) -> None:
    """The socket of a dead door goes; a living one's stays, and so does what is no socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return  # binding says "address already in use"
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_TIMEOUT_S)
        try:
            probe.connect(os.fspath(path))
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
            return
    raise UnavailableError(
        f"another program answers at {path}", cure="stop it, or choose another http.listen"
    )
