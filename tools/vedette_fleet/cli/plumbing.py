"""`vedette-fleet plumbing`: the codecs on bare files, for tests and for the curious."""

from __future__ import annotations

from pathlib import Path

import click

from vedette.errors import BadInputError, UnavailableError
from vedette.fsops import Point, write_durable
from vedette_fleet.cli.output import say
from vedette_fleet.delta import encode_delta


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
def diff(old: Path, new: Path, patch: Path, codec: str) -> None:
    """Write to PATCH what makes NEW of OLD; `vedette-agent plumbing patch` applies it."""
    wanted = read(new)
    made, blob = encode_delta(read(old), wanted, codec, say=say)
    try:
        write_durable(patch, blob, Point.PUBLISH)
    except OSError as error:
        raise UnavailableError(
            f"{patch}: cannot be written: {error.strerror}", cure="check space, owner and mode"
        ) from error
    share = f", {len(blob) / len(wanted):.2%} of {new.name}" if wanted else ""
    say(f"{patch}: {made.value}, {len(blob)} bytes{share}")


def read(path: Path) -> bytes:
    """A whole file.

    Raises:
        BadInputError: It cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}", cure="check the path") from error
