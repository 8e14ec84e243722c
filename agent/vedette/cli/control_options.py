"""How the commands that talk to a running daemon find it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vedette.config.agent import load_config
from vedette.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

Command = TypeVar("Command", bound="Callable[..., Any]")


def control_options(command: Command) -> Command:
    """Add `--config` and `--socket`, of which one must be given."""
    config = click.option(
        "--config", "config_path", type=click.Path(path_type=Path), help="The daemon's configuration."
    )
    socket = click.option(
        "--socket", "socket_path", type=click.Path(path_type=Path), help="Its control socket."
    )
    return config(socket(command))


def socket_of(config_path: Path | None, socket_path: Path | None) -> Path:
    """Where the daemon answers.

    Raises:
        UsageError: Neither or both are given.
        ConfigError: The configuration is wrong, or names no socket.
    """
    if (config_path is None) == (socket_path is None):
        raise UsageError("which agent? give --config FILE or --socket PATH, one of the two")
    if socket_path is not None:
        return socket_path
    assert config_path is not None  # noqa: S101 - said to the type checker
    found = load_config(config_path, os.environ).control_socket
    if found is None:
        raise ConfigError(
            f"{config_path}: an agent without `state_dir` has no control socket",
            cure="set `state_dir`, or `control: {socket: PATH}`",
        )
    return found.resolve()
