"""`vedette-fleet check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vedette.errors import BadInputError
from vedette_fleet.cli.output import answer, expiry_json, expiry_rows, print_json, print_table, progress
from vedette_fleet.cli.workshop import json_option, open_workshop
from vedette_fleet.repository_check import check_repository

if TYPE_CHECKING:
    from datetime import datetime

    from vedette_fleet.repository_check import Checked


@click.command()
@click.argument(
    "folder",
    metavar="[DIR]",
    envvar="VEDETTE_REPO",
    default=Path("repo"),
    type=click.Path(path_type=Path),
)
@json_option
def check(folder: Path, *, as_json: bool) -> None:
    """Verify the repository in DIR to the last blob: signatures, expiries, manifests, rollouts, hashes.

    Needs no key and changes nothing; a copy or a mirror can be checked as well. Exit code 65 when something
    is wrong with it.
    """
    workshop = open_workshop(folder, None)
    with progress() as report:
        checked = check_repository(workshop, report)
    if as_json:
        print_json(_as_json(checked))
    else:
        _print(checked, workshop.now)
    if checked.problems:
        count = "1 problem" if len(checked.problems) == 1 else f"{len(checked.problems)} problems"
        raise BadInputError(f"{folder} is not whole: {count}", cure=_cures(checked))


def _cures(checked: Checked) -> str:
    return "; ".join(dict.fromkeys(problem.cure for problem in checked.problems if problem.cure))


def _print(checked: Checked, now: datetime) -> None:
    if checked.expiries:
        print_table(
            ("role", "version", "expires (UTC)", "days", ""),
            expiry_rows(checked.expiries, now),
            right=("version", "days"),
        )
        answer()
    answer(f"releases: {checked.releases}; blobs: {checked.blobs}, {checked.blob_bytes:,} bytes")
    for problem in checked.problems:
        answer(f"WRONG  {problem.where}: {problem.what}")
    if not checked.problems:
        answer("everything is signed, in time and whole")


def _as_json(checked: Checked) -> dict[str, Any]:
    return {
        "whole": not checked.problems,
        "roles": [expiry_json(entry) for entry in checked.expiries],
        "releases": checked.releases,
        "blobs": checked.blobs,
        "blob_bytes": checked.blob_bytes,
        "problems": [asdict(problem) for problem in checked.problems],
    }
