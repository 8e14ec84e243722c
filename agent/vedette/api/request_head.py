"""The head of a request that needs no ASGI; the only file that names httptools."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import ModuleType

END = b"\r\n\r\n"
PREFIX = b"POST /v2/models/"
MAX_BYTES = 4096
_MAX_LENGTH_DIGITS = 15
# Whoever uses one of these is served the long way.
_UNUSUAL = frozenset({"transfer-encoding", "expect", "upgrade", "trailer", "connection"})


class RequestHead(NamedTuple):
    """A POST to a model with a body of known length, on a connection that stays open.

    Header names are in lower case, in `raw_headers` too, which are all of them.
    """

    path: str
    headers: dict[str, str]
    raw_headers: list[tuple[bytes, bytes]]
    body_bytes: int


class HeadReader:
    """Reads heads with the parser that uvicorn uses, which settles what is valid."""

    def __init__(self, httptools: ModuleType) -> None:
        self._httptools = httptools

    @classmethod
    def installed(cls) -> HeadReader | None:
        """A reader, or None where httptools is not there."""
        try:
            import httptools  # noqa: PLC0415 - uvicorn does without it, too
        except ImportError:
            return None
        return cls(httptools)

    def read(self, packed: bytes) -> RequestHead | None:
        """What a head says, with its empty line.

        Returns:
            None for anything but a whole, plain head of a POST to a model: somebody else reads it then.
        """
        if len(packed) > MAX_BYTES or not packed.startswith(PREFIX) or not packed.endswith(END):
            return None
        parts = _Parts()
        parser = self._httptools.HttpRequestParser(parts)
        try:
            parser.feed_data(packed)
        except self._httptools.HttpParserError:
            return None
        if not parts.complete or parser.get_http_version() != "1.1" or not parser.should_keep_alive():
            return None
        return _head_of(parts)


class _Parts:
    """What the parser calls."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True


def _head_of(parts: _Parts) -> RequestHead | None:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in parts.headers}
    if len(headers) != len(parts.headers) or not _UNUSUAL.isdisjoint(headers):
        return None
    length = headers.get("content-length", "")
    if not length.isascii() or not length.isdigit() or len(length) > _MAX_LENGTH_DIGITS:
        return None
    if not parts.url.isascii() or b"%" in parts.url or b"?" in parts.url or b"#" in parts.url:
        return None
    return RequestHead(parts.url.decode(), headers, parts.headers, int(length))
