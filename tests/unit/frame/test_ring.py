"""The frame ring: newest wins or lossless, leases, crashed readers, and headers that lie."""

from __future__ import annotations

import mmap
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from vedette.clock import ManualClock, SystemClock
from vedette.errors import BadInputError, FrameError, UnavailableError
from vedette.frame import layout
from vedette.frame.descriptor import FORMAT_BYTES, MAX_FILE_BYTES, decode_format, encode_format
from vedette.frame.layout import RingGeometry, parse_header
from vedette.frame.lifeline import HeldFrame, Pulse
from vedette.frame.producer import RingProducer
from vedette.frame.reader import RingReader
from vedette.frame.ring import Ring, RingHandles, available_bytes, create_ring
from vedette.wire.causes import DropCause
from vedette.wire.pixels import FrameFormat, PixelFormat, describe, tensor_format

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAY = describe(16, 4, PixelFormat.GRAY8)


def make_ring(*, slots: int = 4, newest: bool = True, slot_bytes: int = 64) -> Ring:
    return Ring(create_ring(RingGeometry(slots, slot_bytes, newest), name="test"))


@pytest.fixture
def newest() -> Iterator[Ring]:
    ring = make_ring(newest=True)
    yield ring
    ring.close()
    ring.handles.close()


@pytest.fixture
def lossless() -> Iterator[Ring]:
    ring = make_ring(newest=False)
    yield ring
    ring.close()
    ring.handles.close()


def publish(producer: RingProducer, value: int, captured_ns: int = 7) -> int:
    memory = producer.try_acquire(GRAY)
    assert memory is not None
    memory[:] = bytes([value]) * len(memory)
    return producer.publish(captured_ns)


def test_a_frame_comes_out_as_it_went_in(newest: Ring) -> None:
    """Pixels, format, sequence number and both timestamps survive the ring."""
    clock = ManualClock(1000)
    producer, reader = RingProducer(newest, clock), RingReader(newest, 0)
    seq = publish(producer, 9, captured_ns=400)
    lease = reader.take()
    assert lease is not None
    assert (lease.seq, lease.captured_ns, lease.published_ns) == (seq, 400, 1000)
    assert lease.frame_format == GRAY
    assert bytes(lease.pixels[:64]) == b"\t" * 64


def test_case_15_a_slow_reader_gets_the_newest_frame(newest: Ring) -> None:
    """Casebook 15: the age of a frame is bounded, and the gap in numbers tells what was superseded."""
    producer, reader = RingProducer(newest, SystemClock()), RingReader(newest, 0)
    for value in range(1, 26):
        publish(producer, value)
    lease = reader.take()
    assert lease is not None
    assert lease.seq == 25
    assert lease.pixels[0] == 25
    assert reader.take() is None


def test_the_producer_never_touches_a_leased_slot(newest: Ring) -> None:
    """However many frames follow, a frame in a reader's hand does not change under it."""
    producer, live, shadow = RingProducer(newest, SystemClock()), RingReader(newest, 0), RingReader(newest, 1)
    publish(producer, 1)
    held, shadowed = live.take(), shadow.take()
    assert held is not None
    assert shadowed is not None
    for value in range(2, 60):
        publish(producer, value)
    assert held.pixels[0] == 1
    live.release()
    assert shadowed.pixels[0] == 1


def test_lossless_makes_the_producer_wait(lossless: Ring) -> None:
    """No frame is superseded: the producer gets no slot until one was given back."""
    producer, reader = RingProducer(lossless, SystemClock()), RingReader(lossless, 0)
    for value in range(1, 5):
        publish(producer, value)
    assert producer.try_acquire(GRAY) is None
    first = reader.take()
    assert first is not None
    assert first.seq == 1
    assert producer.try_acquire(GRAY) is None, "the slot is still leased"
    reader.release()
    publish(producer, 5)
    seen = []
    while (lease := reader.take()) is not None:
        seen.append((lease.seq, lease.pixels[0]))
        reader.release()
    assert seen == [(2, 2), (3, 3), (4, 4), (5, 5)]


