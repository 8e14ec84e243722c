"""A case on its way to the large model, and the bounded queue of those that wait for a free thread. Pure."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.gate.case import Case
from vedette.wire.escalation import Reason

if TYPE_CHECKING:
    from vedette.escalate.asked_model import AskedModel
    from vedette.escalate.privacy import Sendable


class SentPicture(msgspec.Struct, frozen=True):
    """What leaves the box: a JPEG, its size, the way back to the frame, and the scene it shows."""

    jpeg: bytes
    width: int
    height: int
    left: int
    top: int
    scale: float
    scene: str
    blurred: bool = False


class KeptCase(msgspec.Struct, frozen=True):
    """A case and its picture as they wait on the disk; `kept`: the gate trusted the answer."""

    case: Case
    picture: SentPicture
    utc_s: float
    kept: bool


@dataclass(eq=False, slots=True)
class Ticket:
    """One case in this process. Times are CLOCK_MONOTONIC; `file` names one that comes from the backlog."""

    number: int
    kept_case: KeptCase
    model: AskedModel
    sent: Sendable
    cache_key: bytes
    answered_ns: int
    deadline_ns: int
    urgent: bool
    file: str = ""

    @property
    def case(self) -> Case:
        """What is asked about."""
        return self.kept_case.case

    @property
    def audit(self) -> bool:
        """Whether it was drawn at random."""
        return self.case.reason is Reason.AUDIT

    @property
    def rank(self) -> tuple[int, float]:
        """Audits first, since they are few and must not depend on doubt; then the most uncertain."""
        return (1 if self.audit else 0, self.case.uncertainty)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        case = self.case
        return len(self.kept_case.picture.jpeg) + len(case.logits) + 200 * len(case.candidates) + 2000


class _Place(NamedTuple):
    rank: tuple[int, float]
    number: int
    ticket: Ticket


class Waiting:
    """Bounded in bytes; the most uncertain goes first, the least uncertain gives way."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._places: dict[int, _Place] = {}
        self._heap: list[tuple[float, float, int]] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._places)

    def audits(self) -> int:
        """How many of them are audits."""
        return sum(place.ticket.audit for place in self._places.values())

    def push(self, ticket: Ticket) -> list[Ticket]:
        """Let it wait.

        Returns:
            Those that have no room any more; it may be among them.
        """
        self._places[ticket.number] = _Place(ticket.rank, ticket.number, ticket)
        heapq.heappush(self._heap, (-ticket.rank[0], -ticket.rank[1], ticket.number))
        self.size_bytes += ticket.size_bytes
        gone: list[Ticket] = []
        while self.size_bytes > self._max_bytes and self._places:
            least = min(self._places.values(), key=lambda place: (place.rank, -place.number))
            gone.append(least.ticket)
            self.remove(least.ticket)
        return gone

    def pop(self) -> Ticket | None:
        """The most uncertain; of equals the one that came first."""
        while self._heap:
            place = self._places.get(heapq.heappop(self._heap)[2])
            if place is not None:
                self.remove(place.ticket)
                return place.ticket
        return None

    def remove(self, ticket: Ticket) -> None:
        """It does not wait any more; nothing happens where it does not."""
        if self._places.pop(ticket.number, None) is not None:
            self.size_bytes -= ticket.size_bytes
        if len(self._heap) > 64 + 4 * len(self._places):  # what left by this way stays in the heap
            self._heap = [entry for entry in self._heap if entry[2] in self._places]
            heapq.heapify(self._heap)
