"""Reading a body while it comes: to its end and not beyond, and for a bounded moment without any."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from vedette.api.burst_reader import BURST_BYTES, LINGER_NS, BurstReader
from vedette.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Body:
    """A body of a known size."""

    def __init__(self, size_bytes: int) -> None:
        self._memory = memoryview(bytearray(size_bytes))
        self.at = 0
        self.wants_body = True

    def buffer(self) -> memoryview:
        return self._memory[self.at :]

    def received(self, size_bytes: int) -> None:
        self.at += size_bytes
        self.wants_body = self.at < len(self._memory)


class CountingClock:
    """Moves on by 10 us at each look."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic_ns(self) -> int:
        self.looks += 1
        return self.looks * 10_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)  # noqa: FBT003 - the standard library's signature
    with ours, theirs:
        yield ours, theirs


def test_it_reads_to_the_bodys_end_and_leaves_what_follows(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"b" * 3000 + b"next")
    body = Body(3000)
    BurstReader(SystemClock(), usable_cpus=2).read(ours.fileno(), body, expected=False)
    assert not body.wants_body
    assert ours.recv(100) == b"next"


def test_a_burst_is_followed_while_another_cpu_sends_it(pair: tuple[socket.socket, socket.socket]) -> None:
    """More than the kernel's buffer holds: it can only come while it is read."""
    ours, theirs = pair
    size = 8 << 20
    sender = threading.Thread(target=theirs.sendall, args=(bytes(size),))
    sender.start()
    body = Body(size)
    reads = 0
    while body.wants_body and reads < 10_000:
        BurstReader(SystemClock(), usable_cpus=2).read(ours.fileno(), body, expected=True)
        reads += 1
    sender.join(10)
    assert body.at == size


@pytest.mark.parametrize(
    ("sent", "expected", "cpus", "lingers"),
    [
        (0, False, 2, False),
        (0, True, 2, True),
        (0, True, 1, False),
        (100, False, 2, False),
        (BURST_BYTES, False, 2, True),
        (BURST_BYTES, False, 1, False),
    ],
)
def test_only_what_comes_quickly_is_waited_for_and_not_for_long(
    pair: tuple[socket.socket, socket.socket], sent: int, *, expected: bool, cpus: int, lingers: bool
) -> None:
    """A client that sends byte by byte costs no time; nobody waits on the only CPU."""
    ours, theirs = pair
    theirs.sendall(bytes(sent))
    clock = CountingClock()
    body = Body(BURST_BYTES + 1)
    BurstReader(clock, usable_cpus=cpus).read(ours.fileno(), body, expected=expected)
    assert body.at == sent
    most = LINGER_NS // 10_000
    assert (clock.looks > 4) == lingers
    assert clock.looks <= most + 4


def test_the_end_of_a_connection_is_left_to_the_event_loop(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    body = Body(10)
    BurstReader(SystemClock(), usable_cpus=2).read(ours.fileno(), body, expected=True)
    assert body.wants_body
    assert ours.recv(1) == b""
