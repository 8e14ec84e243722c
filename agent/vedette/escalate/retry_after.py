"""When a server wishes to be asked again: both forms of Retry-After, and what people make of them. Pure.

RFC 9110, section 10.2.3, knows seconds and a date; `retry-after-ms` is what OpenAI's servers send beside it.
Casebook 49: what cannot be read is no wish, and no wish binds for longer than the cap.
"""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CAP_S = 600.0
_MAX_LENGTH = 64


def retry_after_s(headers: Mapping[str, str], utc_s: float, *, cap_s: float = CAP_S) -> float | None:
    """Seconds from now, 0 to `cap_s`.

    Args:
        headers: By lower-case name.
        utc_s: Now, by the wall clock, against which a date is read.
        cap_s: The most that is believed.

    Returns:
        None where nothing is wished, or nothing that can be read: then it is for us to choose.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return min(cap_s, milliseconds / 1000)
    text = headers.get("retry-after", "").strip()
    seconds = _number(text)
    if seconds is None:
        seconds = _until(text, utc_s)
    return None if seconds is None else min(cap_s, seconds)


def _number(text: str) -> float | None:
    """A plain number that is not negative; `inf`, `nan` and `1e9` are words."""
    text = text.strip()
    whole, _, part = text.partition(".")
    if len(text) > _MAX_LENGTH or not whole.isascii() or not whole.isdigit():
        return None
    if part and not (part.isascii() and part.isdigit()):
        return None
    return float(text)


def _until(text: str, utc_s: float) -> float | None:
    if not text or len(text) > _MAX_LENGTH:
        return None
    try:
        wanted_s = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    # A date that is past means: now. A clock that is wrong by years must not mean years.
    return max(0.0, wanted_s - utc_s) if math.isfinite(wanted_s) else None
