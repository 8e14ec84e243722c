"""Reads a request's body as it comes: bounded in bytes, and in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette.api.body import Body
from vedette.api.deadline import Deadline
from vedette.api.refusal import RequestRefusedError, bad_request, too_large

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from vedette.api.admission import Share

MAX_LENGTH_DIGITS = 15


class BodyLimits(NamedTuple):
    """The most bytes, and how long all of them, or a pause between two of them, may take."""

    max_bytes: int
    timeout_s: float
    pause_s: float


async def read_body(
    headers: Mapping[str, str], stream: AsyncIterator[bytes], limits: BodyLimits, share: Share
) -> Body:
    """All of a body; only what has come is counted, for whoever announces much need not send it.

    Raises:
        RequestRefusedError: 400: there is none; 408, 413 or 503.
    """
    announced = headers.get("content-length", "")
    said = announced.isascii() and announced.isdigit()
    if said and (len(announced) > MAX_LENGTH_DIGITS or int(announced) > limits.max_bytes):
        raise _body_too_large(limits.max_bytes)
    body, pieces = Body(), aiter(stream)
    slow = RequestRefusedError(408, f"the body did not come within {limits.timeout_s:g} s")
    stuck = RequestRefusedError(408, f"nothing of the body came for {limits.pause_s:g} s")
    with Deadline(limits.timeout_s, slow):
        while True:
            with Deadline(limits.pause_s, stuck):
                piece = await anext(pieces, None)
            if piece is None:
                break
            body.add(piece)
            if body.size_bytes > limits.max_bytes:
                raise _body_too_large(limits.max_bytes)
            share.grow_to(body.size_bytes)
    if not body.size_bytes:
        raise bad_request("the request has no body", cure="send an inference request in JSON")
    return body


def _body_too_large(limit_bytes: int) -> RequestRefusedError:
    return too_large(
        f"a request may have {limit_bytes} bytes", cure="send a smaller picture, or one in a packed format"
    )
