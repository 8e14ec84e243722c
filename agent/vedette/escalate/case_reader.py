"""Takes cases out of the ring that a worker fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import BadInputError
from vedette.frame.reader import RingReader
from vedette.frame.ring import LIVE_SEAT
from vedette.gate.case import unpack_case

if TYPE_CHECKING:
    from vedette.frame.ring import Ring
    from vedette.gate.case import Case
    from vedette.wire.pixels import FrameFormat


class TakenCase(NamedTuple):
    """A case and its frame; `pixels` are valid until the next `take` or `release`."""

    case: Case
    frame_format: FrameFormat
    pixels: memoryview


class CaseReader:
    """The asking process's side; `damaged` counts slots that held no case."""

    def __init__(self, ring: Ring) -> None:
        self._reader = RingReader(ring, LIVE_SEAT)
        self.damaged = 0

    @property
    def doorbell(self) -> int:
        """Becomes readable when a case comes while nobody looks; see `about_to_sleep`."""
        return self._reader.doorbell

    def about_to_sleep(self) -> bool:
        """Ask for the doorbell; False where a case is there already."""
        return self._reader.about_to_sleep()

    def take(self) -> TakenCase | None:
        """The oldest case, or None; a slot that holds none is counted and given back."""
        while True:
            try:
                lease = self._reader.take()
            except BadInputError:
                self.damaged += 1
                self._reader.release()
                continue
            if lease is None:
                return None
            frame_bytes = lease.frame_format.frame_bytes
            try:
                case = unpack_case(lease.pixels[frame_bytes:])
            except BadInputError:
                self.damaged += 1
                self._reader.release()
                continue
            return TakenCase(case, lease.frame_format, lease.pixels[:frame_bytes])

    def release(self) -> None:
        """Give the slot back, once the frame is copied or encoded."""
        self._reader.release()
