"""What the headers of a response say: ranges, tags, when to come again. Pure."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

MAX_RETRY_AFTER_S = 3600.0
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)
_SECONDS = re.compile(r"\d{1,19}(\.\d*)?", re.ASCII)
_STRONG_TAG = re.compile(r'"[\x21\x23-\x7e]{1,256}"')


class ContentRange(NamedTuple):
    """Bytes [start, end) of an object of `total` bytes, None where the server does not know."""

    start: int
    end: int
    total: int | None


def parse_content_range(value: str | None) -> ContentRange | None:
    """The range of a 206; None when there is none that makes sense (RFC 9110, 14.4)."""
    match = _CONTENT_RANGE.fullmatch((value or "").strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if last < first or (total is not None and last >= total):
        return None
    return ContentRange(first, last + 1, total)


def parse_retry_after(value: str | None, *, date: str | None) -> float | None:
    """Seconds to wait, at most an hour; None when nothing sensible was said.

    A point in time is held against the server's own `date`: the clock of this box may be wrong (casebook 49).
    """
    if value is None:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        return min(float(text), MAX_RETRY_AFTER_S)
    then, now = _parse_date(text), _parse_date(date or "")
    if then is None or now is None:
        return None
    return min(max((then - now).total_seconds(), 0.0), MAX_RETRY_AFTER_S)


def strong_tag(value: str | None) -> str | None:
    """An ETag that promises equal bytes; None for a weak or missing one (RFC 9110, 8.8.3)."""
    text = (value or "").strip()
    return text if _STRONG_TAG.fullmatch(text) else None


def parse_length(value: str | None) -> int | None:
    """Content-Length; None when it is missing or no number."""
    text = (value or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _parse_date(text: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    # A date without a zone is of no use; HTTP's are always GMT.
    return parsed if parsed.tzinfo is not None else None
