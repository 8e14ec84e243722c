"""Keeps web pages of other origins, and requests without end, away from the door.

A page that a browser on this box has open can reach loopback too. So the name in `Host` must be one of ours
(else a foreign name was rebound to this address), requests that a browser marks as another origin's are
refused, nothing is allowed by CORS, and what is sent may not be embedded elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vedette.api.deadline import Deadline
from vedette.api.http_answer import refusal_answer
from vedette.api.refusal import RequestRefusedError, bad_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from vedette.api.http_answer import HttpAnswer

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
MAX_HEADERS_BYTES = 16 << 10
MAX_HEADERS = 100
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS: tuple[tuple[bytes, bytes], ...] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class _TooSlowError(Exception):
    """The client did not take its answer in time; the server closes the connection."""


class Guard:
    """An ASGI application around another."""

    def __init__(self, app: App, *, hosts: Iterable[str] | None, limit_s: float) -> None:
        """Guard `app`.

        Args:
            app: What answers.
            hosts: Names that `Host` may have, beside loopback's; None: any, as on a Unix socket.
            limit_s: How long a request may take in all, its body and its answer included.
        """
        self._app = app
        self._hosts = None if hosts is None else LOOPBACK_NAMES | {host.lower() for host in hosts}
        self._limit_s = limit_s

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_ALWAYS]
            await send(message)

        try:
            self.check(scope["headers"])
        except RequestRefusedError as refusal:
            await _send_answer(refusal_answer(refusal), send_marked)
            return
        with Deadline(self._limit_s, _TooSlowError(f"a request took over {self._limit_s:g} s")):
            await self._app(scope, receive, send_marked)

    def check(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Refuse what another web page asks, or what is no request for this box; names are in lower case.

        Raises:
            RequestRefusedError: 400, 403, 421 or 431.
        """
        if len(headers) > MAX_HEADERS or sum(len(n) + len(v) for n, v in headers) > MAX_HEADERS_BYTES:
            raise RequestRefusedError(431, f"headers may have {MAX_HEADERS_BYTES} bytes")
        found = [value for name, value in headers if name == b"host"]
        if len(found) != 1:
            raise bad_request("a request needs one Host header")
        host = found[0].decode("latin-1").lower()
        if self._hosts is not None and _name_of(host) not in self._hosts:
            raise RequestRefusedError(
                421,
                f"this is not {_name_of(host)[:64]!r}",
                cure="ask by the address that http.listen names, or by localhost",
            )
        if _is_foreign(dict(headers), host):
            raise RequestRefusedError(403, "requests of other web pages are not answered")


def _is_foreign(headers: dict[bytes, bytes], host: str) -> bool:
    """Whether a browser says that another origin's page asks; a link that is followed is the user's wish."""
    origin = headers.get(b"origin")
    if origin is not None and origin.lower() != f"http://{host}".encode("latin-1"):
        return True
    followed = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    return headers.get(b"sec-fetch-site") in {b"cross-site", b"same-site"} and not followed


def _name_of(host: str) -> str:
    """The host without its port; `[::1]:8080` has colons in its name too."""
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0]


async def _send_answer(answer: HttpAnswer, send: Send) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in answer.headers]
    headers += [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
