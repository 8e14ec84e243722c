"""What an HTTP request for a file asks for: which bytes, whether the copy at hand is still good. Pure.

RFC 9110: sections 8.8.3 (ETag), 13.1.2 (If-None-Match), 13.1.5 (If-Range), 14.1.2 and 14.2 (Range).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from vedette_fleet.served_names import may_be_served

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_RANGE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})", re.IGNORECASE)
_HASHED = re.compile(r"[0-9a-f]{64}(\..+)?")
_VERSIONED = re.compile(r"[0-9]+\..+\.json")


class Answer(NamedTuple):
    """The status, and the bytes [start, end) to send."""

    status: HTTPStatus
    start: int
    end: int


def answer_for(headers: Mapping[str, str], *, etag: str, size_bytes: int) -> Answer:
    """Judge a request's conditions against the file as it is; header names in lower case."""
    whole = Answer(HTTPStatus.OK, 0, size_bytes)
    known = headers.get("if-none-match", "")
    if known.strip() == "*" or etag in [entry.strip().removeprefix("W/") for entry in known.split(",")]:
        return Answer(HTTPStatus.NOT_MODIFIED, 0, 0)
    match = _RANGE.fullmatch(headers.get("range", "").strip())
    if match is None or match.groups() == ("", ""):
        return whole  # no range, several ranges, or one that makes no sense: all may be ignored
    if headers.get("if-range", etag).strip() != etag:
        return whole
    first, last = match.groups()
    if not first:
        start, end = max(0, size_bytes - int(last)), size_bytes
    else:
        start = int(first)
        end = min(int(last) + 1, size_bytes) if last else size_bytes
        if last and int(last) < start:
            return whole
    if start >= size_bytes or start >= end:
        return Answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, 0)
    return Answer(HTTPStatus.PARTIAL_CONTENT, start, end)


def served_name(request_target: str, folders: Collection[str]) -> str | None:
    """The file below the repository that a request names; None when it is none that may be served."""
    try:
        name = unquote(urlsplit(request_target).path, errors="strict").removeprefix("/")
    except ValueError:
        return None
    return name if may_be_served(name, folders) else None


def etag_of(name: str, otherwise: str) -> str:
    """A strong validator: the hash where the name holds it, the same on every server; else what is given."""
    match = _HASHED.fullmatch(name.rpartition("/")[2])
    return f'"{otherwise if match is None else match.group()[:64]}"'


def cache_control(name: str) -> str:
    """How long caches may keep a file: for ever when its name holds its hash or version, else not unasked."""
    last = name.rpartition("/")[2]
    if _HASHED.fullmatch(last) or _VERSIONED.fullmatch(last):
        return "public, max-age=31536000, immutable"
    return "no-cache"
