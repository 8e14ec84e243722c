"""What the door answers, whoever carries it over HTTP. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from vedette.api.refusal import RequestRefusedError

JSON_TYPE = "application/json"
MAX_RETRY_AFTER_S = 3600


class HttpAnswer(NamedTuple):
    """A response; `headers` are those beside the type and the length."""

    status: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: tuple[tuple[str, str], ...] = ()


def json_answer(value: object, *, status: int = 200) -> HttpAnswer:
    """A value as JSON."""
    return HttpAnswer(status, msgspec.json.encode(value))


def refusal_answer(refusal: RequestRefusedError) -> HttpAnswer:
    """The protocol's form of an error, for every path of the door."""
    return error_answer(refusal.status, refusal.text(), retry_after_s=refusal.retry_after_s)


def error_answer(status: int, text: str, *, retry_after_s: float | None = None) -> HttpAnswer:
    """An error in words; a Retry-After of whole seconds, rounded up, where waiting helps."""
    headers: tuple[tuple[str, str], ...] = ()
    if retry_after_s is not None:
        whole_s = min(MAX_RETRY_AFTER_S, max(1, math.ceil(retry_after_s)))
        headers = (("Retry-After", str(whole_s)),)
    if status in {408, 413, 415, 431}:  # the rest of the body is not read
        headers = (*headers, ("Connection", "close"))
    return HttpAnswer(status, msgspec.json.encode({"error": text}), JSON_TYPE, headers)
