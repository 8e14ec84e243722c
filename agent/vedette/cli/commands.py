"""The group of commands; each is imported only when it is called, so `--help` stays quick."""

from __future__ import annotations

from importlib import import_module

import click

from vedette import __version__
from vedette.errors import InternalError

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
    "install": ("vedette.cli.install:install", "Write a systemd service for this box, or for one user."),
    "uninstall": ("vedette.cli.install:uninstall", "Take that away; state stays."),
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
