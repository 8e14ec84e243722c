"""Where answers of cameras leave the box: offered by the results thread, published by the link's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.mqtt.port import Outgoing
from vedette.wire.plane import JSON_TYPE

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.link.result_selection import ResultSelection, SelectedResult
    from vedette.mqtt.port import Connection
    from vedette.wire.messages import Result
    from vedette.wire.topics import DeviceTopics


class ResultOutlet:
    """A selection under a lock; nothing under it waits. Any thread."""

    def __init__(self, topics: DeviceTopics, selection: ResultSelection, clock: Clock) -> None:
        self._topics = topics
        self._selection = selection
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def dropped(self) -> int:
        """Answers that were to be sent and were not."""
        return self._selection.dropped

    def offer(self, result: Result, *, connected: bool) -> bool:
        """Consider an answer; whether the link's thread must be told."""
        with self._lock:
            return self._selection.offer(result, connected=connected)

    def reconnected(self) -> None:
        """A connection is up."""
        with self._lock:
            self._selection.reconnected()

    def send(self, connection: Connection) -> None:
        """Publish what is due, at QoS 0; what the connection does not take now is dropped and counted."""
        while True:
            with self._lock:
                selected = self._selection.take(self._clock.monotonic_ns())
            if selected is None:
                return
            if not self._publish(connection, selected):
                with self._lock:
                    self._selection.dropped += 1

    def wait_s(self) -> float:
        """Seconds until there is something to send; infinite when nothing waits."""
        with self._lock:
            return self._selection.wait_s(self._clock.monotonic_ns())

    def _publish(self, connection: Connection, selected: SelectedResult) -> bool:
        try:
            topic = self._topics.result(selected.camera)
            message = Outgoing(topic, selected.payload, qos=0, content_type=JSON_TYPE)
            return connection.publish(message) is not None
        except BadInputError:  # above the broker's limit, or a camera whose name is no level of a topic
            return False
