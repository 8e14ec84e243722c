"""`vedette-fleet refresh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vedette_fleet.cli.output import (
    end_with,
    expiry_json,
    expiry_rows,
    outcome_json,
    print_json,
    print_table,
    say,
    tell_outcome,
)
from vedette_fleet.cli.workshop import json_option, open_workshop, repository_options

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.option(
    "--role", "roles", multiple=True, help="Renew this role too: root, targets, models-OWNER, rollouts."
)
@repository_options
@json_option
def refresh(roles: tuple[str, ...], repo: Path, keys_folder: Path | None, *, as_json: bool) -> None:
    """Sign snapshot and timestamp anew, and the rollout document when half its time is over.

    Prints when each role expires. Devices refuse to begin an update on expired metadata, so run it daily.
    """
    workshop = open_workshop(repo, keys_folder)
    with workshop.repository.locked():
        _, outcome, expiries = workshop.refresh(list(roles))
    tell_outcome(outcome)
    if as_json:
        print_json({**outcome_json(outcome), "roles": [expiry_json(entry) for entry in expiries]})
    else:
        rows = expiry_rows(expiries, workshop.now)
        print_table(("role", "version", "expires (UTC)", "days", ""), rows, right=("version", "days"))
    for entry in expiries:
        if entry.near:
            say(
                f"{entry.role} expires {entry.expires:%Y-%m-%d}: bring its keys and run "
                f"vedette-fleet refresh --role {entry.role}"
            )
    end_with(outcome)
