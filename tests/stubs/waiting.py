"""Waiting in tests: on a condition, with a deadline, never for a fixed time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_EVERY_S = 0.01
PATIENCE_S = 60.0


def until(
    condition: Callable[[], object],
    what: str,
    *,
    timeout_s: float = PATIENCE_S,
    every_s: float = LOOK_EVERY_S,
) -> None:
    """Return once `condition` holds; fail the test, naming `what`, when it does not in time."""
    pause = threading.Event()
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        pause.wait(every_s)
