"""How long to wait for a block, and how many to have under way. Pure.

Sources: RFC 6298 for the time; Brakmo and Peterson, "TCP Vegas" (1995), for the number: it grows while blocks
come as fast as the first ones did, and shrinks when they only queue up, in brokers that drop what waits long.
"""

from __future__ import annotations

MIN_WINDOW = 2
MIN_RTO_NS = 250_000_000
MAX_RTO_NS = 60_000_000_000
# Blocks that may wait in queues on the way: below the first the window grows, above the second it shrinks.
_FEW_QUEUED, _MANY_QUEUED = 1.0, 3.0


class BlockPace:
    """Of one transfer; times in nanoseconds of one monotonic clock."""

    def __init__(self, *, first_rto_ns: int, max_window: int) -> None:
        self._max_window = max(MIN_WINDOW, max_window)
        self._window = float(MIN_WINDOW)
        self._doubling = True
        self._srtt_ns: float | None = None
        self._rttvar_ns = 0.0
        self._least_ns = 0
        self._rto_ns = float(first_rto_ns)
        self._backed_off_ns = 0
        self._shrunk_ns: int | None = None

    @property
    def window(self) -> int:
        """How many blocks may be under way."""
        return int(self._window)

    @property
    def rto_ns(self) -> int:
        """After how long a block is given up for lost; twice as long after each time that this happened."""
        return round(min(self._rto_ns, MAX_RTO_NS))

    def measured(self, rtt_ns: int, under_way: int) -> None:
        """A block came, so long after it was asked for; `under_way` were, itself among them."""
        rtt_ns = max(1, rtt_ns)
        if self._srtt_ns is None:
            self._srtt_ns, self._rttvar_ns, self._least_ns = float(rtt_ns), rtt_ns / 2, rtt_ns
        else:
            self._rttvar_ns += (abs(self._srtt_ns - rtt_ns) - self._rttvar_ns) / 4
            self._srtt_ns += (rtt_ns - self._srtt_ns) / 8
            self._least_ns = min(self._least_ns, rtt_ns)
        # Never less than twice the usual time: what we ask for ourselves makes it vary.
        self._rto_ns = max(MIN_RTO_NS, self._srtt_ns + max(4 * self._rttvar_ns, self._srtt_ns))
        if under_way >= self.window:
            self._adapt(self._window * (1 - self._least_ns / self._srtt_ns))

    def timed_out(self, now_ns: int) -> None:
        """A block did not come in time."""
        self.shrink(now_ns)
        if now_ns - self._backed_off_ns >= self._rto_ns:
            self._backed_off_ns = now_ns
            self._rto_ns = min(2 * self._rto_ns, MAX_RTO_NS)

    def shrink(self, now_ns: int) -> None:
        """Have half as many under way; what happens in one round trip counts once."""
        since_ns = None if self._shrunk_ns is None else now_ns - self._shrunk_ns
        if since_ns is not None and since_ns < (self._srtt_ns or self._rto_ns):
            return
        self._shrunk_ns = now_ns
        self._doubling = False
        self._window = max(float(MIN_WINDOW), self._window / 2)

    def _adapt(self, queued: float) -> None:
        if self._doubling and queued < _MANY_QUEUED:
            self._window += 1
        elif queued < _FEW_QUEUED:
            self._window += 1 / self._window
        elif queued > _MANY_QUEUED:
            self._doubling = False
            self._window -= 1 / self._window
        self._window = min(float(self._max_window), max(float(MIN_WINDOW), self._window))
