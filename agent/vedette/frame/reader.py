"""The reading side of a frame ring."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.errors import BadInputError, InternalError
from vedette.frame import layout
from vedette.frame.descriptor import (
    FORMAT_BYTES,
    FORMAT_OFFSET,
    decode_format,
    read_captured_ns,
    read_stamp,
)
from vedette.frame.ring import fence

if TYPE_CHECKING:
    from vedette.frame.ring import Ring
    from vedette.wire.pixels import FrameFormat

MAX_REMEMBERED_FORMATS = 64


class FormatMemo:
    """Decoded formats of a ring: a camera has one or two, and decoding is not for every frame."""

    def __init__(self, slot_bytes: int) -> None:
        self._slot_bytes = slot_bytes
        self._formats: dict[bytes, FrameFormat] = {}

    def decode(self, descriptor: memoryview) -> FrameFormat:
        """The format in a slot's descriptor.

        Raises:
            FrameError: It is damaged.
        """
        packed = bytes(descriptor[FORMAT_OFFSET : FORMAT_OFFSET + FORMAT_BYTES])
        frame_format = self._formats.get(packed)
        if frame_format is None:
            if len(self._formats) > MAX_REMEMBERED_FORMATS:
                self._formats.clear()
            frame_format = self._formats[packed] = decode_format(packed, self._slot_bytes)
        return frame_format


@dataclass(slots=True)
class Lease:
    """A frame that a reader holds: pixels stay valid until `release`. Times are CLOCK_MONOTONIC.

    `file` names the picture file that the frame came from; it is empty for all others.
    """

    seq: int
    slot: int
    frame_format: FrameFormat
    pixels: memoryview
    captured_ns: int
    published_ns: int
    file: str = ""


class RingReader:
    """The reading side at one seat; the live seat moves the cursor, any other has its own.

    A lease keeps the producer off the slot. A shadow that must never do that reads by `ShadowReader`.
    """

    def __init__(self, ring: Ring, seat: int) -> None:
        self._ring = ring
        self._words = ring.words
        self._seat_word = layout.W_SEATS + seat * layout.SEAT_WORDS
        self._live = seat == ring.words[layout.W_LIVE_SEAT]
        self._cursor = ring.words[layout.W_TAKEN] if self._live else ring.words[layout.W_HEAD]
        self._formats = FormatMemo(ring.geometry.slot_bytes)
        self._newest = ring.geometry.newest_wins
        self.doorbell = ring.handles.doorbells[seat]
        self._words[self._seat_word + layout.SEAT_LEASE] = 0

    @property
    def cursor(self) -> int:
        """Sequence number of the frame taken last."""
        return self._cursor

    @property
    def pending(self) -> int:
        """Frames published and not taken yet."""
        return self._words[layout.W_HEAD] - self._cursor

    @property
    def drained(self) -> bool:
        """The producer ended and everything was taken."""
        return self._words[layout.W_ENDED] != 0 and self._words[layout.W_HEAD] == self._cursor

    def peek_captured_ns(self) -> int | None:
        """Arrival time of the frame that `take` would give now, or None."""
        words = self._words
        head = words[layout.W_HEAD]
        if head == self._cursor:
            return None
        seq = head if self._newest else self._cursor + 1
        slot = words[layout.W_QUEUE + seq % layout.QUEUE_LENGTH]
        if slot >= self._ring.geometry.slots:
            return None
        return read_captured_ns(self._ring.descriptors[slot])

    def take(self) -> Lease | None:
        """Lease the next frame (newest-wins: the newest), or None when there is none.

        Raises:
            FrameError: The descriptor is damaged; the frame counts as taken.
        """
        words = self._words
        for _ in range(64):
            head = words[layout.W_HEAD]
            if head == self._cursor:
                return None
            seq = head if self._newest else self._cursor + 1
            slot = words[layout.W_QUEUE + seq % layout.QUEUE_LENGTH]
            if slot >= self._ring.geometry.slots:
                raise InternalError(f"frame ring queue names slot {slot}")
            words[self._seat_word + layout.SEAT_LEASE] = slot + 1
            fence()
            if words[layout.W_SLOT_SEQ + slot] == seq:
                return self._leased(seq, slot)
            words[self._seat_word + layout.SEAT_LEASE] = 0
        return None  # the producer laps us without end: the doorbell will ring again

    def _leased(self, seq: int, slot: int) -> Lease:
        if self._live:
            self._words[layout.W_TAKEN] = seq
        self._cursor = seq
        descriptor = self._ring.descriptors[slot]
        captured_ns, published_ns, file = read_stamp(descriptor)
        try:
            frame_format = self._formats.decode(descriptor)
        except BadInputError:
            self.release()
            raise
        return Lease(seq, slot, frame_format, self._ring.slots[slot], captured_ns, published_ns, file)

    def release(self) -> None:
        """Give the leased slot back."""
        words = self._words
        words[self._seat_word + layout.SEAT_LEASE] = 0
        if self._live:
            words[layout.W_DONE] = self._cursor
        if not self._newest:
            fence()
            if words[layout.W_PRODUCER_WAITS]:
                words[layout.W_PRODUCER_WAITS] = 0
                os.eventfd_write(self._ring.handles.space, 1)

    def about_to_sleep(self) -> bool:
        """Ask for the doorbell; False when a frame came in meanwhile, so do not sleep.

        Whoever rings takes the request back. Watch the doorbell edge-triggered: then it need never be read.
        """
        self._words[self._seat_word + layout.SEAT_SLEEPS] = 1
        fence()
        return self._words[layout.W_HEAD] == self._cursor
