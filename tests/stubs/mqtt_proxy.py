"""A proxy for TCP that knows where packets of MQTT begin and end, and does to each what a rule says.

    with MqttProxy(broker.port, rule) as proxy:
        connect_to(proxy.port)

A rule sees every packet, both ways, and says what becomes of it; `RandomFaults` is one with dice.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP, DISCONNECT = (
    1, 2, 3, 4, 8, 9, 12, 13, 14,
)  # fmt: skip
_HELD_AT_MOST_S = 0.05
_READ_BYTES = 256 << 10


class Way(Enum):
    """Where a packet is going."""

    TO_BROKER = "to broker"
    TO_CLIENT = "to client"


class Act(Enum):
    """What becomes of a packet."""

    PASS = "pass"  # noqa: S105 - not a password
    DROP = "drop"
    DUPLICATE = "duplicate"
    REORDER = "reorder"  # after the next one this way, or after 50 ms
    CUT = "cut"  # half of it, then both connections end
    CLOSE = "close"  # nothing of it, and both connections end
    SWALLOW = "swallow"  # this and all that follows, both ways; the connections stay open


@dataclass(frozen=True)
class Delay:
    """Send it this much later, and what follows after it."""

    seconds: float


@dataclass(frozen=True)
class Packet:
    """A packet on its way; `number` counts those of its kind and way, over all connections, from 0."""

    way: Way
    kind: int
    raw: bytes
    number: int
    connection: int

    @property
    def topic(self) -> str:
        """The topic of a PUBLISH."""
        assert self.kind == PUBLISH
        start = 1 + _remaining(self.raw, 1)[1]
        size = int.from_bytes(self.raw[start : start + 2], "big")
        return self.raw[start + 2 : start + 2 + size].decode()


def pass_all(_packet: Packet) -> Act:
    """The rule that changes nothing."""
    return Act.PASS


class RandomFaults:
    """Harms PUBLISH packets whose topic ends in a suffix, each with the given chances."""

    def __init__(
        self, seed: int, *, drop: float = 0.0, duplicate: float = 0.0, reorder: float = 0.0, topic: str = ""
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - dice
        self._chances = ((Act.DROP, drop), (Act.DUPLICATE, duplicate), (Act.REORDER, reorder))
        self._topic = topic
        self.seen = 0
        self.seen_bytes = 0
        self.harmed: Counter[Act] = Counter()
        self.dropped_bytes = 0

    def __call__(self, packet: Packet) -> Act:
        """The rule."""
        if packet.kind != PUBLISH or not packet.topic.endswith(self._topic):
            return Act.PASS
        self.seen += 1
        self.seen_bytes += len(packet.raw)
        drawn = self._random.random()
        for act, chance in self._chances:
            if drawn < chance:
                self.harmed[act] += 1
                self.dropped_bytes += len(packet.raw) if act is Act.DROP else 0
                return act
            drawn -= chance
        return Act.PASS


class MqttProxy:
    """Listens on a free port of loopback; `rule` may be exchanged at any time."""

    def __init__(self, upstream_port: int, rule: Callable[[Packet], Act | Delay] = pass_all) -> None:
        self.rule = rule
        self.connections = 0
        self.acts: Counter[Act] = Counter()
        self._upstream_port = upstream_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._numbers: Counter[tuple[Way, int]] = Counter()
        self._pairs: list[_Pair] = []
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    @property
    def port(self) -> int:
        """Where clients connect."""
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_connections()
        for thread in self._threads:
            thread.join(5.0)

    def close_connections(self) -> None:
        """End every connection that passes through now."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.close()

    def judge(self, way: Way, raw: bytes, connection: int) -> Act | Delay:
        """Ask the rule, one packet at a time."""
        with self._lock:
            kind = raw[0] >> 4
            number = self._numbers[way, kind]
            self._numbers[way, kind] += 1
            verdict = self.rule(Packet(way, kind, raw, number, connection))
            if isinstance(verdict, Act):
                self.acts[verdict] += 1
            return verdict

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="mqtt-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._upstream_port), timeout=5.0)
            except OSError:  # the broker is away: the client sees its connection end
                client.close()
                continue
            pair = _Pair(client, broker, self.connections)
            self.connections += 1
            with self._lock:
                self._pairs.append(pair)
            self._spawn(self._pump, pair, Way.TO_BROKER)
            self._spawn(self._pump, pair, Way.TO_CLIENT)

    def _pump(self, pair: _Pair, way: Way) -> None:
        source, target = (pair.client, pair.broker) if way is Way.TO_BROKER else (pair.broker, pair.client)
        stream = _Stream(self, pair, way, target)
        poll = select.poll()
        poll.register(source, select.POLLIN)
        try:
            while not self._closing.is_set():
                if not poll.poll(_HELD_AT_MOST_S * 1e3 if stream.holds else 1000):
                    stream.release()
                    continue
                received = source.recv(_READ_BYTES)
                if not received or not stream.feed(received):
                    return
        except OSError:  # either end went away; so does the other
            return
        finally:
            pair.close()


class _Pair:
    """A client's connection and ours to the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket, number: int) -> None:
        self.client = client
        self.broker = broker
        self.number = number
        self.swallowing = threading.Event()
        for end in (client, broker):
            end.settimeout(10.0)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """End both."""
        for end in (self.client, self.broker):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class _Stream:
    """One way of one connection: bytes in, whole packets judged and sent on."""

    def __init__(self, proxy: MqttProxy, pair: _Pair, way: Way, target: socket.socket) -> None:
        self._proxy = proxy
        self._pair = pair
        self._way = way
        self._target = target
        self._buffer = bytearray()
        self._held = b""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def feed(self, received: bytes) -> bool:
        """False when the connection is to end."""
        self._buffer += received
        while (size := _packet_bytes(self._buffer)) is not None:
            raw = bytes(self._buffer[:size])
            del self._buffer[:size]
            if not self._treat(raw):
                return False
        return True

    def release(self) -> None:
        """Send what was held back."""
        held, self._held = self._held, b""
        if held and not self._pair.swallowing.is_set():
            self._target.sendall(held)

    def _treat(self, raw: bytes) -> bool:
        verdict = self._proxy.judge(self._way, raw, self._pair.number)
        if verdict is Act.SWALLOW:
            self._pair.swallowing.set()
        if self._pair.swallowing.is_set() or verdict is Act.DROP:
            return True
        if verdict is Act.CUT:
            self._target.sendall(raw[: max(1, len(raw) // 2)])
        if verdict in {Act.CUT, Act.CLOSE}:
            return False
        if verdict is Act.REORDER and not self._held:
            self._held = raw
            return True
        if isinstance(verdict, Delay):
            threading.Event().wait(verdict.seconds)
        self._target.sendall(raw * 2 if verdict is Act.DUPLICATE else raw)
        self.release()
        return True


def _packet_bytes(buffer: bytearray) -> int | None:
    """The size of the first packet, None while it is not whole."""
    remaining, used = _remaining(buffer, 1)
    if used == 0 or len(buffer) < 1 + used + remaining:
        return None
    return 1 + used + remaining


def _remaining(buffer: bytes | bytearray, start: int) -> tuple[int, int]:
    """A variable byte integer and its length, which is 0 while it is not whole."""
    value = 0
    for at in range(4):
        if start + at >= len(buffer):
            return 0, 0
        value |= (buffer[start + at] & 0x7F) << (7 * at)
        if not buffer[start + at] & 0x80:
            return value, at + 1
    raise OSError("not a packet of MQTT")
