"""Whether live cameras lose so much that an update must wait. Pure but for the lock.

A newest-wins camera above the model's pace loses frames all the time, by design, so only two things count:
frames that grew too old in the queue, and a camera of which next to nothing is answered. A lossless source
just waits.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vedette.telemetry.ledger import CameraCounts

SAMPLE_S = 5.0
SAMPLES = 7  # half a minute
MIN_FRAMES = 20
STALE_SHARE = 0.2
LOST_SHARE = 0.9


class QueueWatch:
    """Samples the counts of the live cameras; `tick` on one thread, `overloaded` on any."""

    def __init__(self, counts_of_live: Callable[[], Mapping[str, CameraCounts]]) -> None:
        self._counts_of_live = counts_of_live
        self._lock = threading.Lock()
        self._samples: deque[tuple[int, Mapping[str, CameraCounts]]] = deque(maxlen=SAMPLES)

    def tick(self, now_ns: int) -> None:
        """Take a sample when it is time to, on the monotonic clock."""
        if self._samples and now_ns - self._samples[-1][0] < SAMPLE_S * 1e9:
            return
        counts = self._counts_of_live()
        with self._lock:
            self._samples.append((now_ns, counts))

    def overloaded(self) -> bool:
        """Whether some live camera lost too much within the last half minute."""
        with self._lock:
            if len(self._samples) < 2:
                return False
            then, now = self._samples[0][1], self._samples[-1][1]
        return any(_loses(then[name], counts) for name, counts in now.items() if name in then)


def _loses(then: CameraCounts, now: CameraCounts) -> bool:
    ended = _ended(now) - _ended(then)
    if ended < MIN_FRAMES:
        return False
    stale = _dropped(now, DropCause.STALE) - _dropped(then, DropCause.STALE)
    superseded = _dropped(now, DropCause.SUPERSEDED) - _dropped(then, DropCause.SUPERSEDED)
    return stale >= STALE_SHARE * ended or stale + superseded >= LOST_SHARE * ended


def _ended(counts: CameraCounts) -> int:
    return counts.ok + counts.dropped_total + counts.failed_total


def _dropped(counts: CameraCounts, cause: DropCause) -> int:
    return counts.dropped.get(cause.value, 0)
