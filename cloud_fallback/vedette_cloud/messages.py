"""What the server and a process that runs the model say to each other. Pure.

Over a stream: twelve bytes, the sizes of a head and of the bytes after it; the head is one of the structs
below in MessagePack, the bytes after it are the frames of `Ask` one after the other.
"""

from __future__ import annotations

import struct

import msgspec

from vedette.api.messages import ModelDescription
from vedette.engine.messages import WorkerSpec
from vedette.errors import InternalError
from vedette.wire.messages import Label, Result
from vedette.wire.pixels import FrameFormat

_SIZES = struct.Struct("<IQ")
SIZES_BYTES = _SIZES.size
MAX_HEAD_BYTES = 64 << 20
MAX_FRAMES_BYTES = 8 << 30


class ChildSpec(msgspec.Struct, frozen=True):
    """What a process loads: a model, for batches of at most `batch`."""

    worker: WorkerSpec
    batch: int = 1


class Question(msgspec.Struct, frozen=True):
    """A frame to be answered; `ranking`: all classes are wanted, not only the first few.

    `captured_ns` and `queued_ns`, on CLOCK_MONOTONIC: the request's last byte was here; its frame was ready.
    """

    format: FrameFormat
    captured_ns: int
    queued_ns: int
    ranking: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What became of a frame; `ranking` has every class, surest first, where that was asked for."""

    result: Result
    ranking: tuple[Label, ...] = ()


class Progress(msgspec.Struct, frozen=True, tag=True):
    """One real step of loading."""

    line: str


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """Ready. `sizes` are those of batches that run as one; `one_by_one` says why others are not."""

    description: ModelDescription
    sizes: tuple[int, ...]
    one_by_one: str = ""


class Fatal(msgspec.Struct, frozen=True, tag=True):
    """This model cannot be served; trying the same again is useless."""

    exit_code: int
    cause: str
    cure: str | None = None


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Answer these, as one batch."""

    questions: tuple[Question, ...]


class Answered(msgspec.Struct, frozen=True, tag=True):
    """One for each question, in their order; `run_ns` is what all of it took."""

    answers: tuple[Answer, ...]
    run_ns: int


ToChild = Ask
FromChild = Progress | Loaded | Fatal | Answered

_ENCODER = msgspec.msgpack.Encoder()
_FROM_CHILD = msgspec.msgpack.Decoder(FromChild)
_TO_CHILD = msgspec.msgpack.Decoder(ToChild)


def pack(message: FromChild | ToChild, frames_bytes: int = 0) -> bytes:
    """Sizes and head; the frames follow it."""
    head = _ENCODER.encode(message)
    return _SIZES.pack(len(head), frames_bytes) + head


def sizes_of(packed: bytes) -> tuple[int, int]:
    """Bytes of the head, and of the frames after it.

    Raises:
        InternalError: No sizes that we ever send.
    """
    head_bytes, frames_bytes = _SIZES.unpack(packed)
    if head_bytes > MAX_HEAD_BYTES or frames_bytes > MAX_FRAMES_BYTES:
        raise InternalError(f"a message of {head_bytes} and {frames_bytes} bytes between server and model")
    return head_bytes, frames_bytes


def from_child(head: bytes) -> FromChild:
    """What a child says.

    Raises:
        InternalError: None of its messages.
    """
    try:
        return _FROM_CHILD.decode(head)
    except msgspec.DecodeError as error:
        raise InternalError(f"the model's process says what is no message: {error}") from error


def to_child(head: bytes) -> ToChild:
    """What the server says.

    Raises:
        InternalError: None of its messages.
    """
    try:
        return _TO_CHILD.decode(head)
    except msgspec.DecodeError as error:
        raise InternalError(f"the server says what is no message: {error}") from error
