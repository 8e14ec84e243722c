"""Which of the waiting requests run together, and when. Pure; one thread owns it.

A batch goes out when it is full, when its oldest request has waited for `max_wait_ns`, or when a request
would miss its deadline by waiting on. Oldest first; whose deadline has passed is never run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

# What a request costs beside its pixels, so that any number of tiny ones has a bound too.
OVERHEAD_BYTES = 4096
# How fast the expected time of a run follows what is measured.
_FOLLOW = 0.2


class BatchLimits(NamedTuple):
    """`capacity_bytes` bounds all that waits."""

    max_size: int
    max_wait_ns: int
    capacity_bytes: int


class QueueFullError(Exception):
    """There is no room; some comes free in about `retry_after_s`."""

    def __init__(self, waiting: int, waiting_bytes: int, retry_after_s: float) -> None:
        super().__init__(f"{waiting} requests with {waiting_bytes} bytes wait already")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Taken(Generic[T]):
    """What is to run now, and what came too late to be run at all."""

    batch: tuple[T, ...]
    expired: tuple[T, ...]


@dataclass(frozen=True)
class _Entry(Generic[T]):
    item: T
    size_bytes: int
    due_ns: int
    deadline_ns: int


class Batcher(Generic[T]):
    """A bounded queue that gives out batches; all times are of one monotonic clock."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._entries: dict[int, _Entry[T]] = {}  # in the order of their coming
        self._next_ticket = 0
        self._expected_run_ns = 0.0
        self.waiting_bytes = 0

    def fit(self, largest: int) -> None:
        """The model runs no more than so many as one: more would only make the first of them wait."""
        self._limits = self._limits._replace(max_size=min(self._limits.max_size, largest))

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._entries)

    def offer(self, item: T, *, size_bytes: int, now_ns: int, deadline_ns: int) -> int:
        """Put a request at the end.

        Returns:
            A ticket, for `discard`.

        Raises:
            QueueFullError: There is no room for it.
        """
        cost_bytes = size_bytes + OVERHEAD_BYTES
        if self.waiting_bytes + cost_bytes > self._limits.capacity_bytes:
            raise QueueFullError(self.waiting, self.waiting_bytes, self._drained_in_s())
        ticket = self._next_ticket
        self._next_ticket += 1
        self.waiting_bytes += cost_bytes
        due_ns = min(now_ns + self._limits.max_wait_ns, deadline_ns - round(self._expected_run_ns))
        self._entries[ticket] = _Entry(item, cost_bytes, max(now_ns, due_ns), deadline_ns)
        return ticket

    def discard(self, ticket: int) -> bool:
        """Take a request out, wherever it stands; False when it is not here any more."""
        entry = self._entries.pop(ticket, None)
        if entry is None:
            return False
        self.waiting_bytes -= entry.size_bytes
        return True

    def due_ns(self) -> int | None:
        """When `take` has something to give without further requests; None: nobody waits."""
        if not self._entries:
            return None
        if self.waiting >= self._limits.max_size:
            return 0
        return min(min(entry.due_ns, entry.deadline_ns) for entry in self._entries.values())

    def take(self, now_ns: int) -> Taken[T]:
        """The batch that is due, empty while waiting on may make it larger."""
        late = [ticket for ticket, entry in self._entries.items() if entry.deadline_ns <= now_ns]
        expired = tuple(self._remove(ticket) for ticket in late)
        due_ns = self.due_ns()
        if due_ns is None or due_ns > now_ns:
            return Taken((), expired)
        first = list(self._entries)[: self._limits.max_size]
        return Taken(tuple(self._remove(ticket) for ticket in first), expired)

    def ran(self, took_ns: int) -> None:
        """A batch was run in that time: deadlines are met by what runs really take."""
        if not self._expected_run_ns:
            self._expected_run_ns = float(took_ns)
        self._expected_run_ns += _FOLLOW * (took_ns - self._expected_run_ns)

    def _remove(self, ticket: int) -> T:
        entry = self._entries.pop(ticket)
        self.waiting_bytes -= entry.size_bytes
        return entry.item

    def _drained_in_s(self) -> float:
        batches = -(-self.waiting // self._limits.max_size)
        return batches * self._expected_run_ns / 1e9
