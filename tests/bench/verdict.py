"""Bars and tables of the benches: PASS or MISS a line, and the exit status with `--assert`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_MISSED = 1


class Verdict:
    """Collects the bars of one bench."""

    def __init__(self, title: str) -> None:
        self._missed = 0
        load = os.getloadavg()[0]
        print(f"\n## {title}\n   ({os.cpu_count()} CPUs, load average {load:.1f} at the start)\n")

    def at_most(self, what: str, value: float, bar: float, unit: str = "", *, noisy: bool = False) -> None:
        """Print whether a figure is within its bar; `noisy` says that even the quietest rounds were not."""
        within = value <= bar
        self._missed += not within
        remark = " (noisy machine: measure again)" if noisy else ""
        print(f"{'PASS' if within else 'MISS'}  {what}: {value:,.2f}{unit}, bar {bar:,.2f}{unit}{remark}")

    def equal(self, what: str, value: object, wanted: object) -> None:
        """Print whether a figure is what it has to be."""
        within = value == wanted
        self._missed += not within
        print(f"{'PASS' if within else 'MISS'}  {what}: {value}, wanted {wanted}")

    def exit_status(self, *, strict: bool) -> int:
        """EXIT_MISSED when a bar was missed and somebody wants to know."""
        return EXIT_MISSED if strict and self._missed else 0


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table, first column left, the others right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        figures = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join([cells[0].ljust(widths[0]), *figures]) + " |"

    print(line(head))
    print("|" + "|".join(["-" * (widths[0] + 2), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|")
    for row in rows:
        print(line(row))
    print()


def options(description: str, *, rounds: int) -> argparse.ArgumentParser:
    """The options that every bench has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="alternating rounds (default %(default)s)")
    parser.add_argument(
        "--assert", dest="strict", action="store_true", help="exit with 1 when a bar is missed"
    )
    return parser
