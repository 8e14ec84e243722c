"""Hands frames that the large model is to see to whoever asks it, by a ring of their own; never waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.frame.producer import RingProducer
from vedette.gate.case import CASE_BYTES, pack_case

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.frame.reader import Lease
    from vedette.frame.ring import Ring
    from vedette.gate.case import Case


def slot_bytes_for(frame_bytes: int) -> int:
    """The room that a slot needs for a frame and its case."""
    return frame_bytes + CASE_BYTES


class CaseWriter:
    """The worker's side of the case ring, which is lossless; one thread owns it."""

    def __init__(self, ring: Ring, clock: Clock) -> None:
        self._producer = RingProducer(ring, clock)

    def offer(self, lease: Lease, case: Case) -> bool:
        """Copy a leased frame and its case; about 100 us for 640x480.

        Returns:
            False where every slot is taken, or the frame has no room in one: it stays here.
        """
        frame_bytes = lease.frame_format.frame_bytes
        try:
            packed = pack_case(case)
        except BadInputError:  # boxes beyond all measure
            return False
        if not self._producer.fits(frame_bytes + len(packed)):
            return False
        loan = self._producer.lend()
        if loan is None:
            return False
        loan.memory[:frame_bytes] = lease.pixels[:frame_bytes]
        loan.memory[frame_bytes : frame_bytes + len(packed)] = packed
        self._producer.publish_loan(loan, lease.frame_format, lease.captured_ns)
        return True
