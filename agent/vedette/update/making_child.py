"""The child process that makes a candidate's files, and the messages between it and the driver.

`limited_child` runs `work`. A file that cannot be made is told and the next one is begun: the driver knows
what to fetch instead.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import BadInputError, UnavailableError
from vedette.update.causes import Cause
from vedette.update.codecs.decode import FileDecoder, hash_file
from vedette.wire.release import Codec

if TYPE_CHECKING:
    from collections.abc import Callable

# Errors of a disk that no other encoding would do better on.
_HOPELESS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


class MakeFile(msgspec.Struct, frozen=True):
    """One file to make of a blob; a copy is a `raw` blob that the store already has."""

    file: int
    codec: Codec
    blob: str
    base: str | None
    base_sha256: str | None
    out: str
    size_bytes: int


class Begun(msgspec.Struct, frozen=True, tag=True):
    """This file is in hand."""

    file: int


class Made(msgspec.Struct, frozen=True, tag=True):
    """A file is made, or for `cause` is not; `hopeless` when nothing else would be made either."""

    file: int
    cause: Cause | None = None
    detail: str = ""
    hopeless: bool = False


def work(spec: bytes, tell: Callable[[bytes], None]) -> None:
    """Make the files of a JSON list of MakeFile, in order."""
    for order in msgspec.json.decode(spec, type=list[MakeFile]):
        tell(msgspec.json.encode(Begun(order.file)))
        tell(msgspec.json.encode(make_file(order)))


def make_file(order: MakeFile) -> Made:
    """Check the base, then decode; whatever goes wrong is told."""
    try:
        base = None if order.base is None else Path(order.base)
        if base is not None and hash_file(base) != order.base_sha256:
            return Made(order.file, Cause.BASE_MISMATCH, "the file that the delta patches is not what it was")
        FileDecoder().decode(
            order.codec, Path(order.blob), base, Path(order.out), size_bytes=order.size_bytes
        )
    except MemoryError:
        return Made(order.file, Cause.OOM, "decoding took more memory than it may")
    except BadInputError as error:
        return Made(order.file, Cause.HASH_MISMATCH, error.cause)
    except UnavailableError as error:
        return Made(order.file, Cause.WRONG_DEVICE, error.cause)
    except OSError as error:
        cause = Cause.NO_SPACE if error.errno in {errno.ENOSPC, errno.EDQUOT} else Cause.IO_ERROR
        detail = f"{error.filename or order.out}: {error.strerror}"
        return Made(order.file, cause, detail, hopeless=error.errno in _HOPELESS)
    return Made(order.file)
