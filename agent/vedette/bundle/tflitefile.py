"""What the head of a TFLite file says, read without a runtime. Pure.

Source: the FlatBuffers internals page and `schema.fbs` of TFLite (field 0 of `Model` is `version`).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from vedette.errors import BundleError

if TYPE_CHECKING:
    import mmap

IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3


def is_tflite(head: bytes) -> bool:
    """Tell whether the first bytes of a file carry the FlatBuffers identifier of TFLite."""
    return head[4:8] == IDENTIFIER


def read_tflite_version(data: bytes | mmap.mmap, name: str) -> int:
    """Read the schema version of a TFLite file.

    Args:
        data: The whole file; only a few bytes of it are touched.
        name: For messages.

    Raises:
        BundleError: Not a TFLite file, or an offset in it points outside.
    """
    if not is_tflite(data[:8]):
        raise BundleError(
            f"{name}: not a TFLite file (no {IDENTIFIER.decode()} identifier at byte 4)",
            cure="check `file` and `engine` in model.yaml, and that the file was copied in full",
        )
    try:
        table = _unpack("<I", data, 0)
        vtable = table - _unpack("<i", data, table)
        has_version = _unpack("<H", data, vtable) >= 6
        offset = _unpack("<H", data, vtable + 4) if has_version else 0
        return _unpack("<I", data, table + offset) if offset else 0
    except struct.error as error:
        raise BundleError(
            f"{name}: damaged TFLite file, an offset points outside of it", cure="copy the file again"
        ) from error


def _unpack(form: str, data: bytes | mmap.mmap, at: int) -> int:
    if at < 0:  # struct counts negative offsets from the end
        raise struct.error("offset before the start")
    value: int = struct.unpack_from(form, data, at)[0]
    return value
