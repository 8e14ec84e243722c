"""Which device a bearer token belongs to. Pure.

A file has a line `TOKEN DEVICE` each; `#` begins a comment. A device may have several tokens, so that one can
be replaced without a pause.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from vedette.errors import ConfigError

MIN_TOKEN_CHARACTERS = 20
MAX_TOKEN_CHARACTERS = 512
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # RFC 6750, section 2.1
_DEVICE = re.compile(r"[A-Za-z0-9._:@-]{1,64}")


class Tokens:
    """Digests only: a dump of this process's memory has no token of a device that did not ask."""

    def __init__(self, devices: dict[bytes, str]) -> None:
        self._devices = devices

    def __len__(self) -> int:
        return len(self._devices)

    @property
    def devices(self) -> frozenset[str]:
        """Their names."""
        return frozenset(self._devices.values())

    def device_of(self, token: str) -> str | None:
        """The device, None for a token that nobody has; takes as long whichever it is."""
        asked = _digest(token)
        found: str | None = None
        for digest, device in self._devices.items():
            if hmac.compare_digest(digest, asked):
                found = device
        return found


def parse_tokens(text: str, origin: str) -> Tokens:
    """Read a token file.

    Raises:
        ConfigError: Every line that is wrong; tokens themselves are never repeated.
    """
    devices: dict[bytes, str] = {}
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        fault = _fault(fields)
        if fault is None and _digest(fields[0]) in devices:
            fault = "this token stands in an earlier line"
        if fault is None:
            devices[_digest(fields[0])] = fields[1]
        else:
            problems.append(f"{origin}:{number}: {fault}")
    if not devices and not problems:
        problems.append(f"{origin}: it has no line")
    if problems:
        raise ConfigError(
            "the token file cannot be used",
            problems=tuple(problems),
            cure="a line each: TOKEN DEVICE; make a token with: openssl rand -hex 32",
        )
    return Tokens(devices)


def _fault(fields: list[str]) -> str | None:
    if len(fields) != 2:
        return f"{len(fields)} words; a line has a token and a device's name"
    token, device = fields
    if not MIN_TOKEN_CHARACTERS <= len(token) <= MAX_TOKEN_CHARACTERS:
        return (
            f"a token has {MIN_TOKEN_CHARACTERS} to {MAX_TOKEN_CHARACTERS} characters, this one {len(token)}"
        )
    if not _TOKEN.fullmatch(token):
        return "a token has letters, digits and -._~+/= only"
    if not _DEVICE.fullmatch(device):
        return f"{device[:64]!r} is no name: letters, digits and ._:@- only, 64 at most"
    return None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
