"""A verified blob becomes a file: one decoder for all codecs.

Memory stays below 16 MiB whatever the blob says: sizes come from the signed manifest, every offset and length
is checked before use, and nothing is unpacked whole. What the caller does: hash the blob before, the base and
the output after (`hash_file`); no decoder can tell a wrong base from a right one by itself.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from vedette.errors import BadInputError
from vedette.fsops import DurableFile, Point
from vedette.update.codecs.bsdiff4_file import decode_bsdiff4
from vedette.update.codecs.input_file import InputFile
from vedette.update.codecs.tensor_file import decode_tensor
from vedette.update.codecs.zstd_file import decode_raw, decode_zstd
from vedette.wire.release import MAX_FILE_BYTES, Codec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_HASH_BYTES = 1 << 20


class FileDecoder:
    """Implements the port `Decoder`; what it wrote is synced when it returns."""

    def decode(self, codec: Codec, patch: Path, base: Path | None, out: Path, *, size_bytes: int) -> None:
        """Write exactly `size_bytes` to `out`, which is replaced.

        Raises:
            BadInputError: The blob is malformed, does not fit the base, or does not make that many bytes.
            UnavailableError: The codec needs a package that is not installed.
            OSError: The disk: full, broken, read-only.
        """
        _check_size(size_bytes)
        with InputFile(patch) as blob, DurableFile.create(out, Point.OUTPUT) as file:
            file.allocate(size_bytes)
            if codec is Codec.RAW:
                decode_raw(blob, file, size_bytes)
            elif codec is Codec.ZSTD:
                decode_zstd(blob, file, size_bytes)
            else:
                with InputFile(_needed(base, codec)) as old:
                    decode = decode_bsdiff4 if codec is Codec.BSDIFF4 else decode_tensor
                    decode(blob, old, file, size_bytes)
            file.sync()


def resume_tensor(
    patch: Path,
    base: Path,
    out: Path,
    *,
    size_bytes: int,
    start: int = 0,
    done: Callable[[int, int], None] | None = None,
) -> None:
    """Execute a tensor delta from frame `start` on; `out` holds what the frames before it made.

    `done(frames executed, frames in all)` is called after each frame, when its bytes are on the disk: a
    caller that records the first number may be killed at any instant and pass it as `start` later.

    Raises:
        BadInputError: As `FileDecoder.decode`, or `start` is beyond the last frame.
        OSError: The disk.
    """
    _check_size(size_bytes)
    with InputFile(patch) as blob, InputFile(base) as old:
        opened = DurableFile.open(out, Point.OUTPUT) if start else DurableFile.create(out, Point.OUTPUT)
        with opened as file:
            if not start:
                file.allocate(size_bytes)
            decode_tensor(blob, old, file, size_bytes, start=start, done=done)
            file.sync()


def hash_file(path: Path) -> str:
    """SHA-256 of a file as lower-case hex.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while block := os.read(descriptor, _HASH_BYTES):
            digest.update(block)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def _check_size(size_bytes: int) -> None:
    if not 0 <= size_bytes <= MAX_FILE_BYTES:
        raise BadInputError(
            f"a file of {size_bytes} bytes; {MAX_FILE_BYTES} is the limit",
            cure="split the model into files where the bundle is made",
        )


def _needed(base: Path | None, codec: Codec) -> Path:
    if base is None:
        raise BadInputError(
            f"a {codec.value} delta without the file that it patches",
            cure="fetch the full encoding instead",
        )
    return base
