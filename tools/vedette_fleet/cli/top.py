"""`vedette-fleet top`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec

from vedette.clock import SystemClock
from vedette.wire.telemetry import STAGES
from vedette_fleet.cli.broker import with_broker
from vedette_fleet.cli.output import answer
from vedette_fleet.fleet_figures import HORIZON_S, FleetFigures
from vedette_fleet.mqtt_feed import FleetFeed, fleet_subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.mqtt.port import BrokerOptions
    from vedette_fleet.fleet_figures import FleetView

_EVERY_DEVICE_S = 65.0  # devices report once a minute, unless they are told otherwise


@click.command("top")
@with_broker
@click.option("--site", help="Only devices of this site.")
@click.option("--stage", type=click.Choice(STAGES), default="total", show_default=True, help="Whose latency.")
@click.option(
    "--horizon",
    "horizon_s",
    type=click.FloatRange(1, 86_400),
    default=HORIZON_S,
    show_default=True,
    metavar="S",
    help="Percentiles and rates are of the last S seconds.",
)
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="S",
    help="How often the table is drawn anew.",
)
@click.option("--once", is_flag=True, help="Listen for a while, print, and end.")
@click.option(
    "--for",
    "listen_s",
    type=click.FloatRange(0.1, 86_400),
    metavar="S",
    help="How long; with --once 65 by default, so that every device reports in it.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON, one document a line, instead of a table.")
def top(
    *,
    broker: BrokerOptions,
    site: str | None,
    stage: str,
    horizon_s: float,
    interval_s: float,
    once: bool,
    listen_s: float | None,
    as_json: bool,
) -> None:
    """Show the fleet as its devices report over MQTT: state, model, update, latency, losses.

    The line of all devices, and of each model's version, comes from merged distributions, not from averaged
    percentiles. Devices report once a minute unless they are told otherwise; until then only what the broker
    remembers of them is shown. Ctrl-C ends it.
    """
    from vedette.mqtt.paho_connection import PahoConnection  # noqa: PLC0415 - of the extra [mqtt]

    figures = FleetFigures(stage=stage, horizon_s=horizon_s)
    connection = PahoConnection(broker, fleet_subscriptions(site), name="top")
    feed = FleetFeed(connection, figures, clock=SystemClock(), utc_s=time.time)
    connection.start()
    try:
        if once:
            feed.read_for(_EVERY_DEVICE_S if listen_s is None else listen_s)
            _print(figures.view(feed.now_s()), feed.remark, as_json=as_json)
        else:
            _watch(feed, figures, interval_s, listen_s, as_json=as_json)
    except KeyboardInterrupt:
        pass  # the usual end
    finally:
        connection.stop()


def _watch(
    feed: FleetFeed, figures: FleetFigures, interval_s: float, listen_s: float | None, *, as_json: bool
) -> None:
    """Draw again and again, until `listen_s` are over."""
    end_s = None if listen_s is None else feed.now_s() + listen_s
    draw: Callable[[], None]
    if as_json or not sys.stdout.isatty():
        draw = lambda: _print(figures.view(feed.now_s()), feed.remark, as_json=as_json)  # noqa: E731 - one of two
        _draw_until(feed, draw, interval_s, end_s)
        return
    from rich.live import Live  # noqa: PLC0415 - slow to import, needed on terminals only

    from vedette_fleet.top_view import render  # noqa: PLC0415 - as above

    with Live(auto_refresh=False, screen=end_s is None) as live:

        def redraw() -> None:
            view = figures.view(feed.now_s())
            live.update(
                render(view, width=live.console.width, height=live.console.height, remark=feed.remark),
                refresh=True,
            )

        redraw()
        _draw_until(feed, redraw, interval_s, end_s)


def _draw_until(feed: FleetFeed, draw: Callable[[], None], interval_s: float, end_s: float | None) -> None:
    while end_s is None or feed.now_s() < end_s:
        feed.read_for(interval_s if end_s is None else min(interval_s, end_s - feed.now_s()))
        draw()


def _print(view: FleetView, remark: str, *, as_json: bool) -> None:
    if as_json:
        answer(msgspec.json.encode(view).decode())
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import

    from vedette_fleet.top_view import render  # noqa: PLC0415 - as above

    console = Console(width=None if sys.stdout.isatty() else 160)
    with console.capture() as captured:
        console.print(render(view, width=console.width, height=1 << 20, remark=remark))
    answer(captured.get().rstrip())
