"""Notations of the configuration: names, sizes in bytes, picture sizes, `${NAME}`. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from vedette.config.document import Notation

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
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


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


def parse_name(value: object) -> str:
    """Check a name: safe in file names, labels and as one level of an MQTT topic.

    Raises:
        ValueError: No such name.
    """
    if not isinstance(value, str):
        raise ValueError("expected text (put quotes around a name that looks like a number)")  # noqa: TRY004 - caught as a problem
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"`{value}` is no usable name: use 1 to 63 letters, digits, `_`, `-` and `.`, "
            "the first a letter or a digit"
        )
    return value


def parse_byte_size(value: object) -> int:
    """Bytes of `256MB` (10^6) or `1.5GiB` (2^30).

    Raises:
        ValueError: No size, or no unit: a bare number leaves open what was meant.
    """
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a size with its unit, such as 256MB or 1.5GiB")
    return round(float(match[1]) * _UNITS_BYTES[match[2].upper()])


Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Name = Annotated[str, Notation(parse_name)]
SizeBytes = Annotated[int, Notation(parse_byte_size)]
SizePixels = Annotated[PictureSize, Notation(PictureSize.from_document)]


def expand_variables(text: str, environ: Mapping[str, str]) -> str:
    """Fill in `${NAME}`; `$$` is a dollar sign. What was filled in is not expanded again.

    Raises:
        ValueError: A variable is not set, or the name between the braces is none.
    """

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1]
        if not _VARIABLE_NAME.fullmatch(name):
            raise ValueError(f"`{match[0]}` is not ${{NAME}}; write $$ for a dollar sign")
        if name not in environ:
            raise ValueError(f"the environment variable {name} is not set")
        return environ[name]

    return _VARIABLE.sub(fill, text)
