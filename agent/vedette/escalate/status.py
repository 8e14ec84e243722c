"""What a large model's HTTP status means for us. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_DETAIL = 300
# Spent money comes back by no waiting; OpenAI says so with the status of being busy.
_QUOTA_WORDS = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_AGAIN = frozenset({CloudFault.CONNECT, CloudFault.BROKEN, CloudFault.SERVER, CloudFault.BUSY})


class Meaning(NamedTuple):
    """`final`: asking again, about whatever picture, is useless until somebody changes something."""

    fault: CloudFault
    final: bool
    detail: str


def meaning_of(status: int, headers: Mapping[str, str], body: bytes) -> Meaning | None:
    """None for an answer; else what is wrong. `headers` by lower-case name."""
    if 200 <= status < 300:
        return None
    word, text = _error_of(headers, body)
    detail = f"HTTP {status}" + (f": {text}" if text else "")
    if status == 429:
        quota = word in _QUOTA_WORDS
        return Meaning(CloudFault.QUOTA if quota else CloudFault.BUSY, quota, detail)
    if status in {401, 402, 403}:
        return Meaning(CloudFault.QUOTA if status == 402 else CloudFault.FORBIDDEN, final=True, detail=detail)
    if status == 503:
        return Meaning(CloudFault.BUSY, final=False, detail=detail)
    if status >= 500 or status in {408, 409, 425}:
        return Meaning(CloudFault.SERVER, final=False, detail=detail)
    # A redirect would take the picture to an address that nobody wrote into the configuration.
    return Meaning(CloudFault.REJECTED, final=status in {404, 405} or status < 400, detail=detail)


def may_ask_again(fault: CloudFault, *, final: bool) -> bool:
    """Whether the same question may have an answer a moment later."""
    return not final and fault in _AGAIN


def _error_of(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """Code and text of an error in OpenAI's form, or in the Open Inference Protocol's; printable."""
    if "json" not in headers.get("content-type", ""):
        return "", ""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return "", ""
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, dict):
        words = [error.get("code"), error.get("type")]
        word = next((one for one in words if isinstance(one, str) and one in _QUOTA_WORDS), "")
        error = error.get("message")
        return word, _printable(error)
    return "", _printable(error)


def _printable(text: object) -> str:
    if not isinstance(text, str):
        return ""
    return "".join(c if c.isprintable() else " " for c in text[:MAX_DETAIL])
