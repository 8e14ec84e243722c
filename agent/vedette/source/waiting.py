"""Waits of a source: cut into slices in which it says that it lives and sees a stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from vedette.clock import Clock
    from vedette.source.port import FrameSink

    Sleep: TypeAlias = Callable[[float], None]

SLICE_S = 0.05


def sleep_s(seconds: float) -> None:
    """Sleep for real; tests give something that moves a clock instead."""
    time.sleep(seconds)


def wait_until(due_ns: int, sink: FrameSink, *, clock: Clock, sleep: Sleep) -> bool:
    """Wait for a monotonic time; False when the sink stops first."""
    while not sink.stopping:
        left_s = (due_ns - clock.monotonic_ns()) / 1e9
        if left_s <= 0:
            return True
        sink.alive()
        sleep(min(left_s, SLICE_S))
    return False
