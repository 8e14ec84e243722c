"""The `vedette-fleet` command: subcommands are imported when called, so that `--help` stays quick."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette import __version__
from vedette.errors import InternalError, UnavailableError, VedetteError

if TYPE_CHECKING:
    from collections.abc import Sequence

# name -> (module:attribute, one line for --help)
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("vedette_fleet.cli.init:init", "Make keys and an empty update repository."),
    "keys": (
        "vedette_fleet.cli.keys:keys",
        "List, rotate and revoke keys; admit owners; sign in ceremonies.",
    ),
    "refresh": ("vedette_fleet.cli.refresh:refresh", "Renew signatures before they expire; run it daily."),
    "check": ("vedette_fleet.cli.check:check", "Verify a repository to the last blob."),
    "release": ("vedette_fleet.cli.release:release", "Publish a bundle, in full and as deltas."),
    "rollout": ("vedette_fleet.cli.rollout:rollout", "Say which devices run which release."),
    "serve-files": ("vedette_fleet.cli.serve_files:serve_files", "Serve a repository over HTTP, for tests."),
    "serve-blocks": (
        "vedette_fleet.cli.serve_blocks:serve_blocks",
        "Serve a repository over MQTT, in blocks.",
    ),
    "announce": ("vedette_fleet.cli.announce:announce", "Tell devices over MQTT that a repository changed."),
    "top": ("vedette_fleet.cli.top:top", "Show the fleet live, from its MQTT broker."),
    "plumbing": ("vedette_fleet.cli.plumbing:plumbing", "The codecs on bare files, for the curious."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the module that holds the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in {"vedette", "vedette_fleet"}:
                raise
            raise UnavailableError(
                f"{cmd_name} needs the Python package {error.name}", cure="pip install 'vedette[fleet]'"
            ) from error
        if not isinstance(command, click.Command):
            raise InternalError(f"{module}:{attribute} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vedette-fleet")
def cli() -> None:
    """Publish signed model updates, and say which devices run what.

    Tables and JSON go to standard output, everything said to people goes to standard error. Exit codes:
    0 fine, 2 usage, 65 bad input data, 69 a needed thing is away, also a signature, 70 our bug.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: errors become one clear message and the exit code of their family."""
    _claim_standard_streams()
    try:
        status = cli.main(args=arguments, prog_name="vedette-fleet", standalone_mode=False)
    except VedetteError as error:
        click.echo(f"vedette-fleet: {error.diagnostics()}", err=True)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("vedette-fleet: interrupted; the same command again goes on", err=True)
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is our bug and has that exit code
        traceback.print_exc()
        click.echo(f"vedette-fleet: this is a bug, please report it: {error!r}", err=True)
        sys.exit(InternalError.exit_code)
    sys.exit(status if isinstance(status, int) else 0)


def _claim_standard_streams() -> None:
    """Fill standard streams that the caller closed: the next file opened would take their number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nothing = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - for the process's life
            if nothing.fileno() != number:
                os.dup2(nothing.fileno(), number)
            setattr(sys, name, nothing)
