"""What the agent says for people: each line with a level, the last ones kept for whoever asks. Any thread.

Whoever says something takes a `Callable[[str], None]`; a line that is no plain information is a `LogLine`.
"""

from __future__ import annotations

import threading
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from vedette.clock import Clock

KEPT_CHARS = 32 << 10


class Level(str, Enum):
    """How much is said; each includes those before it."""

    ERROR = "error"  # something is given up
    WARNING = "warning"  # something failed and is tried again, or is less than was asked for
    INFO = "info"
    DEBUG = "debug"  # what happens all the time


_RANK = {level: rank for rank, level in enumerate(Level)}


class LogLine(str):
    """A line that is not of the level `info`."""

    __slots__ = ("level",)
    level: Level

    def __new__(cls, level: Level, text: str) -> Self:
        """Make one."""
        line = super().__new__(cls, text)
        line.level = level
        return line


class KeptLine(msgspec.Struct, frozen=True):
    """A line of the past; `age_s` is monotonic."""

    age_s: float
    level: Level
    text: str


class Log:
    """Passes on what its level allows; keeps the newest KEPT_CHARS of everything."""

    def __init__(self, write: Callable[[str], None], clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: deque[tuple[int, Level, str]] = deque()
        self._kept_chars = 0
        self.level = Level.INFO

    def say(self, text: str) -> None:
        """Say something."""
        level = text.level if isinstance(text, LogLine) else Level.INFO
        with self._lock:
            self._keep(level, str(text))
            if _RANK[level] <= _RANK[self.level]:
                self._write(text)

    def newest(self) -> list[KeptLine]:
        """What was said last, whatever the level is, oldest first."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            kept = list(self._kept)
        return [KeptLine(round((now_ns - said_ns) / 1e9, 3), level, text) for said_ns, level, text in kept]

    def _keep(self, level: Level, text: str) -> None:
        text = text[: KEPT_CHARS // 8]
        self._kept.append((self._clock.monotonic_ns(), level, text))
        self._kept_chars += len(text)
        while self._kept_chars > KEPT_CHARS:
            self._kept_chars -= len(self._kept.popleft()[2])
