"""Somebody on the fleet's side of a broker: hears everything of the devices, and asks them."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING, Any

import msgspec
from tests.stubs.mqtt_waiting import Connections, connected
from tests.stubs.waiting import until

from vedette.mqtt.port import Arrived, Outgoing, Subscription
from vedette.wire.plane import Command, CommandReply
from vedette.wire.telemetry import TelemetryReport, decode_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from vedette.wire.topics import DeviceTopics

ANSWERS = "operator/answers"
ANSWERED_WITHIN_S = 60.0


class FleetEar:
    """Listens on a thread of its own until it is left."""

    def __init__(self, port: int, topics: DeviceTopics, **options: Any) -> None:  # noqa: ANN401 - BrokerOptions'
        self.topics = topics
        self.arrived: list[Arrived] = []
        self._connections = Connections()
        wanted = [Subscription("vedette/1/#"), Subscription("homeassistant/#")]
        if not options.get("username"):
            wanted.append(Subscription(ANSWERS))
        self._connection = self._connections.to(
            port, wanted, max_packet_bytes=4 << 20, queue_bytes=32 << 20, receive_maximum=1000, **options
        )
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        connected(self._connection)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leaving.set()
        self._thread.join(5.0)
        self._connections.__exit__(None, None, None)

    def _listen(self) -> None:
        while not self._leaving.is_set():
            event = self._connection.next_event(0.1)
            if isinstance(event, Arrived):
                self.arrived.append(event)

    def said(self, topic: str) -> list[dict[str, Any]]:
        """What was said there in JSON, oldest first."""
        return [
            msgspec.json.decode(arrived.payload)
            for arrived in list(self.arrived)
            if arrived.topic == topic and arrived.payload
        ]

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Events of the device, all or those of a kind, each id once."""
        once = {event["id"]: event for event in self.said(self.topics.event)}
        return [event for event in once.values() if kind in {"", event["kind"]}]

    def reports(self) -> list[TelemetryReport]:
        """Telemetry of the device, each report once."""
        found = {
            report.key: report
            for arrived in list(self.arrived)
            if arrived.topic == self.topics.telemetry
            for report in [decode_report(arrived.payload, arrived.content_type)]
        }
        return list(found.values())

    def until(self, condition: Callable[[], object], what: str, *, timeout_s: float = 30.0) -> None:
        """Wait until it holds."""

        def told() -> str:
            return f"{what}; heard {[arrived.topic for arrived in self.arrived[-40:]]}"

        until(condition, told(), timeout_s=timeout_s, every_s=0.05)

    def publish(self, message: Outgoing) -> None:
        """Say something, as soon as the connection takes it."""
        until(lambda: self._connection.publish(message) is not None, f"{message.topic} is taken")

    def ask(self, name: str, arguments: dict[str, Any] | None = None, **properties: Any) -> CommandReply:  # noqa: ANN401 - Outgoing's
        """A command, and its answer."""
        command = Command(id=secrets.token_hex(8), arguments=arguments or {})
        self.publish(Outgoing(self.topics.command(name), msgspec.json.encode(command), **properties))
        where = properties.get("response_topic") or self.topics.response(name)

        def replies() -> list[CommandReply]:
            found = [
                msgspec.json.decode(arrived.payload, type=CommandReply)
                for arrived in list(self.arrived)
                if arrived.topic == where
            ]
            return [reply for reply in found if reply.id == command.id]

        self.until(replies, f"an answer to {name}", timeout_s=ANSWERED_WITHIN_S)
        (reply,) = replies()
        return reply
