"""One connection from CONNECT to its end, driven turn by turn on the network thread."""

from __future__ import annotations

import itertools
import select
from typing import TYPE_CHECKING

from vedette.mqtt.exchange import arrival_bytes
from vedette.mqtt.loss import UNSUPPORTED_PROTOCOL, LinkLostError, refused_connect
from vedette.mqtt.paho_client import PahoClient
from vedette.mqtt.port import Acknowledged, Connected, Refused
from vedette.mqtt.protocol_choice import MQTT_5
from vedette.mqtt.sockets import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.clock import Clock
    from vedette.mqtt.backoff import Backoff
    from vedette.mqtt.exchange import Exchange
    from vedette.mqtt.port import Arrived, BrokerOptions, Limits, Outgoing, Subscription
    from vedette.mqtt.protocol_choice import ProtocolChoice
    from vedette.mqtt.waker import Waker

# As many messages go to paho in one turn; then the socket is read again.
_BURST = 64
_GOODBYE_S = 0.5


class Standing:
    """What outlives a connection and its thread: what this broker was found to be, and how it was tried."""

    def __init__(self, backoff: Backoff, choice: ProtocolChoice) -> None:
        self.backoff = backoff
        self.choice = choice
        self.connects = 0
        self.clean_start = True


class Place:
    """Where a conversation takes place: the thread's number, its waker, its heartbeat and its end."""

    def __init__(
        self,
        *,
        exchange: Exchange,
        generation: int,
        clock: Clock,
        waker: Waker,
        turn_s: float,
        beat: Callable[[float], None],
        ending: Callable[[], bool],
    ) -> None:
        self.exchange = exchange
        self.generation = generation
        self.clock = clock
        self.waker = waker
        self.turn_s = turn_s
        self.beat = beat
        self.ending = ending


