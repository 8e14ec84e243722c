"""What commands print: tables or JSON for standard output, remarks and progress for standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from vedette_fleet.tuf_ceremonies import Expiry
    from vedette_fleet.tuf_edit import Outcome

    Report = Callable[[str, int, int], None]


def say(text: str) -> None:
    """A remark to people."""
    click.echo(text, err=True)


def answer(text: str = "") -> None:
    """A line of the answer.

    Raises:
        UnavailableError: Nobody reads standard output any more.
    """
    try:
        click.echo(text)
    except BrokenPipeError as error:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())  # or the interpreter trips over it when it ends
        os.close(nothing)
        raise UnavailableError(
            "standard output was closed", cure="what was asked for is done; ask again to see the answer"
        ) from error


def print_json(document: Any) -> None:  # noqa: ANN401 - anything JSON can hold
    """One JSON document."""
    answer(json.dumps(document, indent=1))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Aligned columns; those in `right` are numbers."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(line, widths, header, strict=True)
        ]
        answer("  ".join(cells).rstrip())


def expiry_rows(expiries: Iterable[Expiry], now: datetime) -> list[tuple[str, ...]]:
    """Role, version, end, days left, and whether to renew it, for a table."""
    return [
        (
            entry.role,
            str(entry.version),
            f"{entry.expires:%Y-%m-%d %H:%M}",
            str((entry.expires - now).days),
            "renew now" if entry.near else "",
        )
        for entry in expiries
    ]


def expiry_json(entry: Expiry) -> dict[str, Any]:
    """The same for programs."""
    return {
        "role": entry.role,
        "version": entry.version,
        "expires": entry.expires.isoformat(),
        "renew": entry.near,
    }


def tell_outcome(outcome: Outcome) -> None:
    """Say what clients see of an edit, and whose signatures the rest waits for."""
    seen = [f"{role} {number}" for role, number in outcome.versions.items() if role not in outcome.waiting]
    waiting = [f"{role} {number}" for role, number in outcome.versions.items() if role in outcome.waiting]
    if seen or not waiting:
        say(f"published {', '.join(seen) or 'snapshot and timestamp'}")
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        say(f"not published yet: {', '.join(waiting)} {verb} for signatures")
    for path, missing in outcome.missing.items():
        _tell_missing(str(path), missing)
    if waiting:
        say("  then: vedette-fleet keys publish")
    for path, missing in outcome.remade.items():
        say(f"{path.name}, which waited with another edit, was overtaken and made anew")
        _tell_missing(str(path), missing)


def _tell_missing(path: str, missing: int) -> None:
    if missing:
        noun = "signature" if missing == 1 else "signatures"
        say(f"  {path} lacks {missing} {noun}: vedette-fleet keys sign {path} --key FILE")


def end_with(outcome: Outcome) -> None:
    """End the command: exit code 69 where signatures are away, so that scripts can tell.

    Raises:
        click.exceptions.Exit: The edit waits, or a part of it.
    """
    if not outcome.published:
        raise click.exceptions.Exit(UnavailableError.exit_code)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome for programs."""
    return {
        "published": outcome.published,
        "versions": outcome.versions,
        "waiting": sorted(outcome.waiting),
        "missing": {str(path): count for path, count in outcome.missing.items()},
        "remade": {str(path): count for path, count in outcome.remade.items()},
    }


@contextlib.contextmanager
def progress() -> Iterator[Report]:
    """A bar on standard error when it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, needed on terminals only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415 - as above

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total, visible=True
        )
