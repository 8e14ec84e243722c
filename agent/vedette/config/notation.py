"""Notations of the configuration: sizes in bytes, picture sizes, `${NAME}`, credentials in URLs. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?I?B)", re.IGNORECASE)
_PICTURE = re.compile(r"([1-9][0-9]{0,4})[xX]([1-9][0-9]{0,4})")
_VARIABLE = re.compile(r"\$(?:\$|\{([^}]*)\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# RFC 3986 lets no raw slash into a password, people do: all up to an @ before the query is user information.
_USER_INFO = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<info>[^\s@?]*(?:@[^\s@/?]*)*)@")
# Cameras with CGI interfaces take the password as a parameter.
_SECRET_PARAMETER = re.compile(
    r"([?&;][^=&;\s]*(?:pass|pwd|secret|token|key|auth|user|login)[^=&;\s]*=)[^&;#\s]+", re.IGNORECASE
)


class ByteSize(int):
    """A size in bytes; written as `256MB` (10^6) or `1.5GiB` (2^30)."""

    __slots__ = ()

    @classmethod
    def from_document(cls, value: object) -> ByteSize:
        """Parse a size.

        Raises:
            ValueError: No size, or no unit: a bare number leaves open what was meant.
        """
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError("expected a size with its unit, such as 256MB or 1.5GiB")
        return cls(round(float(match[1]) * _UNITS_BYTES[match[2].upper()]))


class PictureSize(msgspec.Struct, frozen=True):
    """Width and height in pixels; written as `640x480`."""

    width: int
    height: int

    @classmethod
    def from_document(cls, value: object) -> PictureSize:
        """Parse `WIDTHxHEIGHT`.

        Raises:
            ValueError: Anything else.
        """
        match = _PICTURE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError("expected WIDTHxHEIGHT in pixels, such as 640x480")
        return cls(int(match[1]), int(match[2]))


def expand_variables(text: str, environ: Mapping[str, str]) -> str:
    """Fill in `${NAME}`; `$$` is a dollar sign. What was filled in is not expanded again.

    Raises:
        ValueError: A variable is not set, or the name between the braces is none.
    """

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1]
        if not _NAME.fullmatch(name):
            raise ValueError(f"`{match[0]}` is not ${{NAME}}; write $$ for a dollar sign")
        if name not in environ:
            raise ValueError(f"the environment variable {name} is not set")
        return environ[name]

    return _VARIABLE.sub(fill, text)


def without_credentials(url: str) -> str:
    """The URL for logs and screens: user, password and parameters that look like them become `***`."""
    return _SECRET_PARAMETER.sub(r"\g<1>***", _USER_INFO.sub(r"\g<scheme>***@", url))


def has_written_password(url: str) -> bool:
    """Whether a password stands in the text itself; one that comes from `${NAME}` does not count."""
    literal = re.sub(r"\$\{[^}]*\}", "", url)
    match = _USER_INFO.match(literal)
    return match is not None and match["info"].partition(":")[2] != ""
