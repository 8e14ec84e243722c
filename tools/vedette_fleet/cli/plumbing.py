"""`vedette-fleet plumbing`: the codecs on bare files, for tests and for the curious."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.errors import BadInputError, UnavailableError, UsageError
from vedette.fsops import Point, write_durable
from vedette_fleet.cli.output import say
from vedette_fleet.delta import encode_delta

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.group()
def plumbing() -> None:
    """What releases are made of, on bare files."""


@plumbing.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.argument("patch", type=click.Path(path_type=Path))
@click.option(
    "--codec",
    type=click.Choice(["auto", "bsdiff4", "tensor"]),
    default="auto",
    show_default=True,
    help="auto: the smaller of the two.",
)
@click.option("--force", is_flag=True, help="Replace PATCH if it is there.")
def diff(old: Path, new: Path, patch: Path, codec: str, *, force: bool) -> None:
    """Write to PATCH what makes NEW of OLD; `vedette-agent plumbing patch` applies it."""
    base, wanted = read(old), read(new)
    check_output(patch, (old, new), force=force)
    made, blob = encode_delta(base, wanted, codec, say=say)
    try:
        write_durable(patch, blob, Point.PUBLISH)
    except OSError as error:
        raise UnavailableError(
            f"{patch}: cannot be written: {error.strerror}", cure="check space, owner and mode"
        ) from error
    share = f", {len(blob) / len(wanted):.2%} of {new.name}" if wanted else ""
    say(f"{patch}: {made.value}, {len(blob)} bytes{share}")


def check_output(path: Path, inputs: Sequence[Path], *, force: bool) -> None:
    """Refuse to write over what is read, or over what is there.

    Raises:
        UsageError: It is an input, under whichever name, or exists and `force` was not given.
    """
    if not path.exists():
        return
    if any(known.exists() and path.samefile(known) for known in inputs):
        raise UsageError(f"{path} would be written over while it is read", cure="name another file for PATCH")
    if not force:
        raise UsageError(f"{path} is there already", cure="name another file, or replace it with --force")


def read(path: Path) -> bytes:
    """A whole file.

    Raises:
        BadInputError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}", cure="check the path") from error
