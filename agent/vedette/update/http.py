"""Fetch over HTTP: ranges, redirects, stalls, and servers that do not keep to what they say.

Nothing here is trusted; what arrives is verified by whoever asked. What this module owes is an end: every
wait has a limit, on progress and not on the whole, and no more bytes are taken than were asked for.
"""

from __future__ import annotations

import contextlib
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

import requests
import urllib3.exceptions

import vedette
from vedette.errors import (
    ChangedError,
    ConfigError,
    NotFoundError,
    RangeIgnoredError,
    TruncatedError,
    UnavailableError,
)
from vedette.http.headers import parse_content_range, parse_length, parse_retry_after, strong_tag
from vedette.http.watchdog import Watchdog, WatchedAdapter
from vedette.update.interruption import Interruption, interrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_REDIRECTS = 5
PIECE_BYTES = 65536
# Slower than this for a whole stall limit is no progress. GPRS brings ten times as much.
MIN_BYTES_PER_S = 100
_REDIRECTS = {301, 302, 303, 307, 308}
_AWAY_CURE = "it is tried again; check network, proxy and the address of the update repository"


class HttpFetcher:
    """Implements `ports.Fetcher`; one thread at a time, connections are kept open between calls.

    `stall_s` is how long nothing may move, at any stage of a request. `ca` names a file of certificates to
    believe instead of the usual ones. Proxies and REQUESTS_CA_BUNDLE are taken from the environment.
    `interruption` ends a request under way, and keeps others from being begun.
    """

    def __init__(
        self,
        url: str,
        *,
        stall_s: float = 30.0,
        ca: Path | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(
                f"the address of the update repository is no http or https URL: {_shown(url)}",
                cure="write it as https://host/path",
            )
        self._url = url.rstrip("/") + "/"
        self._stall_s = stall_s
        self._interruption = interruption or Interruption()
        self._tags: dict[str, str] = {}
        self._adapter = WatchedAdapter()
        self._session = requests.Session()
        self._session.mount("http://", self._adapter)
        self._session.mount("https://", self._adapter)
        # Compressed in transit, a byte of the answer would be no byte of the blob.
        self._session.headers.update(
            {"User-Agent": f"vedette/{vedette.__version__}", "Accept-Encoding": "identity"}
        )
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        # Given with each request: what stands in the environment would win over the session's.
        self._verify = None if ca is None else str(ca)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def reachable(self) -> bool:
        """Whether the server answers now, whatever it says."""
        try:
            with self._answered("metadata/timestamp.json", {}) as (_response, watchdog):
                # A header that never ended is taken for a short one when the watchdog cuts it.
                return not (watchdog.stalled or watchdog.interrupted)
        except UnavailableError:
            return False

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """Pieces of a small file; it ends one byte after `max_bytes` at the latest.

        Raises:
            NotFoundError: 404, 403 or 410.
            UnavailableError: Anything else; `retry_after_s` where the server said one.
        """
        with self._answered(path, {}) as (response, watchdog):
            if response.status_code != 200:
                raise self._failure(path, response, absent={403, 404, 410})
            yield from self._body(path, response, watchdog, max_bytes + 1)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """Pieces of bytes [start, end) of a blob, never more.

        Raises:
            NotFoundError: 404 or 410.
            RangeIgnoredError: The server would send it from the beginning.
            ChangedError: It is not the object that earlier ranges were of.
            TruncatedError: It ends there before `end`.
            UnavailableError: Anything else; `retry_after_s` where the server said one.
        """
        if start >= end:
            return
        path = f"blobs/{sha256}"
        headers = {"Range": f"bytes={start}-{end - 1}"}
        known_tag = self._tags.get(sha256)
        if known_tag is not None and start > 0:
            headers["If-Range"] = known_tag
        with self._answered(path, headers) as (response, watchdog):
            tag = strong_tag(response.headers.get("ETag"))
            if response.status_code in {200, 206} and known_tag is not None and tag != known_tag:
                del self._tags[sha256]
                raise ChangedError(
                    f"{self._shown(path)}: the object changed while it was fetched",
                    cure="it is fetched from the beginning; what is served must never be overwritten",
                )
            if response.status_code == 200 and start > 0:
                raise RangeIgnoredError(
                    f"{self._shown(path)}: the server sends no parts of it",
                    cure="it is fetched from the beginning; serve blobs with support for Range",
                )
            if response.status_code == 206:
                end = self._check_range(path, response, start, end)
            elif response.status_code != 200:
                raise self._failure(path, response, absent={404, 410})
            if tag is not None:
                self._tags[sha256] = tag
            taken = 0
            for piece in self._body(path, response, watchdog, end - start):
                taken += len(piece)
                yield piece
            if taken < end - start:
                raise TruncatedError(
                    f"{self._shown(path)}: ended after {taken} of {end - start} bytes", cure=_AWAY_CURE
                )

    def _check_range(self, path: str, response: requests.Response, start: int, end: int) -> int:
        """Where the part that is being sent ends; it may be shorter than what was asked for."""
        sent = parse_content_range(response.headers.get("Content-Range"))
        length = parse_length(response.headers.get("Content-Length"))
        if (
            sent is None
            or sent.start != start
            or sent.end > end
            or length not in {None, sent.end - sent.start}
        ):
            raise UnavailableError(
                f"{self._shown(path)}: asked for bytes {start}-{end - 1}, answered "
                f"{response.headers.get('Content-Range')!r} of {length} bytes",
                cure="the server or a cache in between mixes up ranges; nothing of it was used",
            )
        return sent.end

    @contextlib.contextmanager
    def _answered(self, path: str, headers: dict[str, str]) -> Iterator[tuple[requests.Response, Watchdog]]:
        """The response to a request, after redirects, with its body yet to be read."""
        self._interruption.check(self._shown(path))
        with Watchdog(self._stall_s) as watchdog, self._interruption.told(watchdog.interrupt):
            self._adapter.watchdog = watchdog
            response = None
            try:
                response = self._follow(path, headers, watchdog)
                yield response, watchdog
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                raise self._cut(path, watchdog, error) from error
            finally:
                self._adapter.watchdog = None
                if response is not None:
                    response.close()

    def _follow(self, path: str, headers: dict[str, str], watchdog: Watchdog) -> requests.Response:
        url = self._url + quote(path)
        for _ in range(MAX_REDIRECTS + 1):
            response = self._session.get(
                url,
                headers=headers,
                stream=True,
                allow_redirects=False,
                timeout=self._stall_s,
                verify=self._verify,
            )
            watchdog.feed()
            if response.status_code not in _REDIRECTS:
                return response
            response.close()
            target = urljoin(url, response.headers.get("Location", ""))
            self._check_redirect(path, url, target)
            url = target
        raise UnavailableError(
            f"{self._shown(path)}: more than {MAX_REDIRECTS} redirects",
            cure="check the server or its address",
        )

    def _check_redirect(self, path: str, url: str, target: str) -> None:
        scheme = urlsplit(target).scheme
        if scheme not in {"http", "https"} or (urlsplit(url).scheme == "https" and scheme != "https"):
            raise UnavailableError(
                f"{self._shown(path)}: redirects to {_shown(target)}, which is not followed",
                cure="a redirect must not leave https",
            )

    def _body(
        self, path: str, response: requests.Response, watchdog: Watchdog, limit: int
    ) -> Iterator[bytes]:
        """Pieces as they arrive, at most `limit` bytes; each stretch of progress feeds the watchdog."""
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise UnavailableError(
                f"{self._shown(path)}: sent as {encoding}, though it was asked for as it is",
                cure="switch compression off where the repository is served",
            )
        progress_bytes = max(1, int(MIN_BYTES_PER_S * self._stall_s))
        since_fed = 0
        left = limit
        while left > 0:
            piece: bytes = response.raw.read1(min(PIECE_BYTES, left), decode_content=False)
            if not piece:
                if watchdog.stalled or watchdog.interrupted:
                    raise self._cut(path, watchdog, None)
                return
            since_fed += len(piece)
            if since_fed >= progress_bytes:
                watchdog.feed()
                since_fed = 0
            left -= len(piece)
            with watchdog.paused():
                yield piece

    def _cut(self, path: str, watchdog: Watchdog, error: Exception | None) -> UnavailableError:
        shown = self._shown(path)
        if watchdog.interrupted:
            return interrupted(shown)
        if watchdog.stalled or isinstance(error, (requests.Timeout, urllib3.exceptions.TimeoutError)):
            return UnavailableError(f"{shown}: nothing moved for {self._stall_s:g} s", cure=_AWAY_CURE)
        if isinstance(error, requests.exceptions.SSLError):
            return UnavailableError(
                f"{shown}: TLS failed: {_innermost(error)}",
                cure="check the clock of this box, and that it knows the authority of the certificate",
            )
        return UnavailableError(f"{shown}: {_innermost(error)}", cure=_AWAY_CURE)

    def _failure(self, path: str, response: requests.Response, *, absent: set[int]) -> UnavailableError:
        status = f"{self._shown(path)}: HTTP {response.status_code}"
        if response.status_code in absent:
            return NotFoundError(status, cure="check the address, and that everything was published")
        retry_after_s = parse_retry_after(
            response.headers.get("Retry-After"), date=response.headers.get("Date")
        )
        if response.status_code == 416:
            return TruncatedError(f"{status}: it is shorter there than what was signed", cure=_AWAY_CURE)
        return UnavailableError(status, cure=_AWAY_CURE, retry_after_s=retry_after_s)

    def _shown(self, path: str) -> str:
        return _shown(self._url + path)


def _shown(url: str) -> str:
    """An address without the password and token that may stand in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _innermost(error: BaseException | None) -> str:
    """The reason at the bottom: requests wraps urllib3, which wraps the socket."""
    reason: object = error
    while isinstance(reason, Exception):
        inner = getattr(reason, "reason", None) or (reason.args[-1] if reason.args else None)
        if not isinstance(inner, Exception):
            break
        reason = inner
    return str(reason) or type(reason).__name__
