"""Stream addresses without their secrets. Pure."""

from __future__ import annotations

import re

# Up to the last @: passwords hold @, / and # unescaped. A host is rather hidden too than a password shown.
_USERINFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^ \t\r\n]*@")
_SECRET_QUERY = re.compile(
    r"(?P<name>[?&;](?:[\w.-]*(?:pass|pwd|secret|token|key|auth|sig|user|login|credential)[\w.-]*|usr|p|u)=)[^&#;\s]*",
    re.IGNORECASE,
)


def redact_url(text: str) -> str:
    """An address, or a message that holds some, with user names, passwords and tokens replaced by `***`."""
    text = _USERINFO.sub(r"\g<scheme>***@", text)
    return _SECRET_QUERY.sub(r"\g<name>***", text)
