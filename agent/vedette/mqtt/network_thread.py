"""The thread that owns the network: connects, converses, waits, again.

Nothing of a caller's runs on it but the will. It says once a turn that it lives; whoever watches it may
replace it at any moment, so after every wait it asks whether it is still the one (`Exchange.is_current`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import BadInputError
from vedette.mqtt.conversation import Conversation, Place
from vedette.mqtt.loss import LinkLostError
from vedette.mqtt.packet_size import publish_bytes
from vedette.mqtt.port import Lost
from vedette.mqtt.protocol_choice import MQTT_5
from vedette.mqtt.waker import Waker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.clock import Clock
    from vedette.mqtt.conversation import Standing
    from vedette.mqtt.exchange import Exchange
    from vedette.mqtt.port import BrokerOptions, Outgoing, Subscription, WillMaker


class Supervision(msgspec.Struct, frozen=True):
    """How a network thread is watched; with these values a dead or deaf one is replaced within 10 s."""

    turn_s: float = 1.0
    deaf_after_s: float = 8.0
    look_every_s: float = 1.0
    proven_s: float = 60.0


class NetworkThread:
    """One thread, and the connections that it makes one after the other."""

    def __init__(
        self,
        options: BrokerOptions,
        subscriptions: Sequence[Subscription],
        will: WillMaker | None,
        *,
        exchange: Exchange,
        standing: Standing,
        supervision: Supervision,
        clock: Clock,
        name: str,
    ) -> None:
        self._options = options
        self._subscriptions = subscriptions
        self._will = will
        self._exchange = exchange
        self._standing = standing
        self._supervision = supervision
        self._clock = clock
        self._waker = Waker()
        self._stop = threading.Event()
        self._conversation: Conversation | None = None
        self._heartbeat = (clock.monotonic_ns(), supervision.deaf_after_s)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.generation = exchange.take_over(self._waker.wake)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._beat(0.0)
        self._thread.start()

    def turn_age_s(self) -> float:
        """Seconds since it last said that it lives."""
        return max(0.0, (self._clock.monotonic_ns() - self._heartbeat[0]) / 1e9)

    def deaf(self) -> bool:
        """Whether it has been busy with one thing for longer than that may take."""
        since_ns, allowed_s = self._heartbeat
        return self._clock.monotonic_ns() - since_ns > allowed_s * 1e9

    def heard_age_s(self) -> float | None:
        """Seconds since the broker's last byte in this connection; None without one."""
        conversation = self._conversation
        heard_ns = 0 if conversation is None else conversation.heard_ns()
        return max(0.0, (self._clock.monotonic_ns() - heard_ns) / 1e9) if heard_ns else None

    def stop(self, timeout_s: float) -> bool:
        """Ask it to say goodbye and end; False when it did not in time."""
        self._stop.set()
        self._waker.wake()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abandon(self) -> None:
        """Give it up: it ends as soon as it wakes, and its stream is ended under it."""
        self._stop.set()
        self._waker.wake()
        conversation = self._conversation
        if conversation is not None:
            conversation.cut()

    def _run(self) -> None:
        try:
            while not self._ending():
                self._pause()
                if not self._ending():
                    self._connect()
        finally:
            self._waker.close()

    def _ending(self) -> bool:
        return self._stop.is_set() or not self._exchange.is_current(self.generation)

    def _beat(self, allowed_s: float) -> None:
        self._heartbeat = (self._clock.monotonic_ns(), allowed_s + self._supervision.deaf_after_s)

    def _pause(self) -> None:
        while not self._ending():
            self._beat(0.0)
            left_s = self._standing.backoff.remaining_s()
            if left_s <= 0:
                return
            self._waker.wait(min(left_s, self._supervision.turn_s))

    def _connect(self) -> None:
        """One connection, and what became of it."""
        try:
            will = self._make_will()
            if self._ending():
                return
            self._conversation = Conversation(
                self._options, self._subscriptions, will, self._standing, self._place()
            )
            self._conversation.run()
        except LinkLostError as error:
            self._lost(error)
        except Exception as error:  # noqa: BLE001 - a decoder may raise anything; the next connection is clean
            self._exchange.handler_faults += 1
            self._lost(LinkLostError("closed", f"{type(error).__name__}: {error}"))
        finally:
            self._conversation = None

    def _lost(self, error: LinkLostError) -> None:
        if self._ending():
            return
        up_s = 0.0 if self._conversation is None else self._conversation.up_s()
        retry_s = self._standing.backoff.ended(up_s)
        self._exchange.lost(self.generation, Lost(error.kind, error.reason(), retry_s))

    def _make_will(self) -> Outgoing | None:
        """The caller's will; where it cannot be made, the connection is worth more than its will."""
        if self._will is None:
            return None
        self._beat(0.0)
        try:
            will = self._will()
            if will is not None:
                publish_bytes(will, MQTT_5)
        except BadInputError:
            self._exchange.handler_faults += 1
            return None
        except Exception:  # noqa: BLE001 - it is the caller's code
            self._exchange.handler_faults += 1
            return None
        return will

    def _place(self) -> Place:
        return Place(
            exchange=self._exchange,
            generation=self.generation,
            clock=self._clock,
            waker=self._waker,
            turn_s=self._supervision.turn_s,
            beat=self._beat,
            ending=self._ending,
        )