class Conversation:
    """A connection; implements `listener.Listener`."""

    def __init__(
        self,
        options: BrokerOptions,
        subscriptions: Sequence[Subscription],
        will: Outgoing | None,
        standing: Standing,
        place: Place,
    ) -> None:
        self._options = options
        self._standing = standing
        self._place = place
        self._protocol = standing.choice.next()
        self._client = PahoClient(
            options,
            protocol=self._protocol,
            clean_start=standing.clean_start,
            will=will,
            open_socket=lambda: open_stream(options, place.waker, place.ending),
            listener=self,
        )
        self._subscriptions = tuple(subscriptions)
        self._asked: tuple[Subscription, ...] | None = None
        self._refused: list[Refused] = []
        self._limits: Limits | None = None
        self._session_present = False
        self._early: list[Arrived] = []
        self._early_bytes = 0
        self._tokens: dict[int, int] = {}
        self._loss: LinkLostError | None = None
        self._up_since_ns: int | None = None
        self._poll = select.poll()

    def run(self) -> None:
        """Connect, and converse until the thread is to end.

        Raises:
            LinkLostError: The connection ended, or never came about.
        """
        try:
            self._place.beat(self._options.connect_timeout_s)
            self._client.connect()
            self._poll.register(self._place.waker, select.POLLIN)
            self._poll.register(self._client.fileno(), select.POLLIN)
            due_ns = self._place.clock.monotonic_ns() + round(self._options.connect_timeout_s * 1e9)
            while not self._place.ending():
                self._turn(self._place.turn_s)
                self._check_answered(due_ns)
            if self._place.exchange.is_current(self._place.generation):
                self._say_goodbye()
        except LinkLostError as error:
            loss = self._loss or error
            self._learn(loss)
            raise loss from None
        finally:
            self._client.close()

    def up_s(self) -> float:
        """How long the connection has been of use; 0 when it never was."""
        if self._up_since_ns is None:
            return 0.0
        return (self._place.clock.monotonic_ns() - self._up_since_ns) / 1e9

    def heard_ns(self) -> int:
        """When the broker's last byte came; 0 when none did."""
        return self._client.heard_ns

    def cut(self) -> None:
        """End the stream from another thread."""
        self._client.cut()

    def on_accepted(self, code: int, text: str, limits: Limits, *, session_present: bool) -> None:
        """CONNACK came."""
        if code:
            if code == UNSUPPORTED_PROTOCOL and self._protocol == MQTT_5:
                self._standing.choice.refused()
            self._loss = refused_connect(code, text)
            return
        self._limits = limits
        self._session_present = session_present
        self._standing.choice.accepted(self._protocol)
        self._standing.clean_start = False

    def on_granted(self, refusals: Sequence[str]) -> None:
        """SUBACK came: now the connection is up."""
        if self._asked is None:
            return  # an answer to nothing
        # A broker that answers fewer than it was asked has not granted the others.
        for wanted, reason in itertools.zip_longest(self._asked, refusals, fillvalue="no answer"):
            if reason and not isinstance(wanted, str):
                self._refused.append(Refused(wanted.filter, reason))
        self._open()

    def on_arrived(self, event: Arrived) -> None:
        """A message came, maybe before SUBACK did."""
        if self._up_since_ns is not None:
            self._place.exchange.arrived(self._place.generation, event)
            return
        self._early_bytes += arrival_bytes(event)
        if self._early_bytes > self._options.queue_bytes:
            self._place.exchange.dropped_arrivals += 1
        else:
            self._early.append(event)

    def on_acknowledged(self, mid: int, error: str) -> None:
        """PUBACK came; of QoS 0, which has no token, paho says when it was written."""
        token = self._tokens.pop(mid, None)
        if token is not None:
            self._place.exchange.acknowledged(self._place.generation, Acknowledged(token, error))

    def on_ended(self, loss: LinkLostError) -> None:
        """The connection is over; the first reason given is the true one."""
        self._loss = self._loss or loss

    def on_too_large(self, size_bytes: int) -> None:  # noqa: ARG002 - the port's; a count is enough here
        """A packet larger than we allow was read around."""
        self._place.exchange.too_large_arrivals += 1

    def on_fault(self, error: Exception) -> None:
        """Something could not be understood: text that is not UTF-8 is the sender's fault, the rest ours."""
        if isinstance(error, UnicodeDecodeError):
            self._place.exchange.dropped_arrivals += 1
        else:
            self._place.exchange.handler_faults += 1

    def _turn(self, wait_s: float) -> None:
        self._place.beat(0.0)
        self._subscribe()
        self._hand_over()
        client = self._client
        pending = client.pending()
        at_once = pending or (self._place.exchange.has_outgoing and not client.want_write)
        stream = client.fileno()
        self._poll.modify(stream, select.POLLIN | (select.POLLOUT if client.want_write else 0))
        ready = dict(self._poll.poll(0 if at_once else wait_s * 1e3))
        if self._place.waker.fileno() in ready:
            self._place.waker.drain()
        if pending or ready.get(stream, 0) & ~select.POLLOUT:
            client.read()
        if self._loss is None and ready.get(stream, 0) & select.POLLOUT:
            client.write()
        if self._loss is None:
            client.keep_alive()
        if self._loss is not None:
            raise self._loss

    def _check_answered(self, due_ns: int) -> None:
        if self._up_since_ns is None and self._place.clock.monotonic_ns() > due_ns:
            awaited = "CONNECT" if self._limits is None else "SUBSCRIBE"
            raise LinkLostError("timeout", f"the broker did not answer {awaited} in time")

    def _subscribe(self) -> None:
        """Ask for what we want, once CONNACK has said what there is."""
        limits = self._limits
        if limits is None or self._asked is not None:
            return
        lacking = not limits.shared_subscriptions and limits.protocol == MQTT_5
        self._asked = tuple(
            wanted for wanted in self._subscriptions if not (lacking and wanted.filter.startswith("$share/"))
        )
        self._refused = [
            Refused(wanted.filter, "the broker has no shared subscriptions")
            for wanted in self._subscriptions
            if wanted not in self._asked
        ]
        if self._asked:
            self._client.subscribe(self._asked)
        else:
            self._open()

    def _open(self) -> None:
        if self._limits is None or self._up_since_ns is not None:
            return
        self._up_since_ns = self._place.clock.monotonic_ns()
        self._standing.connects += 1
        event = Connected(self._limits, self._session_present, self._standing.connects)
        self._place.exchange.opened(self._place.generation, event, self._refused, self._early)
        self._early = []

    def _hand_over(self) -> None:
        """Give paho what it can send at once, so that what waits does so in our bounded queue."""
        limits = self._limits
        for _ in range(_BURST):
            if limits is None or self._client.want_write:
                return
            waiting = self._place.exchange.next_outgoing(self._place.generation)
            if waiting is None:
                return
            token, message = waiting
            mid = self._client.publish(message, retain=message.retain and limits.retain)
            if message.qos:
                self._tokens[mid] = token

    def _learn(self, loss: LinkLostError) -> None:
        """What the failure says about the versions that the broker speaks."""
        if self._limits is not None or self._place.ending():
            return
        if loss.kind == "closed" and self._client.connect_sent:
            self._standing.choice.hung_up(self._protocol)
        else:
            self._standing.choice.failed_otherwise()

    def _say_goodbye(self) -> None:
        """Send what was taken, then DISCONNECT; in half a second, come what may."""
        clock = self._place.clock
        end_ns = clock.monotonic_ns() + round(_GOODBYE_S * 1e9)
        while self._place.exchange.has_outgoing or self._client.want_write:
            if clock.monotonic_ns() > end_ns:
                break
            self._turn(0.05)
        self._client.disconnect()
        while self._client.fileno() >= 0 and self._client.want_write and clock.monotonic_ns() < end_ns:
            self._turn(0.05)
