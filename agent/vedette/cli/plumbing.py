"""`vedette-agent plumbing`: the codecs on bare files, for tests and for the curious."""

from __future__ import annotations

from pathlib import Path

import click

from vedette.errors import BadInputError, UnavailableError
from vedette.fsops import Point, rename, sync_folder, temporary_path, unlink
from vedette.update.codecs.bsdiff4_file import MAGIC as BSDIFF4_MAGIC
from vedette.update.codecs.bsdiff4_file import bsdiff4_size_bytes
from vedette.update.codecs.decode import FileDecoder
from vedette.update.codecs.input_file import InputFile
from vedette.update.codecs.tensor_file import tensor_size_bytes
from vedette.wire.release import MAX_FILE_BYTES, Codec


@click.group()
def plumbing() -> None:
    """What updates are made of, on bare files."""


@plumbing.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("delta", metavar="PATCH", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def patch(old: Path, delta: Path, new: Path) -> None:
    """Apply a delta, bsdiff4 or tensor, to OLD and write NEW.

    NEW appears whole or not at all. Nothing is verified that a signed manifest would be: compare hashes.
    """
    try:
        with InputFile(delta) as blob:
            codec, size_bytes = recognise(blob)
        made = temporary_path(new)
        try:
            FileDecoder().decode(codec, delta, old, made, size_bytes=size_bytes)
            rename(made, new, Point.OUTPUT)
        except BaseException:
            if made.exists():
                unlink(made, Point.OUTPUT)
            raise
        sync_folder(new.parent, Point.OUTPUT)
    except FileNotFoundError as error:
        raise BadInputError(f"{error.filename}: no such file", cure="check the three paths") from error
    except OSError as error:
        raise UnavailableError(
            f"{error.filename or new}: {error.strerror}", cure="check space, owner and mode"
        ) from error
    click.echo(f"{new}: {size_bytes} bytes from a {codec.value} delta of {delta.stat().st_size}", err=True)


def recognise(blob: InputFile) -> tuple[Codec, int]:
    """Codec of a delta and the size of what it makes, from its first bytes.

    Raises:
        BadInputError: Neither codec, or an absurd size.
    """
    head = blob.read_at(0, min(len(BSDIFF4_MAGIC), blob.size_bytes))
    if head == BSDIFF4_MAGIC:
        codec, size_bytes = Codec.BSDIFF4, bsdiff4_size_bytes(blob)
    else:
        codec, size_bytes = Codec.TENSOR, tensor_size_bytes(blob)
    if not 0 <= size_bytes <= MAX_FILE_BYTES:
        raise BadInputError(
            f"the delta claims to make {size_bytes} bytes",
            cure="make it again with `vedette-fleet plumbing diff`",
        )
    return codec, size_bytes
