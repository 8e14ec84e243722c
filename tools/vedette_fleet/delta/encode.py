"""The smallest blob that a device can turn into a file: every codec that fits is tried."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import bsdiff4

from vedette.errors import UnavailableError, UsageError
from vedette.wire.release import Codec
from vedette_fleet.delta.tensor_delta import UnsuitableError, encode_tensor
from vedette_fleet.zstd_bytes import pack_zstd

if TYPE_CHECKING:
    from collections.abc import Callable

# bsdiff4 was measured to take 16 to 17 times the old file; the two files and the patch come on top.
BSDIFF4_MEMORY = 20
MEMORY_SHARE = 0.7


def encode_full(new: bytes) -> tuple[Codec, bytes]:
    """A blob that stands alone: zstd, or the file itself where that is no larger."""
    packed = pack_zstd(new)
    return (Codec.ZSTD, packed) if len(packed) < len(new) else (Codec.RAW, new)


def encode_delta(
    old: bytes, new: bytes, codec: str = "auto", *, say: Callable[[str], None] | None = None
) -> tuple[Codec, bytes]:
    """The smallest delta from `old` to `new`; `codec` names one to use instead of trying all.

    `say` hears of a codec that was left out.

    Raises:
        UsageError: No codec of that name makes deltas.
        UnavailableError: `bsdiff4` was asked for and would need more memory than there is.
        UnsuitableError: No codec can do this pair.
    """
    if codec not in {"auto", Codec.BSDIFF4.value, Codec.TENSOR.value}:
        raise UsageError(f"no delta codec {codec!r}", cure="choose auto, bsdiff4 or tensor")
    found: list[tuple[Codec, bytes]] = []
    if codec != Codec.TENSOR.value:
        lacking = _lacking_bytes(old, new)
        if lacking <= 0:
            found.append((Codec.BSDIFF4, bsdiff4.diff(old, new)))
        else:
            note = (
                f"bsdiff4 on a file of {len(old)} bytes needs {lacking} bytes of memory more than there are"
            )
            if codec != "auto":
                raise UnavailableError(note, cure="use the codec tensor, or a machine with more memory")
            if say is not None:
                say(f"{note}; left out")
    if codec != Codec.BSDIFF4.value:
        try:
            found.append((Codec.TENSOR, encode_tensor(old, new)))
        except UnsuitableError as error:
            if not found:
                raise
            if say is not None:
                say(f"tensor: {error.cause}; left out")
    return min(found, key=lambda made: len(made[1]))


def _lacking_bytes(old: bytes, new: bytes) -> int:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return BSDIFF4_MEMORY * len(old) + 2 * len(new) - round(MEMORY_SHARE * free)
