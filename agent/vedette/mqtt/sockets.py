"""Opening the stream to a broker: TCP or a Unix socket, TLS on top, within one time limit, and interruptible.

paho's own connecting blocks without an end to it that another thread could bring about, and knows neither a
name for the certificate other than the host's nor the reason of a failure as a word.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING

from vedette.mqtt.loss import LinkLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.mqtt.port import BrokerOptions, TlsOptions
    from vedette.mqtt.waker import Waker

# X509_V_ERR_* of OpenSSL's x509_vfy.h.
_VERIFY_KINDS = {
    9: "tls_not_yet_valid",
    10: "tls_expired",
    2: "tls_unknown_ca",
    18: "tls_unknown_ca",
    19: "tls_unknown_ca",
    20: "tls_unknown_ca",
    21: "tls_unknown_ca",
    62: "tls_wrong_host",
    64: "tls_wrong_host",
}
_VERIFY_CURES = {
    "tls_not_yet_valid": "set this box's clock, which says {utc}",
    "tls_expired": "renew the broker's certificate, or set this box's clock, which says {utc}",
    "tls_unknown_ca": "name the authority that signed the broker's certificate as `tls.ca`",
    "tls_wrong_host": "connect by a name that stands in the certificate, or set `tls.server_name`",
}
# Alerts by which the broker refuses our certificate; the words are OpenSSL's.
_ALERT_KINDS = {
    "CERTIFICATE_EXPIRED": "tls_expired",
    "UNKNOWN_CA": "tls_unknown_ca",
    "CERTIFICATE_REQUIRED": "auth",
    "BAD_CERTIFICATE": "auth",
    "CERTIFICATE_REVOKED": "auth",
    "CERTIFICATE_UNKNOWN": "auth",
    "UNSUPPORTED_CERTIFICATE": "auth",
    "ACCESS_DENIED": "auth",
    "HANDSHAKE_FAILURE": "auth",
}


class _Limit:
    """The end of one attempt, on the monotonic clock, and what ends it before."""

    def __init__(self, timeout_s: float, waker: Waker, stopped: Callable[[], bool]) -> None:
        self._end_s = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._waker = waker
        self._stopped = stopped

    def left_s(self) -> float:
        return self._end_s - time.monotonic()

    def wait(self, sock: socket.socket, events: int, doing: str, *, at_most_s: float | None = None) -> None:
        """Wait until the socket is ready; `LinkLostError` when time is up or the connection is to stop."""
        poll = select.poll()
        poll.register(sock, events)
        poll.register(self._waker, select.POLLIN)
        end_s = self._end_s if at_most_s is None else min(self._end_s, time.monotonic() + at_most_s)
        while True:
            ready = dict(poll.poll(max(0.0, end_s - time.monotonic()) * 1e3))
            if not ready:
                raise LinkLostError("timeout", f"{doing}: no answer within {self._timeout_s:g} s")
            if self._waker.fileno() in ready:
                self._waker.drain()
                if self._stopped():
                    raise LinkLostError("closed", f"{doing}: stopped")
            if sock.fileno() in ready:
                return


def open_stream(options: BrokerOptions, waker: Waker, stopped: Callable[[], bool]) -> socket.socket:
    """A connected, non-blocking stream, TLS included where it is configured.

    A wake ends it where `stopped` says so; only the look-up of the name cannot be interrupted.

    Raises:
        LinkLostError: Why it cannot be had, as a word of `port.Lost`.
    """
    limit = _Limit(options.connect_timeout_s, waker, stopped)
    sock = _open_unix(options, limit) if options.unix_socket else _open_tcp(options, limit)
    if options.tls is None:
        return sock
    try:
        return _secure(sock, options.tls, options.host, limit)
    except BaseException:
        sock.close()
        raise


def stream_loss(error: OSError, doing: str) -> LinkLostError:
    """What an error of a socket means."""
    if isinstance(error, ssl.SSLError):
        return _tls_loss(error)
    reason = error.strerror or str(error) or type(error).__name__
    if isinstance(error, socket.gaierror):
        return LinkLostError(
            "unreachable", f"{doing}: {reason}", cure="check the name of the broker and the DNS"
        )
    if isinstance(error, ConnectionRefusedError):
        return LinkLostError("refused", f"{doing}: {reason}", cure="is a broker running on that port?")
    if isinstance(error, TimeoutError):
        return LinkLostError("timeout", f"{doing}: {reason}")
    if isinstance(error, (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)):
        return LinkLostError("closed", f"{doing}: {reason}")
    return LinkLostError("unreachable", f"{doing}: {reason}")


def _open_tcp(options: BrokerOptions, limit: _Limit) -> socket.socket:
    doing = f"connecting to {options.host}:{options.port}"
    try:
        addresses = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that no DNS could hold
        if isinstance(error, OSError):
            raise stream_loss(error, doing) from error
        raise LinkLostError("unreachable", f"{doing}: {error}") from error
    failure = LinkLostError("unreachable", f"{doing}: the name has no address")
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        share_s = limit.left_s() / (len(addresses) - tried)
        sock = socket.socket(family, kind, protocol)
        try:
            _connect(sock, address, limit, doing, share_s)
            _tune(sock, options)
        except LinkLostError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _open_unix(options: BrokerOptions, limit: _Limit) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _connect(sock, options.unix_socket, limit, f"connecting to {options.unix_socket}", limit.left_s())
    except BaseException:
        sock.close()
        raise
    return sock


def _connect(sock: socket.socket, address: object, limit: _Limit, doing: str, share_s: float) -> None:
    sock.settimeout(0.0)
    try:
        with contextlib.suppress(BlockingIOError):
            sock.connect(address)  # type: ignore[arg-type] # what getaddrinfo gave
        limit.wait(sock, select.POLLOUT, doing, at_most_s=share_s)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except OSError as error:
        raise stream_loss(error, doing) from error
    if code:
        # The constructor picks the subclass that belongs to the code.
        raise stream_loss(OSError(code, os.strerror(code)), doing)


def _tune(sock: socket.socket, options: BrokerOptions) -> None:
    """No waiting for more to send, and an end to what is sent and never acknowledged by the other kernel."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2000 * options.keepalive_s)


