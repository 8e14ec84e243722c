"""Notice passwords that stand in a configuration file. Pure."""

from __future__ import annotations

import re

_FILLED_IN = re.compile(r"\$\{[^}]*\}")
# RFC 3986 lets no raw slash into a password, people do: all up to an @ before the query is user information.
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s@?:]*:(?P<password>[^\s@?]*(?:@[^\s@/?]*)*)@")


def has_written_password(url: str) -> bool:
    """Whether a password stands in the text itself; one that comes from `${NAME}` does not count."""
    match = _USER_INFO.match(_FILLED_IN.sub("", url))
    return match is not None and match["password"] != ""
