"""Passwords in camera URLs: keep them off screens and logs, and notice those that stand in a file. Pure."""

from __future__ import annotations

import re

# RFC 3986 lets no raw slash into a password, people do: all up to an @ before the query is user information.
_USER_INFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<info>[^\s@?]*(?:@[^\s@/?]*)*)@")
# Cameras with CGI interfaces take the password as a parameter.
_SECRET_PARAMETER = re.compile(
    r"([?&;][^=&;\s]*(?:pass|pwd|secret|token|key|auth|user|login)[^=&;\s]*=)[^&;#\s]+", re.IGNORECASE
)


def without_credentials(url: str) -> str:
    """The URL for logs and screens: user, password and parameters that look like them become `***`."""
    return _SECRET_PARAMETER.sub(r"\g<1>***", _USER_INFO.sub(r"\g<scheme>***@", url))


def has_written_password(url: str) -> bool:
    """Whether a password stands in the text itself; one that comes from `${NAME}` does not count."""
    literal = re.sub(r"\$\{[^}]*\}", "", url)
    match = _USER_INFO.match(literal)
    return match is not None and match["info"].partition(":")[2] != ""
