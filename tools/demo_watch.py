"""What the operator of the demo sees of one device, over MQTT and in no other way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from vedette.errors import BadInputError, InternalError, UnavailableError
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import Arrived, BrokerOptions, Connected, Lost, Refused, Subscription
from vedette.wire.blocks import STATUS_DATA, decode_data, decode_request
from vedette.wire.plane import Announcement, DeviceStatus, Reported
from vedette.wire.telemetry import decode_report
from vedette.wire.topics import announcements
from vedette_fleet.fleet_figures import FleetFigures, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from vedette.mqtt.port import Event, Limits
    from vedette.wire.topics import DeviceTopics
    from vedette_fleet.fleet_figures import ModelRow

TURN_S = 0.1
CONNECT_WITHIN_S = 60.0
_T = TypeVar("_T")


class OperatorView:
    """Listens to one device's branch and to announcements; used by one thread.

    `blocks` holds the bytes that came over the broker, by the file of the repository that they are of.
    """

    def __init__(self, port: int, device: DeviceTopics) -> None:
        self.device = device
        self.limits: Limits | None = None
        self.status: DeviceStatus | None = None
        self.reported: Reported | None = None
        self.phases: list[str] = []
        self.announced: Announcement | None = None
        self.reports = 0
        self.blocks: dict[str, int] = {}
        self._figures = FleetFigures()
        self._paths: dict[str, str] = {}
        options = BrokerOptions(host="127.0.0.1", port=port, session_expiry_s=0)
        wanted = [Subscription(f"{device.branch}/#"), Subscription(announcements())]
        self._connection = PahoConnection(options, wanted, name="operator")

    def __enter__(self) -> Self:
        self._connection.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.stop()

    def until(
        self,
        what: str,
        found: Callable[[], _T | None],
        within_s: float,
        alive: Callable[[], None] = lambda: None,
    ) -> _T:
        """Listen until something was seen.

        Args:
            what: What is waited for, in words.
            found: Gives it, and None as long as it was not seen.
            within_s: How long, at most.
            alive: Asked meanwhile; raises when waiting has become vain.

        Raises:
            UnavailableError: It was not seen in time.
        """
        deadline_s = time.monotonic() + within_s
        while (seen := found()) is None:
            if time.monotonic() > deadline_s:
                raise UnavailableError(
                    f"the operator saw no {what} within {within_s:.0f} s; {self._standing()}"
                )
            alive()
            self._listen()
        return seen

    def connected(self) -> Limits:
        """What the broker allows, once it answered.

        Raises:
            UnavailableError: It does not answer, or cannot share requests among block servers.
        """
        limits = self.until("broker", lambda: self.limits, CONNECT_WITHIN_S)
        if not limits.shared_subscriptions:
            raise UnavailableError(
                "the embedded broker has no shared subscriptions here, and blocks are served by them",
                cure="pip install --upgrade iotcore",
            )
        return limits

    def models(self) -> tuple[ModelRow, ...]:
        """Versions that answered, with their latency from the merged sketches of all reports."""
        rows = self._figures.view(time.monotonic()).models
        return tuple(row for row in rows if row.latency.count)

    def bytes_of(self, folder: str) -> int:
        """Bytes of blocks of files below a folder of the repository."""
        return sum(count for path, count in self.blocks.items() if path.startswith(f"{folder}/"))

    def _listen(self) -> None:
        event = self._connection.next_event(TURN_S)
        while event is not None:
            self._take(event)
            event = self._connection.next_event(0.0)

    def _take(self, event: Event) -> None:
        if isinstance(event, Arrived):
            try:
                self._hear(event)
            except (BadInputError, msgspec.DecodeError) as error:
                raise InternalError(f"what came on {event.topic} cannot be read: {error}") from error
        elif isinstance(event, Connected):
            self.limits = event.limits
        elif isinstance(event, Refused):
            raise UnavailableError(f"the broker does not let the operator listen: {event.reason}")
        elif isinstance(event, Lost):
            raise UnavailableError(f"the operator's connection to the broker ended: {event.reason}")

    def _hear(self, arrived: Arrived) -> None:
        device, payload = self.device, arrived.payload
        if arrived.topic == announcements():
            self.announced = msgspec.json.decode(payload, type=Announcement)
        elif arrived.topic == device.status:
            self.status = msgspec.json.decode(payload, type=DeviceStatus)
        elif arrived.topic == device.reported:
            self.reported = msgspec.json.decode(payload, type=Reported)
            if self.phases[-1:] != [self.reported.phase]:
                self.phases.append(self.reported.phase)
        elif arrived.topic == device.telemetry:
            decode_report(payload, arrived.content_type)  # one that is damaged must not only be counted
            self.reports += 1
            self._figures.take(
                Message(
                    arrived.topic,
                    payload,
                    arrived.content_type,
                    arrived.retained,
                    time.monotonic(),
                    time.time(),
                )
            )
        elif arrived.topic == device.block_request:
            request = decode_request(payload)
            self._paths[request.xfer] = request.path
        elif arrived.topic == device.block_data:
            self._count_block(payload)

    def _count_block(self, payload: bytes) -> None:
        block = decode_data(payload)
        if block.status == STATUS_DATA:
            path = self._paths.get(block.xfer, "unasked/")
            self.blocks[path] = self.blocks.get(path, 0) + len(block.data)

    def _standing(self) -> str:
        """What is known of the device, for an error."""
        if self.status is None:
            return "nothing came from the device"
        update = self.reported
        if update is None:
            return f"it is {'online' if self.status.online else 'offline'}, and said nothing of updates"
        ended = " ".join(filter(None, (update.result, update.cause, update.detail, update.look_fault)))
        return f"its update is in `{update.phase}`; {ended or 'none has ended'}"