def test_a_waiting_producer_is_woken_by_a_release(lossless: Ring) -> None:
    """The wait for space ends with the doorbell, long before its time-out."""
    producer, reader = RingProducer(lossless, SystemClock()), RingReader(lossless, 0)
    for value in range(1, 5):
        publish(producer, value)

    def read_one() -> None:
        assert reader.take() is not None
        reader.release()

    thread = threading.Thread(target=read_one)
    thread.start()
    while producer.try_acquire(GRAY) is None:
        producer.wait_for_space(20.0)
    thread.join()


def test_what_a_dead_reader_held_is_taken_back(lossless: Ring) -> None:
    """A worker that was killed with a frame in hand does not stop the camera for ever."""
    producer = RingProducer(lossless, SystemClock())
    doomed = RingReader(lossless, 0)
    for value in range(1, 5):
        publish(producer, value)
    assert doomed.take() is not None
    lossless.revoke(0)
    publish(producer, 5)
    heir = RingReader(lossless, 0)
    lease = heir.take()
    assert lease is not None
    assert lease.seq == 2, "the frame in the dead reader's hand is not served twice"


def test_a_larger_ring_goes_on_counting() -> None:
    """Sequence numbers and drop counts continue when a camera's pictures outgrow their ring."""
    small, large = make_ring(), make_ring(slot_bytes=4096)
    producer = RingProducer(small, SystemClock())
    for value in range(1, 4):
        publish(producer, value)
    producer.count_drop(DropCause.DAMAGED, 2)
    large.resume_from(small)
    assert publish(RingProducer(large, SystemClock()), 4) == 4
    assert large.source_drops()[DropCause.DAMAGED] == 2
    for ring in (small, large):
        ring.close()
        ring.handles.close()


def test_too_large_a_ring_names_the_bytes_it_needs() -> None:
    """Memory that is not there is refused with the figure, not found out later by a crash."""
    geometry = RingGeometry(4, 1 << 20, newest_wins=True)
    with pytest.raises(UnavailableError, match=r"4,202,496 bytes are needed \(4 slots of 1,048,576\)"):
        create_ring(geometry, name="huge", available=4_000_000)
    assert available_bytes() > 0


def test_unsealed_memory_is_refused() -> None:
    """A peer that could shrink the memory could kill us with SIGBUS."""
    memory = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 1 << 16)
    fds = [memory, *(os.eventfd(0) for _ in range(1 + layout.SEATS))]
    handles = RingHandles(fds)
    with pytest.raises(BadInputError, match="not sealed"):
        Ring(handles)
    handles.close()


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 2**64 - 1)), st.integers(0, 1 << 20))
def test_a_header_that_lies_is_refused(lies: dict[int, int], memory_bytes: int) -> None:
    """Whatever stands in the header: either it describes memory that is there, or it is refused."""
    with mmap.mmap(-1, layout.HEADER_BYTES) as memory:
        words = memoryview(memory).cast("Q")
        words[layout.W_MAGIC], words[layout.W_VERSION] = layout.MAGIC, layout.VERSION
        words[layout.W_SLOTS], words[layout.W_SLOT_BYTES] = 4, 1000
        words[layout.W_MODE] = 1
        words[layout.W_TOTAL_BYTES] = RingGeometry(4, 1000, newest_wins=True).total_bytes
        for word, value in lies.items():
            words[word] = value
        try:
            geometry = parse_header(words, memory_bytes)
        except BadInputError:
            return
        finally:
            words.release()
        assert geometry.total_bytes <= memory_bytes


@given(st.binary(min_size=FORMAT_BYTES, max_size=FORMAT_BYTES), st.integers(1, 1 << 24))
def test_a_descriptor_never_points_outside_its_slot(packed: bytes, slot_bytes: int) -> None:
    """Random bytes as a descriptor: refused, or a format that fits."""
    try:
        frame_format = decode_format(packed, slot_bytes)
    except FrameError:
        return
    assert frame_format.frame_bytes <= slot_bytes