def _secure(sock: socket.socket, tls: TlsOptions, host: str, limit: _Limit) -> ssl.SSLSocket:
    context = _context(tls)
    try:
        secured = context.wrap_socket(
            sock, server_hostname=tls.server_name or host, do_handshake_on_connect=False
        )
        while (needed := _shake_hands(secured)) is not None:
            limit.wait(secured, needed, "negotiating TLS")
    except OSError as error:
        raise stream_loss(error, "negotiating TLS") from error
    except ValueError as error:  # a server name that cannot be one
        raise LinkLostError("tls", f"negotiating TLS: {error}", cure="set `tls.server_name`") from error
    return secured


def _shake_hands(secured: ssl.SSLSocket) -> int | None:
    """What the handshake waits for; None when it is done."""
    try:
        secured.do_handshake()
    except ssl.SSLWantReadError:
        return select.POLLIN
    except ssl.SSLWantWriteError:
        return select.POLLOUT
    return None


def _context(tls: TlsOptions) -> ssl.SSLContext:
    """Made anew in each attempt: the files may have been renewed."""
    what = "the authorities"
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert:
            what = "the certificate and key"
            # An encrypted key must not make a daemon ask on a terminal.
            context.load_cert_chain(tls.cert, tls.key, password=_refuse_password)
    except (OSError, ValueError) as error:
        files = ", ".join(name for name in (tls.ca, tls.cert, tls.key) if name)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LinkLostError("tls", f"{what} cannot be used: {reason}", cure=f"check {files}") from error
    return context


def _refuse_password() -> str:
    raise ValueError("the key is encrypted; give it without a password, readable by this user only")


def _tls_loss(error: ssl.SSLError) -> LinkLostError:
    if isinstance(error, ssl.SSLCertVerificationError):
        kind = _VERIFY_KINDS.get(error.verify_code, "tls")
        cure = _VERIFY_CURES.get(kind, "check the broker's certificate")
        utc = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        return LinkLostError(
            kind, f"the broker's certificate is not good: {error.verify_message}", cure=cure.format(utc=utc)
        )
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return LinkLostError("closed", "the broker closed the TLS stream")
    word = error.reason or str(error)
    for ending, kind in _ALERT_KINDS.items():
        if word.endswith("ALERT_" + ending):
            cause = f"the broker refuses our certificate: {word.replace('_', ' ').lower()}"
            return LinkLostError(kind, cause, cure="check `tls.cert` and `tls.key` of this box")
    return LinkLostError("tls", f"TLS: {word.replace('_', ' ').lower()}", cure="is it the broker's TLS port?")
