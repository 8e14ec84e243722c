"""What callers and the network thread hand each other: bounded in bytes, under one lock, calling nobody.

Only the newest network thread is heard: each names the generation it was given, and what one that was
replaced still says, should it ever wake up, has no effect.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.mqtt.packet_size import publish_bytes
from vedette.mqtt.port import Acknowledged, Arrived, Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.mqtt.port import Connected, Event, Limits, Outgoing, Refused

# What a queued object costs beside its payload, roughly.
OVERHEAD_BYTES = 256
# Acknowledgements are never dropped, so there must not be more of them than somebody takes.
MAX_UNREAD_ACKNOWLEDGEMENTS = 10_000


def arrival_bytes(event: Arrived) -> int:
    """What an arrival costs while it waits."""
    return OVERHEAD_BYTES + len(event.payload) + len(event.topic) + len(event.correlation)


class Exchange:
    """Events out, messages in; the counters are read without the lock and may be a moment old."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._events: deque[Event] = deque()
        self._arrived_bytes = 0
        self._unread_acknowledgements = 0
        self._woken = False
        self._outgoing: deque[tuple[int, Outgoing, int]] = deque()
        self._outgoing_bytes = 0
        self._unacknowledged: set[int] = set()
        self._last_token = 0
        self._limits: Limits | None = None
        self._generation = 0
        self._wake_network: Callable[[], None] | None = None
        self.connects = 0
        self.losses = 0
        self.last_loss = ""
        self.dropped_arrivals = 0
        self.too_large_arrivals = 0
        self.handler_faults = 0

    @property
    def connected(self) -> bool:
        """Whether messages are taken now."""
        return self._limits is not None

    def publish(self, message: Outgoing) -> int | None:
        """`port.Connection.publish`.

        Raises:
            BadInputError: No packet can carry it, or the broker takes none as large.
        """
        with self._changed:
            limits, wake_network = self._limits, self._wake_network
            if limits is None or wake_network is None:
                return None
            size = publish_bytes(message, limits.protocol)
            if size > limits.max_packet_bytes:
                raise BadInputError(
                    f"a packet of {size} bytes for {message.topic} is above the broker's limit of "
                    f"{limits.max_packet_bytes}",
                    cure="send less at once, or raise the broker's maximum packet size",
                )
            if not self._has_room(message, size, limits):
                return None
            self._last_token += 1
            token = self._last_token
            if message.qos:
                self._unacknowledged.add(token)
            idle = not self._outgoing
            self._outgoing.append((token, message, size))
            self._outgoing_bytes += size
        if idle:
            wake_network()
        return token

    def next_event(self, timeout_s: float) -> tuple[Event | None, bool]:
        """The oldest event, or None when none came in time; and whether somebody woke the wait."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while not self._events and not self._woken:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            woken = self._woken
            self._woken = False
            if not self._events:
                return None, woken
            event = self._events.popleft()
            self._forget_cost(event)
            return event, woken

    def wake(self) -> None:
        """End the wait of `next_event`."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    # What follows is the network thread's.

    def take_over(self, wake_network: Callable[[], None]) -> int:
        """Begin a new generation; what the one before had in flight is forgotten."""
        with self._changed:
            self._generation += 1
            self._wake_network = wake_network
            self._disconnect()
            return self._generation

    def is_current(self, generation: int) -> bool:
        """False when another network thread has taken over, and this one is to end."""
        return self._generation == generation

    def opened(
        self, generation: int, event: Connected, refused: Sequence[Refused], early: Sequence[Arrived]
    ) -> None:
        """The connection is up: tell so, then what was not granted, then what arrived before."""
        with self._changed:
            if generation != self._generation:
                return
            self._limits = event.limits
            self.connects = event.number
            self._append(event)
            for refusal in refused:
                self._append(refusal)
            for arrival in early:
                self._append_arrival(arrival)

    def lost(self, generation: int, event: Lost) -> None:
        """The connection or the attempt ended; of failures that nobody read, the first and the last stay."""
        with self._changed:
            if generation != self._generation:
                return
            self._disconnect()
            self.losses += 1
            self.last_loss = f"{event.kind}: {event.reason}"
            if len(self._events) > 1 and all(isinstance(self._events[at], Lost) for at in (-1, -2)):
                self._events.pop()
            self._append(event)

    def arrived(self, generation: int, event: Arrived) -> None:
        """A message came; it is dropped and counted where too many bytes wait already."""
        with self._changed:
            if generation == self._generation:
                self._append_arrival(event)

    def acknowledged(self, generation: int, event: Acknowledged) -> None:
        """The broker answered a message of QoS 1."""
        with self._changed:
            if generation == self._generation and event.token in self._unacknowledged:
                self._unacknowledged.remove(event.token)
                self._unread_acknowledgements += 1
                self._append(event)

    def next_outgoing(self, generation: int) -> tuple[int, Outgoing] | None:
        """The next message for the network, with its token."""
        with self._changed:
            if generation != self._generation or not self._outgoing:
                return None
            token, message, size = self._outgoing.popleft()
            self._outgoing_bytes -= size
            return token, message

    @property
    def has_outgoing(self) -> bool:
        """Whether a message waits for the network."""
        return bool(self._outgoing)

    def _has_room(self, message: Outgoing, size: int, limits: Limits) -> bool:
        if message.qos and len(self._unacknowledged) >= limits.receive_maximum:
            return False
        if self._unread_acknowledgements >= MAX_UNREAD_ACKNOWLEDGEMENTS:
            return False
        return not self._outgoing or self._outgoing_bytes + size <= self._limit_bytes

    def _forget_cost(self, event: Event) -> None:
        if isinstance(event, Acknowledged):
            self._unread_acknowledgements -= 1
        elif isinstance(event, Arrived):
            self._arrived_bytes -= arrival_bytes(event)

    def _disconnect(self) -> None:
        self._limits = None
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._unacknowledged.clear()

    def _append_arrival(self, event: Arrived) -> None:
        size = arrival_bytes(event)
        if self._arrived_bytes + size > self._limit_bytes:
            self.dropped_arrivals += 1
            return
        self._arrived_bytes += size
        self._append(event)

    def _append(self, event: Event) -> None:
        self._events.append(event)
        self._changed.notify_all()