@given(
    width=st.integers(1, 5000),
    height=st.integers(1, 5000),
    pixel=st.sampled_from(list(PixelFormat)),
    orientation=st.integers(1, 8),
)
def test_formats_survive_the_descriptor(
    width: int, height: int, pixel: PixelFormat, orientation: int
) -> None:
    """Encoding and decoding a format are inverse."""
    frame_format = describe(width, height, pixel, orientation=orientation)
    assert decode_format(encode_format(frame_format), frame_format.frame_bytes) == frame_format


@given(size_bytes=st.integers(1, (1 << 32) - 1))
def test_a_tensor_survives_the_descriptor(size_bytes: int) -> None:
    """An input tensor is told from a picture of the same bytes."""
    frame_format = tensor_format(size_bytes)
    assert frame_format.frame_bytes == size_bytes
    assert decode_format(encode_format(frame_format), size_bytes) == frame_format
    assert frame_format != describe(size_bytes, 1, PixelFormat.GRAY8)


class RingModel(RuleBasedStateMachine):
    """Producer and two readers in any order: no frame is torn, order holds, lossless loses nothing."""

    newest_wins = True

    def __init__(self) -> None:
        super().__init__()
        self.ring = make_ring(newest=self.newest_wins)
        self.producer = RingProducer(self.ring, ManualClock())
        self.readers = [RingReader(self.ring, 0), RingReader(self.ring, 1)]
        self.held: list[tuple[int, int, memoryview] | None] = [None, None]
        self.last = [0, 0]
        self.published = 0

    @rule()
    def produce(self) -> None:
        memory = self.producer.try_acquire(GRAY)
        if memory is None:
            assert not self.newest_wins, "newest wins never waits"
            return
        self.published += 1
        memory[:] = bytes([self.published % 251]) * len(memory)
        assert self.producer.publish(0) == self.published

    @rule(seat=st.integers(0, 1))
    def take(self, seat: int) -> None:
        if self.held[seat] is not None or (seat == 1 and not self.newest_wins):
            return
        lease = self.readers[seat].take()
        if lease is None:
            assert self.last[seat] == self.published
            return
        expected = self.published if self.newest_wins else self.last[seat] + 1
        assert lease.seq == expected
        self.last[seat] = lease.seq
        self.held[seat] = (lease.seq, lease.slot, lease.pixels)

    @precondition(lambda self: any(self.held))
    @rule(seat=st.integers(0, 1))
    def release(self, seat: int) -> None:
        if self.held[seat] is not None:
            self.readers[seat].release()
            self.held[seat] = None

    @invariant()
    def held_frames_are_whole(self) -> None:
        for held in self.held:
            if held is not None:
                seq, _, pixels = held
                assert bytes(pixels[:64]) == bytes([seq % 251]) * 64

    def teardown(self) -> None:
        self.ring.close()
        self.ring.handles.close()


class LosslessModel(RingModel):
    newest_wins = False


TestNewestWins = RingModel.TestCase
TestLossless = LosslessModel.TestCase


def test_two_processes_share_a_ring_without_torn_frames() -> None:
    """A producer at full speed and a reader in another process: every frame that is read is whole."""
    ring = make_ring(newest=True, slot_bytes=1 << 16)
    picture = describe(256, 256, PixelFormat.GRAY8)
    pid = os.fork()
    if pid == 0:
        os._exit(_count_torn_frames(ring))
    producer = RingProducer(ring, SystemClock())
    try:
        for value in range(3000):
            memory = producer.try_acquire(picture)
            assert memory is not None
            memory[:] = bytes([value % 251]) * len(memory)
            producer.publish(0)
    finally:
        producer.end()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    ring.close()
    ring.handles.close()


def _count_torn_frames(ring: Ring) -> int:
    reader = RingReader(ring, 0)
    torn = seen = 0
    while not reader.drained:
        lease = reader.take()
        if lease is None:
            continue
        frame = bytes(lease.pixels)
        torn += frame != frame[:1] * len(frame)
        seen += 1
        reader.release()
    return 1 if torn or not seen else 0


