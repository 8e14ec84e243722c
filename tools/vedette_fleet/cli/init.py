"""`vedette-fleet init`."""

from __future__ import annotations

from pathlib import Path

import click

from vedette.errors import UnavailableError
from vedette_fleet.cli.output import print_json, say
from vedette_fleet.cli.workshop import json_option, keys_option, open_workshop
from vedette_fleet.names import check_name


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--owner", "owners", multiple=True, help="Who publishes releases; may be given more than once.")
@keys_option
@json_option
def init(folder: Path, owners: tuple[str, ...], keys_folder: Path | None, *, as_json: bool) -> None:
    """Make keys and an empty update repository in DIR.

    Root has three keys of which two must sign. What is there already is kept, what is missing is made; so
    running it again finishes what was cut short. Serve only DIR/metadata, DIR/targets and DIR/blobs.
    """
    for owner in owners:
        check_name("owner", owner)
    workshop = open_workshop(folder, keys_folder)
    done = workshop.initialise(list(owners))
    for line in done or ["nothing is missing; nothing was changed"]:
        say(line)
    root = folder / "metadata" / "1.root.json"
    if any("made key root" in line for line in done):
        say(f"private keys are in {workshop.folder.path}; move root and targets keys to other machines")
        say(f"devices need {root} to begin to trust")
    if as_json:
        print_json(
            {"repository": str(folder), "keys": str(workshop.folder.path), "root": str(root), "done": done}
        )
    if any(line.startswith("staged owner") for line in done):
        raise click.exceptions.Exit(UnavailableError.exit_code)  # as every command whose edit waits
