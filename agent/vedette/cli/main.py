"""The `vedette-agent` command: subcommands are imported when called, so that `--help` stays quick."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING

import click

from vedette import __version__
from vedette.cli.terminal import claim_standard_streams
from vedette.errors import InternalError, VedetteError

if TYPE_CHECKING:
    from collections.abc import Sequence

# name -> (module:attribute, one line for --help)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("vedette.cli.run:run", "Run the daemon that a configuration file describes."),
    "pipe": ("vedette.cli.pipe:pipe", "Frames on standard input, JSON lines on standard output."),
    "check-config": (
        "vedette.cli.check_config:check_config",
        "Check a configuration file: every error at once.",
    ),
    "probe": ("vedette.cli.probe:probe", "Load a bundle in a child and tell what it really runs on."),
    "bench": ("vedette.cli.bench:bench", "Measure the whole path against the bare engine call."),
    "ingest-check": (
        "vedette.cli.ingest_check:ingest_check",
        "Tell what is in a pipe: format, stride, rate.",
    ),
    "status": ("vedette.cli.status:status", "What a running daemon answers with, and how updates stand."),
    "update": ("vedette.cli.update:update", "Look for, stop, or bring in an update: check, abort, import."),
    "plumbing": ("vedette.cli.plumbing:plumbing", "The codecs on bare files, for the curious."),
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
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise InternalError(f"{module}:{attribute} is no command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vedette-agent")
def cli() -> None:
    """Vedette: frames in, answers out, on the best accelerator that is really there.

    Results go to standard output, everything said to people goes to standard error. Exit codes: 0 fine,
    2 usage, 65 bad input data, 69 a needed thing is away, 70 our bug, 78 configuration.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: errors become one clear message and the exit code of their family."""
    claim_standard_streams()
    try:
        status = cli.main(args=arguments, prog_name="vedette-agent", standalone_mode=False)
    except VedetteError as error:
        click.echo(f"vedette-agent: {error.diagnostics()}", err=True)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("vedette-agent: interrupted", err=True)
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is our bug and has that exit code
        traceback.print_exc()
        click.echo(f"vedette-agent: this is a bug, please report it: {error!r}", err=True)
        sys.exit(InternalError.exit_code)
    sys.exit(status if isinstance(status, int) else 0)
