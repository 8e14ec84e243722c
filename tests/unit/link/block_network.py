"""A network in virtual time between a window and a file: it loses, doubles, delays, damages and invents."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vedette.wire.blocks import STATUS_DATA, Block, decode_data, encode_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.link.block_window import BlockWindow
    from vedette.wire.blocks import BlockRequest

MS = 1_000_000
S = 1_000_000_000


@dataclass
class Weather:
    """Chances of a message, each way; times in nanoseconds of virtual time.

    `bytes_per_s` is a bottleneck that all blocks queue up at, 0 for none.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    stray: float = 0.0
    latency_ns: int = 10 * MS
    jitter_ns: int = 2 * MS
    late_ns: int = 30 * MS
    bytes_per_s: float = 0.0


@dataclass
class Traffic:
    """What went through the network; `lost_bytes` count the blocks of lost requests, too."""

    requests: list[tuple[int, BlockRequest]] = field(default_factory=list)
    sent_bytes: int = 0
    lost_bytes: int = 0
    sent_blocks: Counter[int] = field(default_factory=Counter)


class Network:
    """Runs a window against `content`; `answer` may say something else to a request than its blocks."""

    def __init__(
        self,
        content: bytes,
        weather: Weather,
        *,
        seed: int = 0,
        answer: Callable[[BlockRequest, int], list[bytes] | None] = lambda _request, _now_ns: None,
    ) -> None:
        self.content = content
        self.weather = weather
        self.traffic = Traffic()
        self.now_ns = 0
        self._answer = answer
        self._random = random.Random(seed)  # noqa: S311 - dice
        self._events: list[tuple[int, int, bytes | BlockRequest]] = []
        self._order = itertools.count()
        self._line_free_ns = 0

    def draw(self) -> float:
        """For the window's jitter."""
        return self._random.random()

    def run(self, window: BlockWindow, *, longest_s: float = 3600.0) -> bytes:
        """The bytes that the window gave out; fails when it takes too long, or waits for nothing."""
        came = bytearray()
        while True:
            while (piece := window.pop()) is not None:
                came += piece
            if window.complete:
                return bytes(came)
            request = window.request(self.now_ns)
            if request is not None:
                self.traffic.requests.append((self.now_ns, request))
                self._send(request)
            due_ns = window.next_due_ns()
            assert due_ns is not None, "something is missing, and no timer is armed"
            if self._events and self._events[0][0] <= max(due_ns, self.now_ns):
                self._deliver(window)
            else:
                self.now_ns = max(self.now_ns, due_ns)
            assert self.now_ns < longest_s * S, f"not done after {longest_s:g} s: {self.traffic}"

    def _deliver(self, window: BlockWindow) -> None:
        at_ns, _, what = heapq.heappop(self._events)
        self.now_ns = max(self.now_ns, at_ns)
        if isinstance(what, bytes):
            window.take(decode_data(what), self.now_ns)
            return
        for payload in self._answers(what):
            self._send(payload)

    def _answers(self, request: BlockRequest) -> list[bytes]:
        special = self._answer(request, self.now_ns)
        if special is not None:
            return special
        return [data_block(self.content, request, number) for number in request.blocks]

    def _send(self, what: bytes | BlockRequest) -> None:
        size = 0
        if isinstance(what, bytes):
            block, size = decode_data(what), len(what)
            self.traffic.sent_bytes += size
            self.traffic.sent_blocks[block.offset] += 1
            self._stray(block)
        if self._random.random() < self.weather.drop:
            wanted = 0 if isinstance(what, bytes) else what.block_bytes * len(what.blocks)
            self.traffic.lost_bytes += size + wanted
            return
        copies = 1 + (self._random.random() < self.weather.duplicate)
        for _ in range(copies):
            heapq.heappush(self._events, (self._arrival_ns(size), next(self._order), what))

    def _arrival_ns(self, size: int) -> int:
        weather = self.weather
        way_ns = weather.latency_ns + round(self._random.random() * weather.jitter_ns)
        if self._random.random() < weather.late:
            way_ns += weather.late_ns
        if not weather.bytes_per_s or not size:
            return self.now_ns + way_ns
        self._line_free_ns = max(self._line_free_ns, self.now_ns) + round(size / weather.bytes_per_s * 1e9)
        return self._line_free_ns + way_ns

    def _stray(self, block: Block) -> None:
        """A block of another transfer, or an answer to a request that was never made."""
        if self._random.random() >= self.weather.stray:
            return
        foreign = self._random.random() < 0.5
        payload = encode_data(
            status=STATUS_DATA,
            xfer="stale" if foreign else block.xfer,
            request=block.request if foreign else block.request + 1000,
            offset=block.offset,
            total_bytes=block.total_bytes,
            data=b"?" * len(block.data),
        )
        heapq.heappush(self._events, (self.now_ns + self.weather.latency_ns, next(self._order), payload))


def data_block(content: bytes, request: BlockRequest, number: int, *, tag: int = 7) -> bytes:
    """The answer of an honest server."""
    offset = min(number * request.block_bytes, len(content))
    return encode_data(
        status=STATUS_DATA,
        xfer=request.xfer,
        request=request.request,
        offset=offset,
        total_bytes=len(content),
        tag=tag,
        data=content[offset : offset + request.block_bytes],
    )
