"""What passes through the door: requests by status, bytes and refusals since it opened. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from vedette.api.admission import Admission
    from vedette.api.frame_desk import FrameDesk


class DoorSummary(msgspec.Struct, frozen=True):
    """Figures of the door; `open_s` is monotonic."""

    open_s: float
    ring: bool
    waiting: int
    in_flight: int
    held_bytes: int
    inferences: dict[str, int]
    unclaimed: int


class Traffic:
    """Counts inference requests by the status that they got."""

    def __init__(self, desk: FrameDesk, admission: Admission, now_ns: int) -> None:
        self._desk = desk
        self._admission = admission
        self._opened_ns = now_ns
        self._inferences: dict[str, int] = {}

    def inferred(self, status: int) -> None:
        """An inference request was answered."""
        self._inferences[str(status)] = self._inferences.get(str(status), 0) + 1

    def summary(self, now_ns: int) -> DoorSummary:
        """The figures now."""
        return DoorSummary(
            open_s=(now_ns - self._opened_ns) / 1e9,
            ring=self._desk.lent,
            waiting=self._desk.waiting,
            in_flight=self._desk.in_flight,
            held_bytes=self._admission.held_bytes,
            inferences=dict(self._inferences),
            unclaimed=self._desk.unclaimed,
        )
