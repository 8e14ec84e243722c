"""The writing side of a frame ring."""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import InternalError
from vedette.frame import layout
from vedette.frame.descriptor import FORMAT_BYTES, FORMAT_OFFSET, encode_format, write_stamp
from vedette.frame.ring import fence
from vedette.wire.causes import SOURCE_DROPS

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.frame.ring import Ring
    from vedette.wire.causes import DropCause
    from vedette.wire.pixels import FrameFormat

MAX_REMEMBERED_FORMATS = 64


class SlotLoan(NamedTuple):
    """A slot that is filled bit by bit; `memory` is all of it."""

    slot: int
    memory: memoryview


class RingProducer:
    """The writing side; one per ring, one thread."""

    def __init__(self, ring: Ring, clock: Clock) -> None:
        self._ring = ring
        self._words = words = ring.words
        seats = slice(layout.W_SEATS, layout.W_SEATS + layout.SEATS * layout.SEAT_WORDS)
        self._sleeping = words[seats][layout.SEAT_SLEEPS :: layout.SEAT_WORDS]
        self._leases = words[seats][layout.SEAT_LEASE :: layout.SEAT_WORDS]
        self._slot_seqs = words[layout.W_SLOT_SEQ : layout.W_SLOT_SEQ + ring.geometry.slots]
        self._newest_wins = ring.geometry.newest_wins
        self._clock = clock
        self._slot = -1
        self._lent: set[int] = set()
        self._encoded: dict[FrameFormat, bytes] = {}
        self._written_format: list[FrameFormat | None] = [None] * ring.geometry.slots
        self._words[layout.W_ENDED] = 0
        self.pulse()

    def pulse(self) -> None:
        """Show the daemon that the producer is alive."""
        self._words[layout.W_PRODUCER_PULSE_NS] = self._clock.monotonic_ns()

    def fits(self, frame_bytes: int) -> bool:
        """Whether a frame of that many bytes has room in a slot."""
        return frame_bytes <= self._ring.geometry.slot_bytes

    def try_acquire(self, frame_format: FrameFormat) -> memoryview | None:
        """Lend a slot for the next frame, or None while all are in use.

        Raises:
            InternalError: The frame is larger than a slot; ask `fits` first.
        """
        frame_bytes = frame_format.frame_bytes
        if not self.fits(frame_bytes):
            raise InternalError(f"a frame of {frame_bytes} bytes does not fit the ring's slots")
        if self._slot < 0:
            slot = self._free_slot()
            if slot < 0:
                return None
            self._slot = slot
        self._describe(self._slot, frame_format)
        return self._ring.slots[self._slot][:frame_bytes]

    def _describe(self, slot: int, frame_format: FrameFormat) -> None:
        if self._written_format[slot] == frame_format:
            return
        encoded = self._encoded.get(frame_format)
        if encoded is None:
            if len(self._encoded) >= MAX_REMEMBERED_FORMATS:  # uploads may have any size
                self._encoded.clear()
            encoded = self._encoded[frame_format] = encode_format(frame_format)
        descriptor = self._ring.descriptors[slot]
        descriptor[FORMAT_OFFSET : FORMAT_OFFSET + FORMAT_BYTES] = encoded
        self._written_format[slot] = frame_format

    # Several frames under way -----------------------------------------------------------------------------

    @property
    def lent(self) -> int:
        """How many slots are being filled on loan."""
        return len(self._lent)

    def lend(self) -> SlotLoan | None:
        """Lend a slot beside any other, or None while all are in use; it is published or taken back."""
        slot = self._free_slot()
        if slot < 0:
            return None
        self._lent.add(slot)
        return SlotLoan(slot, self._ring.slots[slot])

    def publish_loan(self, loan: SlotLoan, frame_format: FrameFormat, captured_ns: int) -> int:
        """Make what was filled in the newest frame; its sequence number, as for `publish`."""
        self._lent.remove(loan.slot)
        self._describe(loan.slot, frame_format)
        return self._publish(loan.slot, captured_ns, "")

    def take_back(self, loan: SlotLoan) -> None:
        """The frame did not come to an end."""
        self._lent.remove(loan.slot)

    def wait_for_space(self, timeout_s: float) -> None:
        """Sleep until a reader gave a slot back, or the time is over."""
        try:
            if self.about_to_wait():
                select.select([self._ring.handles.space], [], [], timeout_s)
        finally:
            self.waited()

    def about_to_wait(self) -> bool:
        """Ask to be told on `handles.space` when a slot comes free; False when one is, so do not wait."""
        self._words[layout.W_PRODUCER_WAITS] = 1
        fence()
        return self._find_slot() < 0

    def waited(self) -> None:
        """The waiting that `about_to_wait` began is over, whatever ended it."""
        self._words[layout.W_PRODUCER_WAITS] = 0
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._ring.handles.space)
        self.pulse()

    def publish(self, captured_ns: int, file: str = "") -> int:
        """Make the acquired frame the newest one and wake readers that sleep.

        Args:
            captured_ns: CLOCK_MONOTONIC at its arrival.
            file: The picture file that it came from, if any.

        Returns:
            Its sequence number.
        """
        slot = self._slot
        if slot < 0:
            raise InternalError("publish without acquire")
        self._slot = -1
        return self._publish(slot, captured_ns, file)

    def _publish(self, slot: int, captured_ns: int, file: str) -> int:
        words = self._words
        seq = words[layout.W_HEAD] + 1
        now_ns = self._clock.monotonic_ns()
        write_stamp(self._ring.descriptors[slot], captured_ns, now_ns, file)
        words[layout.W_SLOT_SEQ + slot] = seq
        words[layout.W_QUEUE + seq % layout.QUEUE_LENGTH] = slot
        words[layout.W_PRODUCER_PULSE_NS] = now_ns
        fence()
        words[layout.W_HEAD] = seq
        fence()
        self._ring_doorbells()
        return seq

    def count_drop(self, cause: DropCause, count: int = 1) -> None:
        """Count frames that the source had and does not publish."""
        self._words[layout.W_DROPS + SOURCE_DROPS.index(cause)] += count
        self.pulse()

    def end(self) -> None:
        """Say that no frame will follow."""
        self._words[layout.W_ENDED] = 1
        fence()
        self._ring_doorbells()

    def _ring_doorbells(self) -> None:
        for seat, sleeps in enumerate(self._sleeping.tolist()):
            if sleeps:
                self._sleeping[seat] = 0
                os.eventfd_write(self._ring.handles.doorbells[seat], 1)

    def _find_slot(self) -> int:
        """A slot that looks free, oldest frame first, or -1."""
        words = self._words
        limit = max(0, words[layout.W_HEAD] - 1) if self._newest_wins else words[layout.W_DONE]
        leases = self._leases.tolist()
        mine = {self._slot, *self._lent}
        best, best_seq = -1, -1
        for slot, seq in enumerate(self._slot_seqs.tolist()):
            if best_seq < seq <= limit and slot + 1 not in leases and slot not in mine:
                best, best_seq = slot, seq
        return best

    def _free_slot(self) -> int:
        """Claim a slot: mark it as being written, then make sure that nobody leased it meanwhile."""
        for _ in range(2 * self._ring.geometry.slots):
            slot = self._find_slot()
            if slot < 0:
                return -1
            before = self._slot_seqs[slot]
            self._slot_seqs[slot] = 0
            fence()
            if slot + 1 not in self._leases.tolist():
                return slot
            self._slot_seqs[slot] = before
        return -1
