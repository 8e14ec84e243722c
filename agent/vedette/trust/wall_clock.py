"""The wall clock as a port; it judges expiry and nothing else."""

from __future__ import annotations

import ctypes
import time
from typing import Protocol

_TIMEX_BYTES = 512  # struct timex has 208 on 64 bit; zeroed it asks and sets nothing
_TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised


class WallClock(Protocol):
    """Seconds since 1970, and whether somebody vouches for them."""

    def utc_s(self) -> float:
        """Seconds since 1970 as this box believes."""
        ...

    def synchronised(self) -> bool | None:
        """Whether the clock was set from a time server; None when that cannot be told."""
        ...


class SystemWallClock:
    """CLOCK_REALTIME, and the kernel's word on its discipline."""

    def utc_s(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def synchronised(self) -> bool | None:
        """The kernel's state of the clock, as `timedatectl` shows it."""
        adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)
        if adjtimex is None:
            return None
        state = int(adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
        return None if state < 0 else state != _TIME_ERROR
