"""`vedette-agent plumbing`: the codecs on bare files, for tests and for the curious."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vedette.delta.plan import HEADER, parse_plan, plan_size_bytes
from vedette.errors import BadInputError, UnavailableError, UsageError
from vedette.fsops import Point, rename, sync_folder, temporary_path, unlink
from vedette.update.codecs.bsdiff4_file import MAGIC as BSDIFF4_MAGIC
from vedette.update.codecs.bsdiff4_file import bsdiff4_size_bytes
from vedette.update.codecs.decode import FileDecoder, hash_file
from vedette.update.codecs.input_file import InputFile
from vedette.update.codecs.tensor_file import tensor_size_bytes
from vedette.wire.release import MAX_FILE_BYTES, Codec

if TYPE_CHECKING:
    from vedette.delta.layout import Plan


@click.group()
def plumbing() -> None:
    """What updates are made of, on bare files."""


@plumbing.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("delta", metavar="PATCH", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def patch(old: Path, delta: Path, new: Path) -> None:
    """Apply a delta, bsdiff4 or tensor, to OLD and write NEW.

    NEW appears whole or not at all. Nothing is verified that a signed manifest would be: compare the SHA-256
    that is said at the end. A tensor delta knows a wrong OLD; a bsdiff4 delta makes something else of it.
    """
    try:
        _check_paths(old, delta, new)
        with InputFile(delta) as blob:
            codec, size_bytes = recognise(blob)
            if codec is Codec.TENSOR:
                check_base(blob, old)
        made = temporary_path(new)
        try:
            _decode(codec, delta, old, made, size_bytes)
            sha256 = hash_file(made)
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
    click.echo(
        f"{new}: {size_bytes} bytes from a {codec.value} delta of {delta.stat().st_size}, SHA-256 {sha256}",
        err=True,
    )


def _check_paths(old: Path, delta: Path, new: Path) -> None:
    for path in (old, delta):
        if path.is_dir():
            raise BadInputError(f"{path}: is a directory", cure="name a file")
        if new.exists() and path.exists() and new.samefile(path):
            raise UsageError(
                f"{new} would be written over while it is read", cure="name another file for NEW"
            )
    if new.is_dir():
        raise UsageError(f"{new}: is a directory", cure="name a file in it for NEW")


def _decode(codec: Codec, delta: Path, old: Path, made: Path, size_bytes: int) -> None:
    try:
        FileDecoder().decode(codec, delta, old, made, size_bytes=size_bytes)
    except BadInputError as error:
        with InputFile(delta) as blob:
            whole = codec is Codec.TENSOR and is_whole(blob)
        if whole:
            raise _wrong_base(old, "the patch is whole, and makes something else of it") from error
        raise


def check_base(blob: InputFile, old: Path) -> None:
    """Look whether a tensor delta was made for a file of that size.

    Raises:
        BadInputError: It was not, or is damaged.
    """
    plan = _read_plan(blob)
    old_bytes = old.stat().st_size
    if plan.old_bytes != old_bytes:
        raise _wrong_base(
            old, f"the patch was made for a file of {plan.old_bytes} bytes, this one has {old_bytes}"
        )


def is_whole(blob: InputFile) -> bool:
    """Whether every frame of a tensor delta has the checksum that its plan says."""
    plan = _read_plan(blob)
    offset = _plan_bytes(blob)
    for frame in plan.frames:
        if zlib.crc32(blob.read_at(offset, frame.size_bytes)) != frame.payload_crc:
            return False
        offset += frame.size_bytes
    return True


def _plan_bytes(blob: InputFile) -> int:
    return plan_size_bytes(blob.read_at(0, min(HEADER.size, blob.size_bytes)))


def _read_plan(blob: InputFile) -> Plan:
    return parse_plan(blob.read_at(0, _plan_bytes(blob)))


def _wrong_base(old: Path, why: str) -> BadInputError:
    return BadInputError(f"{old}: wrong base: {why}", cure="name the file that the patch was made from")


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
