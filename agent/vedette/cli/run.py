"""`vedette-agent run`: the daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.cli.serving import serve
from vedette.cli.terminal import Terminal
from vedette.runtime.compose import plan_from_config
from vedette.runtime.preflight import prepare_state_dir
from vedette.runtime.read_checked import read_checked

if TYPE_CHECKING:
    from vedette.runtime.plan import RunPlan


@click.command()
@click.option(
    "--config", "config_path", required=True, type=click.Path(path_type=Path), help="The YAML configuration."
)
@click.option(
    "--summary-json", type=click.Path(path_type=Path), help="Write the final figures there as JSON."
)
@click.option("--quiet", is_flag=True, help="Say nothing but errors on standard error.")
def run(config_path: Path, summary_json: Path | None, *, quiet: bool) -> None:
    """Run the daemon that a configuration file describes.

    Results are JSON lines on standard output, or in the file that `results.to` names. It ends by itself when
    all inputs are files that have ended, unless it has an HTTP door; SIGTERM and Ctrl-C end it cleanly.
    SIGHUP reads the configuration anew: cameras, escalation and the telemetry's interval change at once, a
    file that is wrong changes nothing.
    """
    config = read_checked(config_path, os.environ)
    if config.update is None:  # updates make their own, and a disk that fails costs them only
        prepare_state_dir(config)
    terminal = Terminal(quiet=quiet)
    for note in config.notes:
        terminal.say(note)

    def reread() -> RunPlan:
        return plan_from_config(read_checked(config_path, os.environ))

    serve(plan_from_config(config), terminal, summary_to=summary_json, reread=reread)
