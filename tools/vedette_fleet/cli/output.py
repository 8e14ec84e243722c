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
    from collections.abc import Callable, Iterator, Sequence

    from vedette_fleet.tuf_publication import Outcome

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


def tell_outcome(outcome: Outcome) -> None:
    """Say whether clients see an edit, or whose signatures it waits for."""
    names = ", ".join(f"{role} {version}" for role, version in outcome.versions.items())
    if outcome.published:
        say(f"published {names or 'snapshot and timestamp'}")
        return
    say(f"not published yet: {names} wait for signatures")
    for path, missing in outcome.missing.items():
        if missing:
            noun = "signature" if missing == 1 else "signatures"
            say(f"  {path} lacks {missing} {noun}: vedette-fleet keys sign {path} --key FILE")
    say("  then: vedette-fleet keys publish")


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome for programs."""
    return {
        "published": outcome.published,
        "versions": outcome.versions,
        "missing": {str(path): count for path, count in outcome.missing.items()},
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
