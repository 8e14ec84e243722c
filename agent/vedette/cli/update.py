"""`vedette-agent update`: tell a running daemon to look for, stop, or bring in an update."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from vedette.api.control import ask
from vedette.api.messages import AbortRequest, CheckRequest, Heard, ImportRequest
from vedette.cli.control_options import control_options, socket_of
from vedette.errors import UnavailableError

if TYPE_CHECKING:
    from vedette.api.messages import Request

_REFUSED = "rejected:"


@click.group()
def update() -> None:
    """Updates of the model, in a daemon that runs."""


@update.command()
@control_options
def check(config_path: Path | None, socket_path: Path | None) -> None:
    """Look for updates now, and say what became of it; a fetch that waits for its time goes on."""
    click.echo(_tell(config_path, socket_path, CheckRequest()))


@update.command()
@control_options
@click.pass_context
def abort(context: click.Context, config_path: Path | None, socket_path: Path | None) -> None:
    """Stop the update under way; a model on trial is taken back.

    Exit code 69 when there is nothing that could be stopped.
    """
    said = _tell(config_path, socket_path, AbortRequest())
    click.echo(said.replace("_", " ").replace(":", ": "))
    context.exit(UnavailableError.exit_code if said.startswith(_REFUSED) else 0)


@update.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@control_options
def import_folder(folder: Path, config_path: Path | None, socket_path: Path | None) -> None:
    """Take updates from DIR, a copy of the repository such as a USB stick brings.

    It is trusted exactly as the network is. Leave the stick in until `status` says that it is done.
    """
    click.echo(_tell(config_path, socket_path, ImportRequest(str(folder.absolute()))))


def _tell(config_path: Path | None, socket_path: Path | None, request: Request) -> str:
    return msgspec.json.decode(ask(socket_of(config_path, socket_path), request), type=Heard).said
