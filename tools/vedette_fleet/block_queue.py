"""What a block server has still to send: bounded in bytes, fair between devices, never stale. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from vedette.wire.blocks import BLOCK_EXPIRY_S, MAX_BLOCK_BYTES, MAX_WINDOW

if TYPE_CHECKING:
    from vedette.wire.blocks import BlockRequest
    from vedette.wire.topics import DeviceTopics

LIMIT_BYTES = 64 << 20
DEVICE_LIMIT_BYTES = MAX_WINDOW * MAX_BLOCK_BYTES
# A device's turn; small blocks are sent several in a turn, so that bytes are shared out and not messages.
TURN_BYTES = MAX_BLOCK_BYTES
# What a waiting block costs beside its bytes.
_OVERHEAD_BYTES = 256


class Job(NamedTuple):
    """A block to send; `since_ns` is when it was asked for last."""

    device: DeviceTopics
    request: BlockRequest
    block: int
    since_ns: int


class _Line:
    """What one device waits for, and what is left of its turn."""

    def __init__(self) -> None:
        self.jobs: OrderedDict[tuple[str, str, int, int], Job] = OrderedDict()
        self.held_bytes = 0
        self.turn_bytes = TURN_BYTES


class BlockQueue:
    """Jobs of many devices; `expired` and `repeated` count what was not worth sending (again)."""

    def __init__(
        self, *, limit_bytes: int = LIMIT_BYTES, device_limit_bytes: int = DEVICE_LIMIT_BYTES
    ) -> None:
        self._limit_bytes = limit_bytes
        self._device_limit_bytes = device_limit_bytes
        self._lines: OrderedDict[DeviceTopics, _Line] = OrderedDict()
        self.held_bytes = 0
        self.expired = 0
        self.repeated = 0

    def offer(self, device: DeviceTopics, request: BlockRequest, now_ns: int) -> bool:
        """Take all of a request's blocks in, or none of them: false when there is no room.

        What waits already is not queued twice; it is sent under the number of the newest request.
        """
        line = self._lines.get(device) or _Line()
        keys = {(request.xfer, request.path, request.block_bytes, block) for block in request.blocks}
        cost_bytes = _cost_bytes(request) * len(keys - line.jobs.keys())
        if self.held_bytes + cost_bytes > self._limit_bytes:
            return False
        # Whoever waits for nothing is let in, however small the limit.
        if line.jobs and line.held_bytes + cost_bytes > self._device_limit_bytes:
            return False
        for block in dict.fromkeys(request.blocks):
            key = (request.xfer, request.path, request.block_bytes, block)
            self.repeated += key in line.jobs
            line.jobs[key] = Job(device, request, block, now_ns)
        line.held_bytes += cost_bytes
        self.held_bytes += cost_bytes
        self._lines[device] = line
        return True

    def take(self, now_ns: int) -> Job | None:
        """The next block to send; the devices take turns."""
        while self._lines:
            device, line = next(iter(self._lines.items()))
            _, job = line.jobs.popitem(last=False)
            cost_bytes = _cost_bytes(job.request)
            line.held_bytes -= cost_bytes
            self.held_bytes -= cost_bytes
            line.turn_bytes -= cost_bytes
            if not line.jobs:
                del self._lines[device]
            elif line.turn_bytes <= 0:
                line.turn_bytes += TURN_BYTES
                self._lines.move_to_end(device)
            if now_ns - job.since_ns <= BLOCK_EXPIRY_S * 1_000_000_000:
                return job
            self.expired += 1  # whoever still wants it has asked again, maybe another server
        return None

    def clear(self) -> None:
        """Forget everything."""
        self._lines.clear()
        self.held_bytes = 0

    def __len__(self) -> int:
        return sum(len(line.jobs) for line in self._lines.values())


class ByteRate:
    """A token bucket in bytes; what is sent may go below zero, and is waited for afterwards."""

    def __init__(self, bytes_per_s: float | None, now_ns: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_bytes = MAX_BLOCK_BYTES if bytes_per_s is None else max(MAX_BLOCK_BYTES, bytes_per_s / 10)
        self._tokens = float(self._burst_bytes)
        self._at_ns = now_ns

    def wait_s(self, now_ns: int) -> float:
        """How long nothing may be sent yet."""
        if self._bytes_per_s is None:
            return 0.0
        self._tokens += (now_ns - self._at_ns) / 1e9 * self._bytes_per_s
        self._tokens = min(self._tokens, self._burst_bytes)
        self._at_ns = now_ns
        return max(0.0, -self._tokens / self._bytes_per_s)

    def spend(self, size_bytes: int) -> None:
        """So much was sent."""
        if self._bytes_per_s is not None:
            self._tokens -= size_bytes


def _cost_bytes(request: BlockRequest) -> int:
    return request.block_bytes + _OVERHEAD_BYTES
