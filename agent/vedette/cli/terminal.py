"""What people see on standard error: lines, a status line that stays in place, and the final tables."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vedette.telemetry.summary import RunSummary

CLEAR_LINE = "\r\x1b[2K"
DEFAULT_COLUMNS = 100


class Terminal:
    """Standard error; `quiet` leaves only what matters for the outcome."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._tty = sys.stderr.isatty()
        self._status_shown = False

    @property
    def interactive(self) -> bool:
        """A person looks at it, so a live line makes sense."""
        return self._tty and not self._quiet

    @property
    def columns(self) -> int:
        """Width that a line may use."""
        return shutil.get_terminal_size((DEFAULT_COLUMNS, 24)).columns - 1

    def say(self, text: str) -> None:
        """One remark, above the status line."""
        if not self._quiet:
            self._write(f"{self._cleared()}{text}\n")

    def status(self, line: str) -> None:
        """Replace the status line; nothing happens when nobody looks."""
        if self.interactive:
            self._write(f"{CLEAR_LINE}{line}")
            self._status_shown = True

    def summary(self, summary: RunSummary) -> None:
        """The final tables."""
        if self._quiet:
            return
        from rich.console import Console  # noqa: PLC0415 - slow to import, needed at the end only

        from vedette.telemetry.summary import render  # noqa: PLC0415 - as above

        console = Console(stderr=True, width=None if self._tty else DEFAULT_COLUMNS)
        with console.capture() as tables:
            render(summary, console)
        self._write(f"{self._cleared()}{tables.get()}")

    def _cleared(self) -> str:
        """What takes the status line away, if one is shown."""
        shown, self._status_shown = self._status_shown, False
        return CLEAR_LINE if shown else ""

    def _write(self, text: str) -> None:
        """Nobody who listens is no reason to stop working: from then on nothing is said (casebook 58)."""
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            silence_stderr()
            self._quiet = True


def silence_stderr() -> None:
    """Point standard error at nothing, so that neither we nor the interpreter's exit trip over it again."""
    nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nothing, 2)
    os.close(nothing)
