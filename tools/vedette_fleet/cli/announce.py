"""`vedette-fleet announce`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.clock import SystemClock
from vedette.errors import UnavailableError
from vedette.wire.topics import ANNOUNCE_ALL
from vedette_fleet.announcement_files import read_announcement
from vedette_fleet.announcer import Announcer
from vedette_fleet.cli.broker import serve_until_stopped, stop_on_signals, with_broker
from vedette_fleet.cli.output import say

if TYPE_CHECKING:
    import threading

    from vedette.mqtt.port import BrokerOptions, Event

_STOP_S = 0.8


@click.command("announce")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@with_broker
@click.option("--channel", default=ANNOUNCE_ALL, show_default=True, help="Where devices listen.")
@click.option(
    "--spread-s",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    help="Devices look at a moment of their own within so many seconds.",
)
@click.option("--once", is_flag=True, help="Announce what is published now, and end.")
@click.option(
    "--timeout-s",
    type=click.FloatRange(0.1, 86_400),
    default=30.0,
    show_default=True,
    help="How long --once tries.",
)
def announce(
    folder: Path, *, broker: BrokerOptions, channel: str, spread_s: float, once: bool, timeout_s: float
) -> None:
    """Tell devices over MQTT that the repository in DIR changed, whenever it does.

    For repositories that are served over HTTP; serve-blocks announces by itself. An announcement is a hint,
    kept by the broker for devices that come later; without it they look every few hours.
    """
    from vedette.mqtt.paho_connection import PahoConnection  # noqa: PLC0415 - of the extra [mqtt]

    read_announcement(folder, spread_s=spread_s)  # refuses what is no repository
    connection = PahoConnection(broker, name="announce")
    announcer = Announcer(
        connection, folder, clock=SystemClock(), log=say, channel=channel, spread_s=spread_s
    )
    stop = stop_on_signals()
    once_said = _OnceSaid(announcer, stop, timeout_s)
    connection.start()
    try:
        serve_until_stopped(connection, [announcer, once_said] if once else [announcer], stop)
    finally:
        connection.stop(_STOP_S)


class _OnceSaid:
    """Ends the command when the announcement was taken, or could not be made in time."""

    def __init__(self, announcer: Announcer, stop: threading.Event, timeout_s: float) -> None:
        self._announcer = announcer
        self._stop = stop
        self._deadline_s = time.monotonic() + timeout_s

    def take(self, event: Event) -> None:
        """See Part."""

    def work(self) -> float:
        """See Part.

        Raises:
            UnavailableError: The broker refused it, or there was none in time.
        """
        cure = "check --broker, and that this user may write vedette/1/_announce/#"
        if self._announcer.refusal:
            raise UnavailableError(f"not announced: {self._announcer.refusal}", cure=cure)
        if self._announcer.said is not None:
            self._stop.set()
            return 0.0
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise UnavailableError("not announced: the broker did not take it in time", cure=cure)
        return left_s
