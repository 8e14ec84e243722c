"""The steps of a bsdiff patch, executed as a stream. Pure: it reads and writes through what it is given.

A step is three numbers: add `diff` bytes to the old file's, take `extra` bytes as they are, then move in the
old file. Source: C. Percival, "Naive differences of executable code" (2003), and `bspatch` for the format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.varint import damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Read = Callable[[int], bytes]
    ReadAt = Callable[[int, int], bytes]
    Write = Callable[[bytes], object]

BLOCK_BYTES = 1 << 16
MAX_IDLE_STEPS = 4096
STEP_BYTES = 24
_SIGN = 1 << 63


def offtin(raw: bytes) -> int:
    """A number of the BSDIFF40 format: eight bytes, little-endian, sign and magnitude."""
    value = int.from_bytes(raw, "little")
    return -(value - _SIGN) if value & _SIGN else value


def offtout(value: int) -> bytes:
    """The inverse of `offtin`."""
    return (abs(value) | (_SIGN if value < 0 else 0)).to_bytes(8, "little")


def apply_steps(
    control: Read, diff: Read, extra: Read, *, old: ReadAt, old_bytes: int, write: Write, new_bytes: int
) -> None:
    """Make `new_bytes` bytes; each reader gives exactly what it is asked for, or raises.

    Raises:
        BadInputError: A step has a negative length, makes too much, or leaves the old file.
    """
    made = position = idle = 0
    while made < new_bytes:
        raw = control(STEP_BYTES)
        add, insert, move = (offtin(raw[at : at + 8]) for at in (0, 8, 16))
        if add < 0 or insert < 0 or add + insert > new_bytes - made:
            raise damaged("a step makes more than the file holds")
        idle = 0 if add or insert else idle + 1
        if idle > MAX_IDLE_STEPS:
            raise damaged("its steps make nothing")
        # bsdiff itself may look up to one match before the start or past the end; a byte there counts as 0.
        if add and not -new_bytes <= position <= old_bytes + new_bytes:
            raise damaged("a step leaves the old file")
        for size in _pieces(add):
            write(_added(diff(size), position, old, old_bytes))
            position += size
        for size in _pieces(insert):
            write(extra(size))
        made += add + insert
        position += move


def _pieces(size: int) -> Iterable[int]:
    for start in range(0, size, BLOCK_BYTES):
        yield min(BLOCK_BYTES, size - start)


def _added(piece: bytes, position: int, old: ReadAt, old_bytes: int) -> bytes:
    start, end = max(0, position), min(position + len(piece), old_bytes)
    total = np.frombuffer(piece, np.uint8).copy()
    if end > start:
        before = old(start, end - start)
        if len(before) != end - start:
            raise damaged("a step reads where the old file has nothing")
        total[start - position : end - position] += np.frombuffer(before, np.uint8)
    summed: bytes = total.tobytes()
    return summed
