"""The `mqtt`, `telemetry` and `http` sections of a configuration."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vedette.config.camera import home_problems
from vedette.config.document import Notation
from vedette.config.notation import Seconds, SizeBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vedette.config.yaml_tree import Problem

MIN_OUTBOX_BYTES = 256_000
UNIX = "unix:"
MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path, without its closing zero
_LISTEN = re.compile(r"(?:\[([0-9a-fA-F:]+)\]|([^\[\]:\s]+)):([0-9]{1,5})")


def parse_listen(value: object) -> str:
    """Accept `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080` or `unix:/run/vedette/http.sock`.

    Raises:
        ValueError: Anything else, or an address that others on the network reach.
    """
    if isinstance(value, str) and value.startswith(UNIX) and value[len(UNIX) :].startswith("/"):
        return _checked_socket(value)
    match = _LISTEN.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[3]) > 65535:
        raise ValueError('expected "127.0.0.1:8080" or "unix:/run/vedette/http.sock"')
    host = match[1] or match[2]
    if host != "localhost" and not _is_loopback(host):
        raise ValueError(
            f"{host} can be reached by others, and this door asks nobody who they are; listen on 127.0.0.1 "
            "or a Unix socket, and put a proxy that does in front of it"
        )
    return value if isinstance(value, str) else ""


def _checked_socket(value: str) -> str:
    size_bytes = len(os.fsencode(value[len(UNIX) :]))
    if size_bytes > MAX_SOCKET_PATH_BYTES:
        raise ValueError(
            f"the path has {size_bytes} bytes; a socket's may have {MAX_SOCKET_PATH_BYTES}; use a shorter one"
        )
    return value


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class TlsConfig(msgspec.Struct, frozen=True):
    """Files of the broker's and our certificates; without `ca` the system's authorities are believed."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """Half a pair, and paths that would not be found."""
        for key in ("ca", "cert", "key"):
            yield from home_problems(key, fields)
        for have, lack in (("cert", "key"), ("key", "cert")):
            if fields.get(have) is not None and fields.get(lack) is None:
                yield (have,), f"needs `{lack}` too"

    def rooted(self, root: Callable[[str], str]) -> TlsConfig:
        """The same with its paths made absolute."""
        ca, cert, key = (None if path is None else root(path) for path in (self.ca, self.cert, self.key))
        return msgspec.structs.replace(self, ca=ca, cert=cert, key=key)


class MqttResultsConfig(msgspec.Struct, frozen=True):
    """Which answers are published: `none`, on `change` of what was seen, or `all`, up to `max_per_s`."""

    publish: Literal["none", "change", "all"] = "none"
    max_per_s: Annotated[float, Meta(gt=0, le=1000)] = 1.0


class MqttConfig(msgspec.Struct, frozen=True):
    """The broker; without this section nothing is sent anywhere.

    `outbox` bounds what waits on the disk. `client_id` is the device's id by default.
    """

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    client_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    username: str | None = None
    password: str | None = None
    password_file: str | None = None
    tls: TlsConfig | None = None
    keepalive_s: Annotated[int, Meta(ge=5, le=3600)] = 30
    outbox: SizeBytes = 16_000_000
    results: MqttResultsConfig = MqttResultsConfig()
    home_assistant: bool = False

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """Secrets without an owner, an address that is a URL, and a bound that holds nothing."""
        host = fields.get("host")
        if host is not None and ("/" in host or ":" in host.strip("[]").partition("::")[0]):
            yield ("host",), "is the broker's name or address alone; the port has a key of its own"
        outbox = fields.get("outbox")
        if outbox is not None and outbox < MIN_OUTBOX_BYTES:
            yield ("outbox",), f"{outbox:,} bytes hold too few events; give at least 256KB"
        if fields.get("password") is not None and fields.get("password_file") is not None:
            yield ("password_file",), "is one too many beside `password`"
        for key in ("password", "password_file"):
            if fields.get(key) is not None and fields.get("username") is None:
                yield (key,), "needs `username`"
        yield from home_problems("password_file", fields)

    @property
    def effective_port(self) -> int:
        """The port, or the usual one for a connection of this kind."""
        if self.port is not None:
            return self.port
        return 1883 if self.tls is None else 8883

    def rooted(self, root: Callable[[str], str]) -> MqttConfig:
        """The same with its paths made absolute."""
        tls = None if self.tls is None else self.tls.rooted(root)
        file = None if self.password_file is None else root(self.password_file)
        return msgspec.structs.replace(self, tls=tls, password_file=file)


class TelemetryConfig(msgspec.Struct, frozen=True):
    """How often figures go to the fleet, in which form, and how large one report may be."""

    interval_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    format: Literal["msgpack", "json"] = "msgpack"
    max_report: SizeBytes = 4096

    @classmethod
    def problems_of(cls, fields: Mapping[str, Any]) -> Iterator[Problem]:
        """A report that nothing fits in."""
        size = fields.get("max_report")
        if size is not None and not 1024 <= size <= 262_144:
            yield ("max_report",), "give 1KiB to 256KiB"


class HttpConfig(msgspec.Struct, frozen=True):
    """The local HTTP door: inference, health, metrics, preview; loopback or a Unix socket only."""

    listen: Annotated[str, Notation(parse_listen)] = "127.0.0.1:9477"
    max_picture: SizeBytes = 6_220_800
    waiting: Annotated[int, Meta(ge=3, le=64)] = 8
    request_timeout_s: Seconds = 30.0
