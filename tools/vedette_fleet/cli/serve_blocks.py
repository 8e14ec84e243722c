"""`vedette-fleet serve-blocks`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from vedette.clock import SystemClock
from vedette.mqtt.port import Subscription
from vedette.wire.topics import ANNOUNCE_ALL, BLOCK_REQUESTS
from vedette_fleet.announcement_files import read_announcement
from vedette_fleet.announcer import Announcer
from vedette_fleet.block_files import BlockFiles
from vedette_fleet.block_server import BlockServer
from vedette_fleet.cli.broker import serve_until_stopped, stop_on_signals, with_broker
from vedette_fleet.cli.output import say

if TYPE_CHECKING:
    from vedette.mqtt.port import BrokerOptions
    from vedette_fleet.cli.broker import Part

# What may wait for the network: more would only make devices wait that asked later.
_QUEUE_BYTES = 2 << 20
# A server that is frozen gets its share of the requests until the broker notices.
_KEEPALIVE_S = 15
_STOP_S = 0.8
_BYTES_PER_MB = 1_000_000


@click.command("serve-blocks")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@with_broker
@click.option(
    "--rate",
    "rate_mb_s",
    type=click.FloatRange(0.001, 100_000),
    metavar="MB/S",
    help="Send no faster than this, to all devices together.",
)
@click.option("--no-announce", is_flag=True, help="Do not announce the repository.")
@click.option("--channel", default=ANNOUNCE_ALL, show_default=True, help="Where devices listen for it.")
@click.option(
    "--spread-s",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    help="Devices look at a moment of their own within so many seconds.",
)
@click.option("-q", "--quiet", is_flag=True, help="No line per transfer.")
def serve_blocks(
    folder: Path,
    *,
    broker: BrokerOptions,
    rate_mb_s: float | None,
    no_announce: bool,
    channel: str,
    spread_s: float,
    quiet: bool,
) -> None:
    """Serve the repository in DIR over MQTT, to devices that have nothing else.

    Any number may run side by side, on copies of one repository: the broker gives each request to one of
    them. Nothing but metadata, targets and blobs is served, and nothing is written.
    """
    from vedette.mqtt.paho_connection import PahoConnection  # noqa: PLC0415 - of the extra [mqtt]

    read_announcement(folder, spread_s=spread_s)  # refuses what is no repository
    options = msgspec.structs.replace(broker, queue_bytes=_QUEUE_BYTES, keepalive_s=_KEEPALIVE_S)
    clock, files = SystemClock(), BlockFiles(folder)
    connection = PahoConnection(options, [Subscription(BLOCK_REQUESTS, qos=0)], name="blocks")
    server = BlockServer(
        connection,
        files,
        clock=clock,
        log=(lambda _line: None) if quiet else say,
        bytes_per_s=None if rate_mb_s is None else rate_mb_s * _BYTES_PER_MB,
    )
    parts: list[Part] = [server]
    if not no_announce:
        parts.append(Announcer(connection, folder, clock=clock, log=say, channel=channel, spread_s=spread_s))
    stop = stop_on_signals()
    connection.start()
    try:
        serve_until_stopped(connection, parts, stop)
    finally:
        connection.stop(_STOP_S)
        server.close()
        files.close()
        figures = server.figures
        say(
            f"served {figures.requests:,} requests: {figures.blocks:,} blocks, {figures.sent_bytes:,} bytes; "
            f"not there {figures.not_found:,}, busy {figures.busy:,}, bad {figures.bad:,}"
        )
