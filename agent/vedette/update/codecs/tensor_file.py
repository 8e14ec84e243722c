"""A tensor delta applied frame by frame to files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vedette.delta.execute import Executor
from vedette.delta.plan import HEADER, parse_plan, plan_size_bytes
from vedette.delta.varint import damaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.fsops import DurableFile
    from vedette.update.codecs.input_file import InputFile


def tensor_size_bytes(blob: InputFile) -> int:
    """The size of the new file, as the plan says.

    Raises:
        BadInputError: No tensor delta.
    """
    return parse_plan(_plan_bytes(blob)).new_bytes


def decode_tensor(
    blob: InputFile,
    old: InputFile,
    out: DurableFile,
    size_bytes: int,
    *,
    start: int = 0,
    done: Callable[[int, int], None] | None = None,
) -> None:
    """Execute the frames from `start` on; with `done`, each is synced and reported.

    Raises:
        BadInputError: Damaged, made for an old file of another size, or another size than the manifest's.
        OSError: The disk.
    """
    head = _plan_bytes(blob)
    plan = parse_plan(head)
    if plan.new_bytes != size_bytes:
        raise damaged(f"it makes {plan.new_bytes} bytes; the manifest says {size_bytes}")
    if plan.old_bytes != old.size_bytes:
        raise damaged(f"it was made for a file of {plan.old_bytes} bytes, this one has {old.size_bytes}")
    ends = len(head)
    offsets = []
    for frame in plan.frames:
        offsets.append(ends)
        ends += frame.size_bytes
    if ends != blob.size_bytes:
        raise damaged(f"{blob.size_bytes} bytes where its frames end at {ends}")
    if not 0 <= start <= len(plan.frames):
        raise damaged(f"frame {start} of {len(plan.frames)}")
    executor = Executor(plan, _FilePair(old, out, size_bytes))
    for index in range(start, len(plan.frames)):
        executor.execute(index, blob.read_at(offsets[index], plan.frames[index].size_bytes))
        if done is not None:
            out.sync()
            done(index + 1, len(plan.frames))


class _FilePair:
    """The files as the executor sees them."""

    def __init__(self, old: InputFile, out: DurableFile, size_bytes: int) -> None:
        self._out = out
        self._size_bytes = size_bytes
        self.old = old.read_at

    def new(self, offset: int, size: int) -> bytes:
        piece = os.pread(self._out.descriptor, size, offset)
        if len(piece) != size:
            raise damaged("an operation reads behind the end of the new file")
        return piece

    def write(self, offset: int, piece: bytes) -> None:
        if offset + len(piece) > self._size_bytes:
            raise damaged("an operation writes behind the end of the new file")
        self._out.write_at(piece, offset)


def _plan_bytes(blob: InputFile) -> bytes:
    head = blob.read_at(0, min(HEADER.size, blob.size_bytes))
    return blob.read_at(0, plan_size_bytes(head))
