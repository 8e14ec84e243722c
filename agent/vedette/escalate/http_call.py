"""One HTTP request with one deadline for the whole of it, from the name's lookup to the body's last byte.

`requests` times each read, so that a server that drips keeps it for ever; a watchdog cuts the connection at
the deadline instead. Each thread has a session of its own. No redirect is followed, and nothing is retried.
"""

from __future__ import annotations

import contextlib
import threading
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import requests
import requests.auth
import urllib3.exceptions

import vedette
from vedette.errors import ConfigError
from vedette.escalate.port import CloudError
from vedette.http.watchdog import Watchdog, WatchedAdapter
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vedette.clock import Clock

PIECE_BYTES = 65536
LEAST_S = 0.005


class HttpReply(NamedTuple):
    """A whole answer; headers by lower-case name."""

    status: int
    headers: dict[str, str]
    body: bytes
    took_s: float


class CloudHttp:
    """Posts to one server; several threads may at once.

    `key` goes into the Authorization header; `ca` names a file of certificates to believe instead of the
    usual ones. Proxies and REQUESTS_CA_BUNDLE are taken from the environment.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        key: str = "",
        ca: str | None = None,
        max_answer_bytes: int = 1_000_000,
    ) -> None:
        self.shown = _shown(url)
        self._url = url.rstrip("/")
        self._clock = clock
        self._authorization = _Bearer(key) if key else None
        self._verify = None if ca is None else ca
        self._max_answer_bytes = max_answer_bytes
        self._own = threading.local()
        self._lock = threading.Lock()
        self._sessions: list[requests.Session] = []
        self._under_way: set[Watchdog] = set()
        self._closed = False

    def close(self) -> None:
        """Close all connections; requests under way, and later ones, end with an error."""
        with self._lock:
            self._closed = True
            for watchdog in self._under_way:
                watchdog.interrupt()
            for session in self._sessions:
                session.close()
            self._sessions.clear()

    def post(self, path: str, body: bytes, headers: Mapping[str, str], deadline_s: float) -> HttpReply:
        """Send a body, and bring the answer's, whatever its status.

        Args:
            path: Appended to the URL.
            body: What is sent.
            headers: Beside those that every request has.
            deadline_s: When to be back, CLOCK_MONOTONIC in seconds.

        Raises:
            CloudError: deadline, connect, broken or too_large.
        """
        began_s = self._clock.monotonic_ns() / 1e9
        left_s = deadline_s - began_s
        if left_s < LEAST_S:
            raise CloudError(CloudFault.DEADLINE, "no time is left to ask")
        session, adapter = self._session()
        with Watchdog(left_s) as watchdog, self._told_of_closing(watchdog):
            adapter.watchdog = watchdog
            try:
                with session.post(
                    self._url + path,
                    data=body,
                    headers=_headers(headers),
                    auth=self._authorization,
                    timeout=left_s,
                    stream=True,
                    allow_redirects=False,
                    verify=self._verify,
                ) as response:
                    content = self._body(response, watchdog, left_s, len(body))
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                raise self._fault(error, watchdog, left_s, len(body)) from error
            finally:
                adapter.watchdog = None
            return HttpReply(
                response.status_code,
                {name.lower(): value for name, value in response.headers.items()},
                content,
                self._clock.monotonic_ns() / 1e9 - began_s,
            )

    def _session(self) -> tuple[requests.Session, WatchedAdapter]:
        session: requests.Session | None = getattr(self._own, "session", None)
        if session is None:
            adapter = WatchedAdapter()
            session = requests.Session()
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
            self._own.session, self._own.adapter = session, adapter
            with self._lock:
                self._sessions.append(session)
        return session, self._own.adapter

    @contextlib.contextmanager
    def _told_of_closing(self, watchdog: Watchdog) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise self._given_up()
            self._under_way.add(watchdog)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(watchdog)

    def _body(
        self, response: requests.Response, watchdog: Watchdog, limit_s: float, sent_bytes: int
    ) -> bytes:
        received = bytearray()
        for piece in response.raw.stream(PIECE_BYTES, decode_content=False):
            received += piece
            if len(received) > self._max_answer_bytes:
                raise CloudError(
                    CloudFault.TOO_LARGE,
                    f"{self.shown} answers with more than {self._max_answer_bytes:,} bytes",
                    sent_bytes=sent_bytes,
                )
        if watchdog.interrupted:  # a body without a length ends where it is cut
            raise self._given_up(sent_bytes)
        if watchdog.stalled:
            raise self._late(limit_s, sent_bytes)
        return bytes(received)

    def _given_up(self, sent_bytes: int = 0) -> CloudError:
        text = f"{self.shown}: given up, because this agent ends"
        return CloudError(CloudFault.BROKEN, text, final=True, sent_bytes=sent_bytes)

    def _late(self, limit_s: float, sent_bytes: int) -> CloudError:
        text = f"{self.shown} had not answered in full after {limit_s:.3g} s"
        return CloudError(CloudFault.DEADLINE, text, sent_bytes=sent_bytes)

    def _fault(self, error: Exception, watchdog: Watchdog, limit_s: float, sent_bytes: int) -> CloudError:
        if isinstance(error, CloudError):
            return error
        if watchdog.interrupted:
            return self._given_up(sent_bytes)
        if watchdog.stalled or isinstance(error, requests.Timeout):
            return self._late(limit_s, sent_bytes)
        if isinstance(error, requests.exceptions.SSLError):
            return CloudError(CloudFault.CONNECT, f"{self.shown}: no secure connection: {_reason(error)}")
        if isinstance(error, requests.ConnectionError) and not _was_open(error):
            return CloudError(CloudFault.CONNECT, f"{self.shown} cannot be reached: {_reason(error)}")
        text = f"{self.shown}: the answer broke off: {_reason(error)}"
        return CloudError(CloudFault.BROKEN, text, sent_bytes=sent_bytes)


class _Bearer(requests.auth.AuthBase):
    """The key; given as requests' own `auth`, because .netrc and the URL's user would win over a header."""

    def __init__(self, key: str) -> None:
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError(
                "the key for the large model holds a space, a line break or a letter beyond ASCII",
                cure="give the key alone, on one line",
            )
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def _shown(url: str) -> str:
    """The address without credentials and query."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:  # a port or an IPv6 address that is none
        parts, port = urlsplit(""), ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            "the address of the large model is no http or https URL",
            cure="write it as https://host/path",
        )
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _headers(more: Mapping[str, str]) -> dict[str, str]:
    # Compressed, an answer's size would say nothing of what it unpacks to; Triton does it in secret.
    return {"User-Agent": f"vedette/{vedette.__version__}", "Accept-Encoding": "identity", **more}


def _was_open(error: requests.ConnectionError) -> bool:
    """Whether a connection was there and ended, rather than none was made."""
    inner = error.args[0] if error.args else None
    return isinstance(inner, urllib3.exceptions.ProtocolError)


def _reason(error: Exception) -> str:
    """The innermost words, without addresses of objects and credentials of URLs."""
    inner: BaseException = error
    while inner.__cause__ is not None or inner.__context__ is not None:
        inner = inner.__cause__ or inner.__context__ or inner
    text = getattr(inner, "strerror", None) or str(inner)
    return f"{type(inner).__name__}: {text[:160]}" if text else type(inner).__name__
