"""What people see on standard error: lines, a status line that stays in place, and the final tables."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
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
            point_at_nothing(2)
            self._quiet = True


def point_at_nothing(fd: int) -> None:
    """Make a standard descriptor /dev/null, so that neither we nor the interpreter's exit trip over it."""
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != fd:
        os.dup2(nothing, fd)
        os.close(nothing)


def claim_standard_streams() -> None:
    """Fill standard descriptors that a caller closed: the next file opened would take their number.

    `sys.stdin` and `sys.stdout` stay None, so that a command can say that it needs them.
    """
    for fd, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            point_at_nothing(fd)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the process's life
