"""Who gets the next token of a budget: the most uncertain frames, not the first ones. Pure.

The share of frames that may be asked about follows from how fast tokens and frames come; a frame is chosen
where its uncertainty is in that share of the last frames'. The fuller the bucket, the larger the share.
"""

from __future__ import annotations

import bisect
from collections import deque

WINDOW = 500
# The first frames are few, and their order says little.
LEAST = 16
_FOLLOWS = 0.05  # how quickly the mean time between frames follows
_MOST_GAP_S = 60.0


class Pacer:
    """Uncertainties of the last frames, sorted."""

    def __init__(self) -> None:
        self._order: deque[float] = deque()
        self._sorted: list[float] = []
        self._gap_s = 0.0
        self._last_ns: int | None = None

    def see(self, uncertainty: float, now_ns: int) -> None:
        """A frame came, whatever becomes of it."""
        if self._last_ns is not None:
            gap_s = min(_MOST_GAP_S, max(0.0, (now_ns - self._last_ns) / 1e9))
            self._gap_s = gap_s if not self._gap_s else self._gap_s + _FOLLOWS * (gap_s - self._gap_s)
        self._last_ns = now_ns
        if len(self._order) >= WINDOW:
            oldest = self._order.popleft()
            del self._sorted[bisect.bisect_left(self._sorted, oldest)]
        self._order.append(uncertainty)
        bisect.insort(self._sorted, uncertainty)

    def share(self, rate_per_s: float, fill: float) -> float:
        """The share of frames that may be asked about.

        Args:
            rate_per_s: How fast tokens come.
            fill: How full the bucket is, 0 to 1; half full is neutral.
        """
        return min(1.0, rate_per_s * self._gap_s) * min(2.0, 2.0 * fill)

    def chosen(self, uncertainty: float, rate_per_s: float, fill: float) -> bool:
        """Whether a frame that was seen last is among the most uncertain ones that there is money for."""
        if len(self._sorted) < LEAST:
            return True
        share = self.share(rate_per_s, fill)
        if share >= 1.0:
            return True
        if share <= 0.0:
            return False
        place = min(len(self._sorted) - 1, int((1.0 - share) * len(self._sorted)))
        return uncertainty >= self._sorted[place]
