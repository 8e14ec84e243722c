"""Answers the devices' requests for blocks, through a subscription that any number of servers share.

It reads and never writes. A request is answered on the topics of whoever asked, which the broker has checked,
and never where a request says. What cannot be sent now waits in a queue that is bounded and fair; what would
not fit is told to come back later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.mqtt.port import Arrived, Lost, Outgoing
from vedette.wire.blocks import (
    BLOCK_EXPIRY_S,
    BLOCK_TYPE,
    STATUS_BAD_REQUEST,
    STATUS_BUSY,
    STATUS_CHANGED,
    STATUS_DATA,
    STATUS_NOT_FOUND,
    decode_request,
    encode_data,
    request_fault,
)
from vedette.wire.topics import parse_topic
from vedette_fleet.block_log import TransferLog
from vedette_fleet.block_queue import BlockQueue, ByteRate, Job

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.mqtt.port import Connection, Event
    from vedette.wire.blocks import BlockRequest
    from vedette.wire.topics import DeviceTopics
    from vedette_fleet.block_files import BlockFiles, ServedFile

_REQUEST_LEVELS = ("blk", "get")
_BURST = 16  # blocks between two looks at what came
# The network took all that it can hold; it is asked again so soon.
_FULL_WAIT_S = 0.003
_IDLE_WAIT_S = 1.0
_LEAST_RETRY_MS, _MOST_RETRY_MS = 200, 10_000
_UNREADABLE_RETRY_MS = 5000
_WORDS = {
    STATUS_NOT_FOUND: "not there",
    STATUS_CHANGED: "changed meanwhile",
    STATUS_BUSY: "busy",
    STATUS_BAD_REQUEST: "a bad request",
}


@dataclass
class ServerFigures:
    """Counts since the start."""

    requests: int = 0
    blocks: int = 0
    sent_bytes: int = 0
    bad: int = 0
    busy: int = 0
    not_found: int = 0
    unreadable: int = 0


class BlockServer:
    """One server; whoever reads the connection's events gives them to `take`, and calls `work` in between.

    `bytes_per_s` limits what is sent to all devices together; `log` is told a line for each transfer.
    """

    def __init__(
        self,
        connection: Connection,
        files: BlockFiles,
        *,
        clock: Clock,
        log: Callable[[str], None],
        bytes_per_s: float | None = None,
        queue: BlockQueue | None = None,
    ) -> None:
        self._connection = connection
        self._files = files
        self._clock = clock
        self._queue = BlockQueue() if queue is None else queue
        self._rate = ByteRate(bytes_per_s, clock.monotonic_ns())
        self._transfers = TransferLog(log)
        self._log = log
        self._speed = _Speed(clock.monotonic_ns())
        self._waiting: Job | None = None
        self._unreadable_told = False
        self.figures = ServerFigures()

    def take(self, event: Event) -> None:
        """Something happened on the connection."""
        if isinstance(event, Arrived):
            self._take_request(event)
        elif isinstance(event, Lost):
            self._queue.clear()  # whoever asked has lost its answers, and asks again
            self._waiting = None

    def work(self) -> float:
        """Send some of what waits; returns after how many seconds there is more to do."""
        for _ in range(_BURST):
            now_ns = self._clock.monotonic_ns()
            wait_s = self._rate.wait_s(now_ns)
            if wait_s > 0:
                return min(wait_s, _IDLE_WAIT_S)
            job = self._waiting or self._queue.take(now_ns)
            if job is None:
                self._transfers.end(now_ns)
                return _IDLE_WAIT_S
            self._waiting = None
            if not self._send(job, now_ns):
                self._waiting = job
                return _FULL_WAIT_S
        return 0.0

    def close(self) -> None:
        """Write of the transfers that were under way."""
        self._transfers.end(self._clock.monotonic_ns(), all_of_them=True)

    def _take_request(self, event: Arrived) -> None:
        address = parse_topic(event.topic)
        if address is None or address.rest != _REQUEST_LEVELS:
            return  # not a request: another part of this program listens, too
        self.figures.requests += 1
        try:
            request = decode_request(event.payload)
        except BadInputError:
            self.figures.bad += 1
            return
        if event.retained:
            self.figures.bad += 1  # nobody asks now
            return
        if request_fault(request) is not None:
            self.figures.bad += 1
            self._refuse(address.topics, request, STATUS_BAD_REQUEST)
            return
        now_ns = self._clock.monotonic_ns()
        file = self._find(address.topics, request)
        if file is not None and not self._queue.offer(address.topics, request, now_ns):
            self.figures.busy += 1
            self._refuse(address.topics, request, STATUS_BUSY, retry_after_ms=self._retry_after_ms(now_ns))

    def _find(self, device: DeviceTopics, request: BlockRequest) -> ServedFile | None:
        """The file that is meant; when it is not as it should be, whoever asked is told so."""
        try:
            file = self._files.find(request.path)
        except OSError as error:
            self._tell_unreadable(device, request, error)
            return None
        if file is None:
            self.figures.not_found += 1
            self._refuse(device, request, STATUS_NOT_FOUND)
            return None
        known = (request.of_bytes, request.of_tag)
        if known not in {(0, 0), (file.size_bytes, file.tag)}:
            self._refuse(device, request, STATUS_CHANGED)
            return None
        return file

    def _send(self, job: Job, now_ns: int) -> bool:
        """Send a block, or say why it cannot be; false when the network takes nothing now."""
        request = job.request
        file = self._find(job.device, request)
        if file is None:
            return True
        offset = min(job.block * request.block_bytes, file.size_bytes)
        size = min(request.block_bytes, file.size_bytes - offset)
        try:
            data = self._files.read(file, offset, size)
        except OSError as error:
            self._tell_unreadable(job.device, request, error)
            return True
        if len(data) != size:  # it was cut just now; the next look at it will tell
            return True
        payload = encode_data(
            status=STATUS_DATA,
            xfer=request.xfer,
            request=request.request,
            offset=offset,
            total_bytes=file.size_bytes,
            tag=file.tag,
            data=data,
        )
        try:
            if not self._publish(job.device, payload):
                return False
        except BadInputError:  # larger than the broker takes
            self.figures.bad += 1
            self._refuse(job.device, request, STATUS_BAD_REQUEST)
            return True
        self._rate.spend(len(payload))
        self._speed.sent(len(payload), now_ns)
        self.figures.blocks += 1
        self.figures.sent_bytes += size
        self._transfers.sent(job.device, request.xfer, request.path, size, now_ns)
        return True

    def _refuse(
        self, device: DeviceTopics, request: BlockRequest, status: int, *, retry_after_ms: int = 0
    ) -> None:
        """Say a word; when not even that can be sent, whoever asked asks again."""
        payload = encode_data(
            status=status, xfer=request.xfer, request=request.request, offset=retry_after_ms
        )
        self._publish(device, payload)
        now_ns = self._clock.monotonic_ns()
        self._transfers.refused(device, request.xfer, request.path, _WORDS[status], now_ns)

    def _publish(self, device: DeviceTopics, payload: bytes) -> bool:
        message = Outgoing(
            device.block_data, payload, qos=0, content_type=BLOCK_TYPE, expiry_s=BLOCK_EXPIRY_S
        )
        return self._connection.publish(message) is not None

    def _tell_unreadable(self, device: DeviceTopics, request: BlockRequest, error: OSError) -> None:
        """Ours to mend, so the device is to come back; people are told once."""
        self.figures.unreadable += 1
        self._refuse(device, request, STATUS_BUSY, retry_after_ms=_UNREADABLE_RETRY_MS)
        if not self._unreadable_told:
            self._unreadable_told = True
            self._log(f"cannot read {request.path[:100]!r}: {error.strerror}; devices are told to come back")

    def _retry_after_ms(self, now_ns: int) -> int:
        """About when half of what waits will be sent."""
        drain_ms = self._queue.held_bytes / 2 / max(1.0, self._speed.bytes_per_s(now_ns)) * 1000
        return round(min(max(drain_ms, _LEAST_RETRY_MS), _MOST_RETRY_MS))


class _Speed:
    """How fast blocks went out lately, in bytes a second: of the second before, or of this one so far."""

    def __init__(self, now_ns: int) -> None:
        self._since_ns = now_ns
        self._sent_bytes = 0
        self._last = 0.0

    def sent(self, size_bytes: int, now_ns: int) -> None:
        """So much went out."""
        self._turn(now_ns)
        self._sent_bytes += size_bytes

    def bytes_per_s(self, now_ns: int) -> float:
        """The speed."""
        self._turn(now_ns)
        return self._last or self._sent_bytes / max(0.1, (now_ns - self._since_ns) / 1e9)

    def _turn(self, now_ns: int) -> None:
        if now_ns - self._since_ns >= 1_000_000_000:
            self._last = self._sent_bytes / ((now_ns - self._since_ns) / 1e9)
            self._since_ns, self._sent_bytes = now_ns, 0
