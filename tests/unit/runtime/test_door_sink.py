"""Outcomes on their way to the door: in order, in a bound, to those who asked and to nobody else."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from vedette.api.door_messages import DOOR, Answers, Seen, ToDoor
from vedette.clock import ManualClock
from vedette.frame.channel import MAX_MESSAGE_BYTES, Channel, PeerGoneError, channel_pair
from vedette.runtime.door_sink import MAX_SEEN, MAX_WAITING_BYTES, SEEN_EVERY_S, DoorSink
from vedette.wire.causes import DropCause
from vedette.wire.messages import Label, ModelRef, RawTensor, Result

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = ModelRef("m", "1", "ab" * 32)


class Line:
    """A sink, and the door's end of its channel."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sink = DoorSink(self.clock)
        self.door = self.connect(0)

    def connect(self, since_seq: int) -> Channel[ToDoor]:
        ours, theirs = channel_pair()
        self.sink.connect(Channel(ours, None), since_seq)
        return Channel(theirs, ToDoor)

    def heard(self) -> list[ToDoor]:
        found: list[ToDoor] = []
        with contextlib.suppress(PeerGoneError):
            while (received := self.door.receive()) is not None:
                found.append(received[0])
        return found

    def outcomes(self) -> list[Result]:
        return [
            result for message in self.heard() if isinstance(message, Answers) for result in message.results
        ]


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.sink.close()
    made.door.close()


def answer(seq: int, *, camera: str = DOOR, tensor_bytes: int = 0) -> Result:
    tensors = (RawTensor("t", (tensor_bytes,), "uint8", bytes(tensor_bytes)),)
    result = Result(1, camera, seq, 7, MODEL, "classify", top=(Label("cat", 0, 0.5),))
    if tensor_bytes:
        result = Result(1, camera, seq, 7, MODEL, "raw", tensors=tensors)
    return result


def test_answers_arrive_in_the_order_they_came(line: Line) -> None:
    """Each by itself, and said to be delivered."""
    assert all(line.sink.deliver(answer(seq)) for seq in (1, 2, 3))
    assert [result.seq for result in line.outcomes()] == [1, 2, 3]


def test_what_a_slow_door_does_not_take_waits_and_is_not_lost(line: Line) -> None:
    """The kernel's buffer is full: the rest goes when there is room, in order; nothing blocks."""
    size = MAX_MESSAGE_BYTES // 2
    assert all(line.sink.deliver(answer(seq, tensor_bytes=size)) for seq in range(1, 21))
    assert line.sink.blocked_fd >= 0
    seqs: list[int] = []
    while line.sink.blocked_fd >= 0:
        seqs += [result.seq for result in line.outcomes()]
        line.sink.flush()
    seqs += [result.seq for result in line.outcomes()]
    assert seqs == list(range(1, 21))


def test_a_door_that_takes_nothing_costs_a_bounded_memory(line: Line) -> None:
    """Beyond the bound an answer is said to be undelivered, which the ledger counts."""
    size = MAX_MESSAGE_BYTES - 1000
    told = [line.sink.deliver(answer(seq, tensor_bytes=size)) for seq in range(1, 200)]
    assert False in told
    kept = told.count(True)
    assert kept * size < MAX_WAITING_BYTES + 10 * MAX_MESSAGE_BYTES
    assert told == [True] * kept + [False] * (len(told) - kept)


def test_a_dead_doors_answers_reach_nobody_and_the_next_one_gets_only_its_own(line: Line) -> None:
    """Frames that the first one put into the ring were answered after its end."""
    line.door.close()
    assert not line.sink.deliver(answer(1))
    assert not line.sink.deliver(answer(2))
    line.door = line.connect(since_seq=4)
    assert [line.sink.deliver(answer(seq)) for seq in (3, 4, 5)] == [False, False, True]
    assert [result.seq for result in line.outcomes()] == [5]


def test_frames_that_were_dropped_fail_with_the_ledgers_word(line: Line) -> None:
    """A caller waits for each of them."""
    line.sink.dropped(4, 6, DropCause.NO_WORKER)
    failed = line.outcomes()
    assert [(result.seq, result.camera) for result in failed] == [(4, DOOR), (5, DOOR), (6, DOOR)]
    assert all(result.failed and result.failed.cause == "no_worker" for result in failed)


def test_what_other_cameras_saw_is_told_now_and_then_without_tensors(line: Line) -> None:
    """Several in one message, the next not before its time; the door's own answers are not shown."""
    for seq in (1, 2):
        line.sink.add(answer(seq, camera="front", tensor_bytes=100_000))
        line.sink.add(answer(seq))
    line.clock.advance_s(SEEN_EVERY_S)
    line.sink.show()
    line.sink.add(answer(3, camera="front"))
    line.sink.show()
    (first,) = line.heard()
    assert isinstance(first, Seen)
    assert [(result.camera, result.seq) for result in first.results] == [("front", 1), ("front", 2)]
    assert not any(result.tensors for result in first.results)
    line.clock.advance_s(SEEN_EVERY_S)
    line.sink.show()
    (second,) = line.heard()
    assert isinstance(second, Seen)
    assert [result.seq for result in second.results] == [3]


def test_of_too_much_to_show_the_newest_is_shown(line: Line) -> None:
    """Bounded in number and in bytes; a full buffer drops them, and holds up no answer."""
    long = "x" * 2000
    for seq in range(1, MAX_SEEN + 50):
        line.sink.add(Result(1, "front", seq, 7, MODEL, "classify", top=(Label(long, 0, 0.5),)))
    line.clock.advance_s(SEEN_EVERY_S)
    line.sink.show()
    (message,) = line.heard()
    assert isinstance(message, Seen)
    assert message.results[-1].seq == MAX_SEEN + 49
    assert 10 < len(message.results) < MAX_SEEN
