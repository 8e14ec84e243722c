"""`vedette-agent install` and `uninstall`: the service of this box, or of one user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette import fsops
from vedette.errors import UnavailableError
from vedette.fsops import Point
from vedette.runtime.devices import devices
from vedette.runtime.install_files import UNIT, Choices, planned_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.runtime.install_files import Planned

TOOL_WAIT_S = 60.0
CAMERA = "/dev/video0"

_prefix = click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/"),
    show_default=True,
    help="Files go below it, as for an image of another box; nothing is started then.",
)
_user = click.option("--user", is_flag=True, help="A service of this user alone, without root.")


@click.command()
@_prefix
@_user
@click.option(
    "--model",
    type=click.Path(path_type=Path, file_okay=False),
    help="Bundle that the configuration names; default: one that came along.",
)
def install(prefix: Path, model: Path | None, *, user: bool) -> None:
    """Write unit, user and configuration of a systemd service, and check devices and permissions.

    A configuration that is there stays as it is. Nothing is started: the last lines say how.
    """
    choices = _choices(prefix, model, user=user)
    for planned in planned_files(choices):
        click.echo(_write(planned))
    if not user and prefix == Path("/"):
        _activate()
    for line in _device_lines(prefix):
        click.echo(line)
    config = planned_files(choices)[-1].path
    control = "systemctl --user" if user else "systemctl"
    click.echo(f"\nNext: edit {config}, then\n  {choices.program} check-config {config}")
    click.echo(f"  {control} daemon-reload && {control} enable --now {UNIT.removesuffix('.service')}")


@click.command()
@_prefix
@_user
def uninstall(prefix: Path, *, user: bool) -> None:
    """Take away what `install` wrote. State stays, and so does a configuration that was edited."""
    if not user and prefix == Path("/"):
        _tool("systemctl", "disable", "--now", UNIT)
    elif user:
        _tool("systemctl", "--user", "disable", "--now", UNIT)
    choices = _choices(prefix, None, user=user)
    for planned in planned_files(choices):
        click.echo(_remove(planned))
    if not user and prefix == Path("/"):
        _tool("systemctl", "daemon-reload")
    state = choices.home / ".local/state/vedette" if choices.home is not None else Path("/var/lib/vedette")
    click.echo(f"state stays in {state}")


def _choices(prefix: Path, model: Path | None, *, user: bool) -> Choices:
    program = Path(sys.executable).with_name("vedette-agent")
    camera = next((str(one.path) for one in devices() if one.kind == "camera"), CAMERA)
    bundle = model or Path(sys.prefix) / "models" / "person"
    return Choices(prefix.absolute(), program, bundle.absolute(), camera, home=Path.home() if user else None)


def _write(planned: Planned) -> str:
    path = planned.path
    if planned.yours and path.exists():
        return f"kept     {path}, which is yours"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fsops.write_durable(path, planned.content.encode(), Point.INSTALL)
        path.chmod(planned.mode)
    except OSError as error:
        raise _no_right(path, error) from error
    return f"written  {path}"


def _remove(planned: Planned) -> str:
    path = planned.path
    try:
        if planned.yours and path.exists() and path.read_bytes() != planned.content.encode():
            return f"kept     {path}, which was edited"
        path.unlink()
    except FileNotFoundError:
        return f"absent   {path}"
    except OSError as error:
        raise _no_right(path, error) from error
    return f"removed  {path}"


def _no_right(path: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{path}: {error.strerror}",
        cure="run it as root, or with --user for a service of your own, or with --prefix for an image",
    )


def _activate() -> None:
    """Make user and folders now; what is missing here is done at the next boot."""
    _tool("systemd-sysusers")
    _tool("systemd-tmpfiles", "--create", "vedette.conf")
    _tool("systemctl", "daemon-reload")


def _tool(*command: str) -> None:
    if shutil.which(command[0]) is None or not Path("/run/systemd/system").is_dir():
        click.echo(f"skipped  {' '.join(command)}: systemd does not run here", err=True)
        return
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=TOOL_WAIT_S, env=os.environ
    )
    if done.returncode:
        click.echo(f"! {' '.join(command)}: {done.stderr.strip()}", err=True)


def _device_lines(prefix: Path) -> Iterator[str]:
    found = list(devices(prefix))
    for one in found:
        yield f"{one.kind:<8} {one.path}: " + (
            f"! {one.fault}" if one.fault else f"group {one.group} may use it"
        )
    if not any(one.kind == "camera" for one in found):
        yield "camera   none is plugged in; streams and files need none"
