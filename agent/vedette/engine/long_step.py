"""Says that a long native call is still working, by what it really burns: CPU time (casebook 2, 55)."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.engine.port import Progress

INTERVAL_S = 10.0
MIN_BUSY_SHARE = 0.02
JOIN_TIMEOUT_S = 1.0


def busy_line(what: str, *, elapsed_s: float, burnt_s: float, interval_s: float) -> str | None:
    """A progress line, or None if the step burnt no CPU time in the last interval: then it may hang."""
    if burnt_s < MIN_BUSY_SHARE * interval_s:
        return None
    return f"{what}: still at it after {elapsed_s:.0f} s"


@contextlib.contextmanager
def watched(what: str, progress: Progress, *, interval_s: float = INTERVAL_S) -> Iterator[None]:
    """While the body runs (and releases the interpreter lock), report at intervals that it makes progress."""
    done = threading.Event()

    def report() -> None:
        started_s = time.monotonic()
        burnt_s = time.process_time()
        while not done.wait(interval_s):
            now_burnt_s = time.process_time()
            line = busy_line(
                what,
                elapsed_s=time.monotonic() - started_s,
                burnt_s=now_burnt_s - burnt_s,
                interval_s=interval_s,
            )
            burnt_s = now_burnt_s
            if line is not None:
                progress(line)

    thread = threading.Thread(target=report, name="load-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(JOIN_TIMEOUT_S)
