"""Gives what comes from a broker to the fleet's figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import UnavailableError
from vedette.mqtt.port import Arrived, Connected, Lost, Refused, Subscription
from vedette.wire.topics import ROOT, checked_name
from vedette_fleet.fleet_figures import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.mqtt.port import Connection
    from vedette_fleet.fleet_figures import FleetFigures

_TURN_S = 0.25


def fleet_subscriptions(site: str | None) -> list[Subscription]:
    """What tells of devices: one site's, or all.

    Raises:
        BadInputError: No name of a site.
    """
    level = "+" if site is None else checked_name(site, "site")
    return [Subscription(f"{ROOT}/{level}/+/{rest}") for rest in ("status", "reported", "tele/report")]


class FleetFeed:
    """Reads a connection; `remark` says what is wrong with it, for people."""

    def __init__(
        self, connection: Connection, figures: FleetFigures, *, clock: Clock, utc_s: Callable[[], float]
    ) -> None:
        self._connection = connection
        self._figures = figures
        self._clock = clock
        self._utc_s = utc_s
        self._was_connected = self._heard = False
        self._lost = ""

    @property
    def remark(self) -> str:
        """Empty when all is well."""
        dropped = self._connection.health().dropped_arrivals
        parts = [self._lost, f"{dropped:,} messages came faster than they were read" if dropped else ""]
        if self._was_connected and not self._lost and not self._heard:
            # Brokers grant subscriptions that their access lists make void.
            parts.append("nothing from any device yet; if it stays so, may this user read vedette/1/#?")
        return "; ".join(filter(None, parts))

    def now_s(self) -> float:
        """The clock that the figures' ages are on."""
        return self._clock.monotonic_ns() / 1e9

    def read_for(self, duration_s: float) -> None:
        """Take in what comes.

        Raises:
            UnavailableError: The broker could not be reached even once, or lets nobody listen.
        """
        end_s = self.now_s() + duration_s
        while (left_s := end_s - self.now_s()) > 0:
            event = self._connection.next_event(min(_TURN_S, left_s))
            if isinstance(event, Arrived):
                self._heard = True
                self._figures.take(
                    Message(
                        event.topic,
                        event.payload,
                        event.content_type,
                        event.retained,
                        self.now_s(),
                        self._utc_s(),
                    )
                )
            elif isinstance(event, Connected):
                self._was_connected, self._lost = True, ""
            elif isinstance(event, Lost):
                self._lose(event)
            elif isinstance(event, Refused):
                raise UnavailableError(
                    f"the broker does not let us listen to {event.filter}: {event.reason}",
                    cure="let this user read vedette/1/# in the broker's access list",
                )

    def _lose(self, event: Lost) -> None:
        self._lost = f"not connected ({event.reason}); next try in {event.retry_s:.0f} s"
        if not self._was_connected:
            raise UnavailableError(
                f"no connection to the broker: {event.reason}",
                cure="check --broker, the broker itself, and its certificate or password",
            )