def test_the_format_of_a_frame_may_change_from_slot_to_slot(newest: Ring) -> None:
    """A stream may change its size as long as it fits; each frame carries its own format."""
    producer, reader = RingProducer(newest, SystemClock()), RingReader(newest, 0)
    formats: list[FrameFormat] = [GRAY, describe(4, 4, PixelFormat.BGR24), describe(5, 3, PixelFormat.NV12)]
    for frame_format in formats * 5:
        assert producer.try_acquire(frame_format) is not None
        producer.publish(0)
        lease = reader.take()
        assert lease is not None
        assert lease.frame_format == frame_format
        reader.release()


@given(names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=500), max_size=12))
def test_a_file_s_name_travels_with_its_frame_and_never_with_another(names: list[str]) -> None:
    """Whatever the slots held before; of a name that is too long its end, marked as cut."""
    ring = make_ring(newest=False)
    try:
        producer, reader = RingProducer(ring, SystemClock()), RingReader(ring, 0)
        for name in names:
            assert producer.try_acquire(GRAY) is not None
            producer.publish(7, name)
            lease = reader.take()
            assert lease is not None
            assert lease.captured_ns == 7
            if len(name.encode()) <= MAX_FILE_BYTES:
                assert lease.file == name
            else:
                assert lease.file[0] == "…"
                assert name.endswith(lease.file[1:])
                assert len(lease.file.encode()) > MAX_FILE_BYTES - 4
            reader.release()
    finally:
        ring.close()
        ring.handles.close()


@given(held=st.lists(st.tuples(st.integers(1, 2**63), st.text(st.characters(exclude_categories=["Cs"])))))
def test_what_a_dead_worker_had_in_hand_can_be_read(held: list[tuple[int, str]]) -> None:
    """The last frame noted, with or without a file, whatever was noted before."""
    pulse = Pulse.create()
    try:
        assert pulse.held == HeldFrame(0, 0, "")
        for seq, (captured_ns, name) in enumerate(held, start=1):
            pulse.hold(seq, captured_ns, name)
            assert pulse.held == HeldFrame(seq, captured_ns, name)
    finally:
        pulse.close()


def test_frames_that_nobody_will_take_are_passed_over(lossless: Ring) -> None:
    """No reader is there: their slots are free again, and the next reader begins after them."""
    producer = RingProducer(lossless, ManualClock())
    for value in range(4):
        publish(producer, value)
    assert producer.try_acquire(GRAY) is None
    lossless.pass_over(4)
    assert os.eventfd_read(lossless.handles.space) == 1
    assert publish(producer, 9) == 5
    lease = RingReader(lossless, 0).take()
    assert lease is not None
    assert (lease.seq, bytes(lease.pixels[:1])) == (5, b"\x09")


def test_several_frames_may_be_filled_at_once_and_are_taken_in_the_order_they_are_published(
    lossless: Ring,
) -> None:
    """Loans beside one another and beside a frame that is written at once; one never comes to an end."""
    producer = RingProducer(lossless, ManualClock())
    slow, lost, quick = producer.lend(), producer.lend(), producer.lend()
    assert slow is not None
    assert lost is not None
    assert quick is not None
    assert len({slow.slot, lost.slot, quick.slot}) == 3
    assert producer.lent == 3
    assert publish(producer, 1) == 1
    assert producer.try_acquire(GRAY) is None, "all four are in use"
    quick.memory[:64] = b"\x02" * 64
    assert producer.publish_loan(quick, GRAY, 7) == 2
    producer.take_back(lost)
    slow.memory[:64] = b"\x03" * 64
    assert producer.publish_loan(slow, GRAY, 7) == 3
    assert publish(producer, 4) == 4, "in the slot that was taken back"
    reader = RingReader(lossless, 0)
    taken = []
    while (lease := reader.take()) is not None:
        taken.append((lease.seq, lease.pixels[0], lease.frame_format))
        reader.release()
    assert taken == [(seq, seq, GRAY) for seq in (1, 2, 3, 4)]
    assert producer.lent == 0
