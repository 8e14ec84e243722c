"""What all commands that talk to a broker share: their options, and the loop of those that stay."""

from __future__ import annotations

import functools
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol

import click

from vedette.errors import UnavailableError, UsageError
from vedette.mqtt.port import BrokerOptions, Connected, Lost, Refused, TlsOptions
from vedette_fleet.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from vedette.mqtt.port import Connection, Event

PASSWORD_VARIABLE = "VEDETTE_MQTT_PASSWORD"  # noqa: S105 - its name, no password
_PLAIN_PORT, _TLS_PORT = 1883, 8883
_LONGEST_WAIT_S = 0.2  # and so the longest that a signal waits
_EVENTS_A_TURN = 64
_OPTIONS = (
    click.option(
        "--broker", required=True, metavar="HOST[:PORT]", help="Port 1883, or 8883 with TLS, by default."
    ),
    click.option("--tls", is_flag=True, help="Speak TLS, believing the system's authorities."),
    click.option("--tls-ca", metavar="FILE", help="Speak TLS, believing this authority."),
    click.option("--tls-cert", metavar="FILE", help="Our own certificate."),
    click.option("--tls-key", metavar="FILE", help="Its key."),
    click.option("--username", help=f"The password comes from ${PASSWORD_VARIABLE}."),
)


class Part(Protocol):
    """Something that lives on a connection."""

    def take(self, event: Event) -> None:
        """Something happened on it."""
        ...

    def work(self) -> float:
        """Do what is due; the seconds until more is."""
        ...


def with_broker(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a broker; it gets them as one `broker: BrokerOptions`."""

    @functools.wraps(command)
    def wrapped(
        *arguments: Any,  # noqa: ANN401 - the command's own
        broker: str,
        tls: bool,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        username: str | None,
        **options: Any,  # noqa: ANN401 - as above
    ) -> None:
        use_tls = tls or tls_ca is not None or tls_cert is not None
        chosen = broker_options(
            broker,
            tls=TlsOptions(ca=tls_ca, cert=tls_cert, key=tls_key) if use_tls else None,
            username=username or "",
            password=os.environ.get(PASSWORD_VARIABLE, ""),
        )
        command(*arguments, broker=chosen, **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def broker_options(broker: str, *, tls: TlsOptions | None, username: str, password: str) -> BrokerOptions:
    """Where and as whom to connect; nothing is kept for us while we are away.

    Raises:
        UsageError: No host and port.
    """
    host, port = _host_and_port(broker, _PLAIN_PORT if tls is None else _TLS_PORT)
    return BrokerOptions(
        host=host,
        port=port,
        username=username,
        password=password,
        tls=tls,
        session_expiry_s=0,
        retry_max_s=30.0,
        queue_bytes=32 << 20,
    )


def serve_until_stopped(connection: Connection, parts: Sequence[Part], stop: threading.Event) -> None:
    """Let parts work on a connection until `stop` is set; what is wrong with the connection is said.

    Raises:
        UnavailableError: The broker does not let us hear what we must.
    """
    while not stop.is_set():
        wait_s = min([_LONGEST_WAIT_S, *(part.work() for part in parts)])
        for _ in range(_EVENTS_A_TURN):
            event = connection.next_event(wait_s)
            if event is None:
                break
            _tell(event)
            for part in parts:
                part.take(event)
            wait_s = 0.0


def stop_on_signals() -> threading.Event:
    """What SIGINT and SIGTERM set from now on."""
    stop = threading.Event()

    def on_signal(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop


def _tell(event: Event) -> None:
    if isinstance(event, Connected):
        say(f"connected to the broker (MQTT {'5' if event.limits.protocol == 5 else '3.1.1'})")
    elif isinstance(event, Lost):
        say(f"no connection to the broker: {event.reason}; next try in {event.retry_s:.0f} s")
    elif isinstance(event, Refused):
        raise UnavailableError(
            f"the broker does not let us listen to {event.filter}: {event.reason}",
            cure="let this user do so in the broker's access list",
        )


def _host_and_port(broker: str, default_port: int) -> tuple[str, int]:
    """`host`, `host:port`, `::1`, `[::1]:port`."""
    host, colon, port = broker.rpartition(":")
    if broker.startswith("["):
        host, _, rest = broker[1:].partition("]")
        colon, port = rest[:1], rest[1:]
    elif not colon or ":" in host:
        host, colon, port = broker, "", ""
    number = int(port) if port.isdecimal() and len(port) <= 5 else 0
    if not host or (colon and not 1 <= number <= 65_535) or (port and not colon):
        raise UsageError(f"`{broker}` is no broker", cure="write HOST, HOST:PORT or [IPV6]:PORT")
    return host, number if colon else default_port
