"""When a large model wishes to be asked again. Pure.

`retry-after-ms` is what OpenAI's servers send beside RFC 9110's Retry-After. Casebook 49: what cannot be read
is no wish, and no wish binds for longer than the cap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.http.headers import parse_retry_after

if TYPE_CHECKING:
    from collections.abc import Mapping

CAP_S = 600.0
_MAX_DIGITS = 12


def retry_after_s(headers: Mapping[str, str], *, cap_s: float = CAP_S) -> float | None:
    """Seconds from now, 0 to `cap_s`.

    Args:
        headers: By lower-case name.
        cap_s: The most that is believed.

    Returns:
        None where nothing is wished, or nothing that can be read: then it is for us to choose.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) <= _MAX_DIGITS:
        return min(cap_s, int(milliseconds) / 1000)
    seconds = parse_retry_after(headers.get("retry-after"), date=headers.get("date"))
    return None if seconds is None else min(cap_s, seconds)
