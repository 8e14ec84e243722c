"""`port.Connection` over paho: the caller's side, and the watch over the network thread.

There is no thread but the network's. Whoever waits for events looks after it meanwhile: one that died, or is
deaf because something blocks it, is replaced, with a new client and a new socket (casebook 32).
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from vedette.clock import SystemClock
from vedette.errors import InternalError
from vedette.mqtt.backoff import Backoff
from vedette.mqtt.conversation import Standing
from vedette.mqtt.exchange import Exchange
from vedette.mqtt.network_thread import NetworkThread, Supervision
from vedette.mqtt.port import Health, Lost
from vedette.mqtt.protocol_choice import ProtocolChoice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.clock import Clock
    from vedette.mqtt.port import BrokerOptions, Event, Outgoing, Subscription, WillMaker

# Threads that were given up and have not ended, such as in a look-up of a name; more are not made.
MAX_ABANDONED = 3


class PahoConnection:
    """A supervised connection to one broker; `port.Connection` says what its methods do."""

    def __init__(
        self,
        options: BrokerOptions,
        subscriptions: Sequence[Subscription] = (),
        will: WillMaker | None = None,
        *,
        supervision: Supervision = Supervision(),  # noqa: B008 - frozen
        clock: Clock | None = None,
        rng: random.Random | None = None,
        name: str = "mqtt",
    ) -> None:
        if not options.client_id:
            # A session can be resumed under a name only, so we choose it rather than the broker.
            options = msgspec.structs.replace(options, client_id=f"vedette-{secrets.token_hex(6)}")
        self._options = options
        self._subscriptions = tuple(subscriptions)
        self._will = will
        self._supervision = supervision
        self._clock = clock or SystemClock()
        backoff = Backoff(
            min_s=options.retry_min_s,
            max_s=options.retry_max_s,
            clock=self._clock,
            rng=rng or random.SystemRandom(),
            proven_s=supervision.proven_s,
        )
        self._standing = Standing(backoff, ProtocolChoice(self._clock))
        self._exchange = Exchange(options.queue_bytes)
        self._name = name
        self._watch = threading.Lock()
        self._network: NetworkThread | None = None
        self._abandoned: list[NetworkThread] = []
        self._restarts = 0

    def start(self) -> None:
        """Begin to connect, and to reconnect."""
        with self._watch:
            if self._network is not None:
                raise InternalError("an MQTT connection was started twice")
            self._network = self._new_network()
            self._network.start()

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Disconnect and end the thread; False when it did not end in time."""
        with self._watch:
            network = self._network
            self._network = None
        if network is None:
            return True
        ended = network.stop(timeout_s)
        self._exchange.take_over(lambda: None)
        self._exchange.wake()
        return ended

    def publish(self, message: Outgoing) -> int | None:
        """Hand a message to the network.

        Raises:
            BadInputError: No packet can carry it, or the broker takes none as large.
        """
        return self._exchange.publish(message)

    def next_event(self, timeout_s: float) -> Event | None:
        """What happened next; meanwhile the network thread is looked after."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._look_after()
            left_s = deadline_s - time.monotonic()
            event, woken = self._exchange.next_event(max(0.0, min(left_s, self._supervision.look_every_s)))
            if event is not None or woken or left_s <= self._supervision.look_every_s:
                return event

    def wake(self) -> None:
        """Let a waiting `next_event` return None now."""
        self._exchange.wake()

    def health(self) -> Health:
        """How it stands."""
        network = self._network
        exchange = self._exchange
        return Health(
            connected=exchange.connected,
            thread_age_s=0.0 if network is None else network.turn_age_s(),
            broker_age_s=None if network is None else network.heard_age_s(),
            connects=exchange.connects,
            losses=exchange.losses,
            last_loss=exchange.last_loss,
            dropped_arrivals=exchange.dropped_arrivals,
            too_large_arrivals=exchange.too_large_arrivals,
            thread_restarts=self._restarts,
            handler_faults=exchange.handler_faults,
        )

    def _look_after(self) -> None:
        with self._watch:
            network = self._network
            if network is None or (network.alive and not network.deaf()):
                return
            self._abandoned = [given_up for given_up in self._abandoned if given_up.alive]
            if len(self._abandoned) >= MAX_ABANDONED:
                return
            why = (
                f"the network thread did not turn for {network.turn_age_s():.1f} s"
                if network.alive
                else "the network thread died"
            )
            self._abandoned.append(network)
            self._restarts += 1
            self._network = self._new_network()
            network.abandon()
            retry_s = self._standing.backoff.ended(0.0)
            self._exchange.lost(self._network.generation, Lost("silent", f"{why} and was replaced", retry_s))
            self._network.start()

    def _new_network(self) -> NetworkThread:
        return NetworkThread(
            self._options,
            self._subscriptions,
            self._will,
            exchange=self._exchange,
            standing=self._standing,
            supervision=self._supervision,
            clock=self._clock,
            name=self._name,
        )
