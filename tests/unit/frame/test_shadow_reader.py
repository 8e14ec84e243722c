"""The shadow's reader: whole frames or none, and the producer never waits for it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, NoReturn

import pytest

from vedette.clock import ManualClock, SystemClock
from vedette.errors import FrameError, InternalError
from vedette.frame.descriptor import FORMAT_BYTES, FORMAT_OFFSET
from vedette.frame.layout import RingGeometry
from vedette.frame.producer import RingProducer
from vedette.frame.reader import RingReader
from vedette.frame.ring import Ring, create_ring
from vedette.frame.shadow_reader import ShadowReader
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAY = describe(64, 64, PixelFormat.GRAY8)


@pytest.fixture(params=[True, False], ids=["newest", "lossless"])
def ring(request: pytest.FixtureRequest) -> Iterator[Ring]:
    """The smallest ring there is: two slots."""
    made = Ring(create_ring(RingGeometry(2, GRAY.frame_bytes, newest_wins=request.param), name="test"))
    yield made
    made.close()
    made.handles.close()


def publish(producer: RingProducer, value: int) -> bool:
    memory = producer.try_acquire(GRAY)
    if memory is None:
        return False
    memory[:] = bytes([value % 256]) * len(memory)
    producer.publish(value)
    return True


def test_it_takes_the_newest_frame_and_leaves_the_ring_as_it_was(ring: Ring) -> None:
    """No lease, no cursor of the live seat; the frame stays valid after its slot is used again."""
    producer, live = RingProducer(ring, SystemClock()), RingReader(ring, 0)
    shadow = ShadowReader(ring)
    assert shadow.take() is None
    publish(producer, 1)
    lease = shadow.take()
    assert lease is not None
    assert (lease.seq, lease.captured_ns, lease.frame_format) == (1, 1, GRAY)
    assert ring.taken == 0
    for value in range(2, 6):
        assert live.take() is not None
        live.release()
        assert publish(producer, value)
    assert set(bytes(lease.pixels[: GRAY.frame_bytes])) == {1}
    newest = shadow.take()
    assert newest is not None
    assert newest.seq == 5
    assert shadow.cursor == 5
    assert shadow.take() is None


def test_every_third_frame(ring: Ring) -> None:
    """The first at once, then one when three more have come."""
    producer, live = RingProducer(ring, SystemClock()), RingReader(ring, 0)
    shadow = ShadowReader(ring, every=3)
    taken = []
    for value in range(1, 11):
        assert publish(producer, value)
        assert live.take() is not None
        live.release()
        due = shadow.peek_captured_ns()
        lease = shadow.take()
        assert due == (None if lease is None else lease.captured_ns)
        taken += [] if lease is None else [lease.seq]
    assert taken == [1, 4, 7, 10]


def test_it_holds_back_while_a_frame_is_fresh_but_not_for_ever(ring: Ring) -> None:
    """Within 2 ms of its arrival a live frame is the live reader's; four frames later patience ends."""
    clock = ManualClock(10_000_000)
    producer, live = RingProducer(ring, clock), RingReader(ring, 0)
    shadow = ShadowReader(ring, hold_ns=2_000_000)
    assert not shadow.fresh(clock.monotonic_ns())
    publish(producer, 1)
    assert shadow.fresh(clock.monotonic_ns()) is ring.geometry.newest_wins
    assert not shadow.fresh(clock.monotonic_ns() + 2_000_000)
    for value in range(2, 6):
        assert not shadow.overdue
        assert live.take() is not None
        live.release()
        publish(producer, value)
    assert shadow.overdue


def test_a_frame_is_never_torn_while_a_producer_rushes_past(ring: Ring) -> None:
    """Two slots, one writer at full speed, one reader: every copy is of one value, numbers only grow."""
    shadow = ShadowReader(ring)
    child = os.fork()  # a process of its own, as in life
    if child == 0:
        rush(ring)
    seqs: list[int] = []
    try:
        while len(seqs) < 300:
            lease = shadow.take()
            if lease is not None:
                seqs.append(lease.seq)
                assert set(bytes(lease.pixels[: GRAY.frame_bytes])) == {lease.seq % 256}
                assert lease.captured_ns == lease.seq
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert seqs == sorted(set(seqs))


def rush(ring: Ring) -> NoReturn:
    """Write and take frames as fast as it goes, for ever."""
    producer, live = RingProducer(ring, SystemClock()), RingReader(ring, 0)
    value = 0
    while True:
        value += publish(producer, value + 1)
        if live.take() is not None:
            live.release()


def test_a_slot_that_is_taken_away_during_the_copy_is_thrown_away(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequence word changed between the first look and the last."""
    producer = RingProducer(ring, SystemClock())
    shadow = ShadowReader(ring)
    publish(producer, 1)
    looks = iter([True, True, False])
    monkeypatch.setattr(ShadowReader, "_holds", lambda *_: next(looks))
    assert shadow.take() is None


def test_a_damaged_descriptor_is_refused_and_counts_as_taken(ring: Ring) -> None:
    """Nothing outside the slot is read."""
    producer = RingProducer(ring, SystemClock())
    shadow = ShadowReader(ring)
    publish(producer, 1)
    for descriptor in ring.descriptors:
        descriptor[FORMAT_OFFSET : FORMAT_OFFSET + FORMAT_BYTES] = b"\xff" * FORMAT_BYTES
    with pytest.raises(FrameError):
        shadow.take()
    assert (shadow.cursor, shadow.take()) == (1, None)


def test_every_none_is_our_bug(ring: Ring) -> None:
    """A stride of 0."""
    with pytest.raises(InternalError):
        ShadowReader(ring, every=0)


def test_it_can_begin_with_the_frame_that_is_there(ring: Ring) -> None:
    """Who looks at a camera that has stopped sees its last frame; an empty ring has none."""
    assert ShadowReader(ring, present=True).take() is None
    producer = RingProducer(ring, SystemClock())
    publish(producer, 7)
    assert ShadowReader(ring).take() is None
    shadow = ShadowReader(ring, present=True)
    lease = shadow.take()
    assert lease is not None
    assert lease.captured_ns == 7
    assert shadow.take() is None
