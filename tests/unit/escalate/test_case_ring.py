"""From the worker to whoever asks the large model: nothing is waited for, nothing is mixed up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from vedette.clock import SystemClock
from vedette.engine.case_writer import CaseWriter, slot_bytes_for
from vedette.errors import BadInputError
from vedette.escalate.case_reader import CaseReader
from vedette.frame.layout import RingGeometry
from vedette.frame.producer import RingProducer
from vedette.frame.reader import RingReader
from vedette.frame.ring import Ring, create_ring
from vedette.gate.case import CASE_BYTES, Case, pack_case, unpack_case
from vedette.wire.escalation import Guarantee, Reason
from vedette.wire.messages import Detection, ModelRef, Result
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.frame.reader import Lease

FORMAT = describe(32, 16, PixelFormat.BGR24)
SLOTS = 4


def case(seq: int, **changes: object) -> Case:
    result = Result(1, "front", seq, 7, ModelRef("m", "1", "a"), "classify")
    plain = Case(
        reason=Reason.UNCERTAIN,
        result=result,
        score=0.5,
        uncertainty=0.5,
        inclusion=0.02,
        setting=3,
        guarantee=Guarantee.AGREEMENT,
        model_sha256="b" * 64,
        logits=bytes(40),
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.fixture
def ring() -> Iterator[Ring]:
    """The case ring."""
    made = Ring(
        create_ring(RingGeometry(SLOTS, slot_bytes_for(FORMAT.frame_bytes), newest_wins=False), name="c")
    )
    yield made
    made.close()
    made.handles.close()


@pytest.fixture
def camera() -> Iterator[Ring]:
    made = Ring(create_ring(RingGeometry(SLOTS, FORMAT.frame_bytes, newest_wins=True), name="front"))
    yield made
    made.close()
    made.handles.close()


class Camera:
    """Gives frames of one grey each."""

    def __init__(self, ring: Ring) -> None:
        self._producer = RingProducer(ring, SystemClock())
        self.reader = RingReader(ring, 0)

    def frame(self, grey: int) -> Lease:
        memory = self._producer.try_acquire(FORMAT)
        assert memory is not None
        memory[:] = bytes([grey]) * FORMAT.frame_bytes
        self._producer.publish(grey)
        lease = self.reader.take()
        assert lease is not None
        return lease


def test_each_case_comes_with_its_own_frame_in_order(ring: Ring, camera: Ring) -> None:
    writer, reader, front = CaseWriter(ring, SystemClock()), CaseReader(ring), Camera(camera)
    assert reader.take() is None
    assert reader.about_to_sleep()
    for seq in (1, 2, 3):
        assert writer.offer(front.frame(seq), case(seq))
        front.reader.release()
    assert os.eventfd_read(reader.doorbell) == 1
    for seq in (1, 2, 3):
        taken = reader.take()
        assert taken is not None
        assert (taken.case, taken.frame_format) == (case(seq), FORMAT)
        assert bytes(taken.pixels) == bytes([seq]) * FORMAT.frame_bytes
        reader.release()
    assert reader.take() is None


def test_when_every_slot_is_taken_the_frame_stays_and_nobody_waits(ring: Ring, camera: Ring) -> None:
    writer, reader, front = CaseWriter(ring, SystemClock()), CaseReader(ring), Camera(camera)
    lease = front.frame(9)
    taken = [writer.offer(lease, case(seq)) for seq in range(SLOTS + 2)]
    assert taken == [True] * SLOTS + [False] * 2
    assert reader.take() is not None
    reader.release()
    assert writer.offer(lease, case(99))


def test_a_frame_that_is_too_large_stays(camera: Ring) -> None:
    small = Ring(create_ring(RingGeometry(2, FORMAT.frame_bytes, newest_wins=False), name="small"))
    writer, front = CaseWriter(small, SystemClock()), Camera(camera)
    assert not writer.offer(front.frame(1), case(1))
    small.close()
    small.handles.close()


def test_boxes_beyond_all_measure_are_no_case() -> None:
    many = tuple(Detection("person" * 5, 0, 0.5, (0.0, 0.0, 1.0, 1.0)) for _ in range(3000))
    with pytest.raises(BadInputError, match="the room for one"):
        pack_case(case(1, candidates=many))
    most = tuple(Detection("person", 0, 0.123456, (10.25, 20.5, 300.75, 400.0)) for _ in range(300))
    assert len(pack_case(case(1, candidates=most, logits=bytes(4000)))) < CASE_BYTES


@pytest.mark.parametrize(
    "behind", [b"", b"\x05", b"\xff\xff\xff\xff123", b"\x03\x00\x00\x00abc", b"\x00\x00\x00\x00"]
)
def test_what_is_no_case_is_said(behind: bytes) -> None:
    with pytest.raises(BadInputError):
        unpack_case(memoryview(behind))


def test_a_slot_without_a_case_is_counted_and_passed(ring: Ring, camera: Ring) -> None:
    reader, front = CaseReader(ring), Camera(camera)
    producer = RingProducer(ring, SystemClock())
    memory = producer.try_acquire(FORMAT)
    assert memory is not None
    producer.publish(1)
    del memory
    assert reader.take() is None
    assert reader.damaged == 1
    writer = CaseWriter(ring, SystemClock())
    assert writer.offer(front.frame(5), case(5))
    found = reader.take()
    assert found is not None
    assert found.case.result.seq == 5
