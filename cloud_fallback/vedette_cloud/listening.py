"""The socket that the server listens on, and its certificate."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, NamedTuple

from vedette.api.listening import BACKLOG, is_loopback
from vedette.errors import ConfigError, UnavailableError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


class Address(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    @property
    def is_private(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.host)


class Certificate(NamedTuple):
    """Files in PEM form; the first holds the chain."""

    chain: Path
    key: Path


def parse_address(text: str) -> Address:
    """Read `HOST:PORT`; an IPv6 address stands in brackets.

    Raises:
        UsageError: It is no such thing.
    """
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host.startswith("[") and host.endswith("]")
    bad_host = not bare or (":" in bare) != bracketed
    if bad_host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen {text!r} is no address", cure="127.0.0.1:8500, 0.0.0.0:8500 or [::]:8500")
    return Address(bare, int(port))


def open_listener(address: Address, *, tls: bool) -> tuple[socket.socket, str]:
    """Listen.

    Returns:
        The socket, and the address for a client on this machine.

    Raises:
        UnavailableError: Somebody else listens there, or this machine has no such address.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio switches Nagle's delay off only where the socket says that it is TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UnavailableError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror or error}",
            cure="another program may; choose another --listen",
        ) from error
    host = f"[{address.host}]" if ":" in address.host else address.host
    return listener, f"{'https' if tls else 'http'}://{host}:{listener.getsockname()[1]}"


def check_certificate(certificate: Certificate) -> None:
    """Load it once, so that a wrong one is a clear error and not a server that answers nobody.

    Raises:
        ConfigError: A file cannot be read, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate.chain, certificate.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the certificate {certificate.chain} with the key {certificate.key} cannot be used: {error}",
            cure="give the chain and its own key in PEM form, the key without a password",
        ) from error


def _no_password() -> str:
    """Called for a key that has one; else OpenSSL would ask on the terminal, and wait."""
    raise ValueError("the key is encrypted")
