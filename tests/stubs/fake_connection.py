"""A broker and its connections without a network, for tests that drive both by hand.

`FakeBroker` keeps what is retained and passes messages on; it can be away, refuse, limit sizes, and hang up
on a message. Each `FakeConnection` implements `mqtt.port.Connection` and passes its contract test.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.mqtt.packet_size import publish_bytes
from vedette.mqtt.port import Acknowledged, Arrived, Connected, Health, Limits, Lost, Outgoing, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.mqtt.port import Event, Subscription, WillMaker


def matches(pattern: str, topic: str) -> bool:
    """Whether a filter covers a topic; MQTT 5.0, section 4.7."""
    wanted, levels = pattern.split("/"), topic.split("/")
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in {"+", levels[place]}:
            return False
    return len(wanted) == len(levels)


class FakeBroker:
    """Everybody's messages, under one lock.

    `published` is all that it took. `refuse` gives the reason against a message, and `hang_up` says whether a
    message ends the connection that brought it, and it is not taken. With `slow`, nothing is acknowledged
    until `acknowledge` is called. `denied` filters are not granted.
    """

    def __init__(self, *, max_packet_bytes: int = 256 << 10, receive_maximum: int = 20) -> None:
        self.limits = Limits(5, max_packet_bytes, receive_maximum)
        self.published: list[Outgoing] = []
        self.retained: dict[str, Outgoing] = {}
        self.refuse: Callable[[Outgoing], str] = lambda _message: ""
        self.hang_up: Callable[[Outgoing], str] = lambda _message: ""
        self.denied: dict[str, str] = {}
        self.slow = False
        self.away = False
        self.lock = threading.RLock()
        self._clients: list[FakeConnection] = []
        self._turns: dict[str, int] = {}

    def connection(
        self, subscriptions: Sequence[Subscription] = (), will: WillMaker | None = None
    ) -> FakeConnection:
        """A connection to this broker, not started."""
        return FakeConnection(self, subscriptions, will)

    def say(self, message: Outgoing) -> None:
        """Publish as somebody else."""
        with self.lock:
            self.deliver(message)

    def go_away(self, kind: str = "closed") -> None:
        """End every connection without a goodbye, and take none."""
        with self.lock:
            self.away = True
            for client in list(self._clients):
                self.end(client, kind)

    def come_back(self, *, memory: bool = True) -> None:
        """Take connections again; without memory nothing is retained any more."""
        with self.lock:
            self.away = False
            if not memory:
                self.retained.clear()

    def acknowledge(self) -> None:
        """Answer all that was held back."""
        with self.lock:
            for client in self._clients:
                client.release()

    # What follows is for connections, under the lock.

    def attach(self, client: FakeConnection) -> None:
        """A client comes."""
        self._clients.append(client)

    def detach(self, client: FakeConnection) -> None:
        """A client goes in good order."""
        if client in self._clients:
            self._clients.remove(client)

    def end(self, client: FakeConnection, kind: str) -> None:
        """A connection breaks: its client hears of it, and its will is published."""
        self.detach(client)
        will = client.broken(kind)
        if will is not None:
            self.deliver(will)

    def deliver(self, message: Outgoing) -> None:
        """Keep it where it is to be kept, and pass it to all who asked for it."""
        self.published.append(message)
        if message.retain:
            self.retained.pop(message.topic, None)
            if message.payload:
                self.retained[message.topic] = message
        shared: dict[str, list[FakeConnection]] = {}
        for client in self._clients:
            for wanted in client.subscriptions:
                if wanted.startswith("$share/"):
                    if matches(wanted.split("/", 2)[2], message.topic):
                        shared.setdefault(wanted, []).append(client)
                elif matches(wanted, message.topic):
                    client.arrived(message, retained=message.retain and wanted in client.as_published)
                    break
        for wanted, group in shared.items():
            self._turns[wanted] = self._turns.get(wanted, 0) + 1
            group[self._turns[wanted] % len(group)].arrived(message, retained=False)


class FakeConnection:
    """A connection; it connects when it is started or waited on while the broker is there."""

    def __init__(
        self, broker: FakeBroker, subscriptions: Sequence[Subscription], will: WillMaker | None
    ) -> None:
        self._broker = broker
        self._changed = threading.Condition(broker.lock)
        self._make_will = will
        self._will: Outgoing | None = None
        self._events: deque[Event] = deque()
        self._held: list[Acknowledged] = []
        self._woken = False
        self._started = False
        self._up = False
        self._unacknowledged = 0
        self._last_token = 0
        self._connects = self._losses = 0
        self._last_loss = ""
        self._wanted = [wanted.filter for wanted in subscriptions]
        self.as_published = {wanted.filter for wanted in subscriptions if wanted.retain_as_published}
        self.subscriptions: list[str] = []

    def start(self) -> None:
        """Connect, if the broker is there."""
        with self._changed:
            self._started = True
            self._connect()

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Say goodbye; there is nothing to wait for."""
        del timeout_s
        with self._changed:
            self._started = self._up = False
            self._broker.detach(self)
            self._woken = True
            self._changed.notify_all()
        return True

    def publish(self, message: Outgoing) -> int | None:
        """Hand it to the broker at once."""
        with self._changed:
            if not self._up:
                return None
            size = publish_bytes(message, self._broker.limits.protocol)
            if size > self._broker.limits.max_packet_bytes:
                raise BadInputError(f"{size} bytes are above {self._broker.limits.max_packet_bytes}")
            if message.qos and self._unacknowledged >= self._broker.limits.receive_maximum:
                return None
            self._last_token += 1
            self._unacknowledged += message.qos
            kind = self._broker.hang_up(message)
            if kind:
                self._broker.end(self, kind)
                return self._last_token
            reason = self._broker.refuse(message)
            if not reason:
                self._broker.deliver(message)
            if message.qos:
                self._held.append(Acknowledged(self._last_token, reason))
                if not self._broker.slow:
                    self.release()
            return self._last_token

    def next_event(self, timeout_s: float) -> Event | None:
        """The oldest event."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            self._connect()
            while not self._events and not self._woken:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            self._woken = False
            if not self._events:
                return None
            return self._events.popleft()

    def wake(self) -> None:
        """End a wait."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def health(self) -> Health:
        """How it stands."""
        with self._changed:
            return Health(
                connected=self._up,
                thread_age_s=0.0,
                broker_age_s=0.0 if self._up else None,
                connects=self._connects,
                losses=self._losses,
                last_loss=self._last_loss,
                dropped_arrivals=0,
                too_large_arrivals=0,
                thread_restarts=0,
                handler_faults=0,
            )

    # What follows is for the broker, under its lock.

    def arrived(self, message: Outgoing, *, retained: bool) -> None:
        """A message comes."""
        self._add(
            Arrived(
                message.topic,
                message.payload,
                retained=retained,
                qos=message.qos,
                response_topic=message.response_topic,
                correlation=message.correlation,
                content_type=message.content_type,
            )
        )

    def release(self) -> None:
        """What was held back is acknowledged."""
        held, self._held = self._held, []
        for answer in held:
            self._unacknowledged -= 1
            self._add(answer)

    def broken(self, kind: str) -> Outgoing | None:
        """The connection ended; its will."""
        self._up = False
        self._losses += 1
        self._last_loss = kind
        self._held.clear()
        self._add(Lost(kind, f"the fake broker ended it: {kind}", 0.0))
        return self._will

    def _connect(self) -> None:
        if not self._started or self._up or self._broker.away:
            return
        self._will = None if self._make_will is None else self._make_will()
        self._up = True
        self._unacknowledged = 0
        self._connects += 1
        self._broker.attach(self)
        self.subscriptions = [wanted for wanted in self._wanted if wanted not in self._broker.denied]
        self._add(Connected(self._broker.limits, session_present=False, number=self._connects))
        for wanted, reason in self._broker.denied.items():
            if wanted in self._wanted:
                self._add(Refused(wanted, reason))
        for message in list(self._broker.retained.values()):
            if any(matches(wanted, message.topic) for wanted in self.subscriptions):
                self.arrived(message, retained=True)

    def _add(self, event: Event) -> None:
        self._events.append(event)
        self._changed.notify_all()
