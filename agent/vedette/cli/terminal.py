"""What people see on standard error: lines, a status line that stays in place, and the final tables."""

from __future__ import annotations

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
            self._clear()
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def status(self, line: str) -> None:
        """Replace the status line; nothing happens when nobody looks."""
        if self.interactive:
            sys.stderr.write(f"{CLEAR_LINE}{line}")
            sys.stderr.flush()
            self._status_shown = True

    def summary(self, summary: RunSummary) -> None:
        """The final tables."""
        if self._quiet:
            return
        self._clear()
        from rich.console import Console  # noqa: PLC0415 - slow to import, needed at the end only

        from vedette.telemetry.summary import render  # noqa: PLC0415 - as above

        width = None if self._tty else DEFAULT_COLUMNS
        render(summary, Console(stderr=True, width=width))

    def _clear(self) -> None:
        if self._status_shown:
            sys.stderr.write(CLEAR_LINE)
            self._status_shown = False
