"""Long work in pieces: a job is a generator that says when it wants to go on, and ends with its event. Pure.

Between two pieces the driver takes other events, so an abort never waits for a download or a child process.
A job that is closed must let go of what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from vedette.update.events import Event


class Wait(NamedTuple):
    """Go on after `seconds`, monotonic, or as soon as `fd` is readable."""

    seconds: float = 0.0
    fd: int | None = None


NOW = Wait()

# Yields waits, and events on the way; returns the event it was started for.
Job = Generator[Wait | Event, None, Event]


class Limits(NamedTuple):
    """What a child process may take, beside what Python and its imports do; 0 is no limit.

    `wall_s` is monotonic. `memory_bytes` is of memory in use, looked at now and then; `address_bytes` binds
    at once, but drivers of accelerators map far more than they use.
    """

    wall_s: float
    cpu_s: int
    memory_bytes: int = 0
    address_bytes: int = 0


class Ended(NamedTuple):
    """How a child ended: what it told, its exit status (negative: a signal), its last words.

    `broke` is `time` or `memory` where it was ended for a limit.
    """

    lines: tuple[bytes, ...]
    status: int
    last_words: str
    broke: str = ""


Child = Generator[Wait, None, Ended]

# Runs `work(spec, tell)` of a module in a child process; each line told arrives at `on_line` as it comes.
RunChild = Callable[[str, bytes, Limits, Callable[[bytes], None]], Child]
