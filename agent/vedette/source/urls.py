"""Stream addresses without their secrets. Pure."""

from __future__ import annotations

import re

# Everything between the scheme and the last @ before the path is user and password, whatever it holds.
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/?#]*@")
# Passwords with an unescaped slash: an @ later in what is no path of a host.
_LATE_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^@ \t\r\n]*:[^@ \t\r\n]*@")
_SECRET_QUERY = re.compile(
    r"(?P<name>[?&;](?:[\w.-]*(?:pass|pwd|secret|token|key|auth|sig|user|login|credential)[\w.-]*|usr|p|u)=)[^&#;\s]*",
    re.IGNORECASE,
)


def redact_url(text: str) -> str:
    """An address, or a message that holds some, with user names, passwords and tokens replaced by `***`."""
    text = _LATE_USERINFO.sub(r"\g<scheme>***@", text)
    text = _USERINFO.sub(r"\g<scheme>***@", text)
    return _SECRET_QUERY.sub(r"\g<name>***", text)
