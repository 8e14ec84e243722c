"""Makes a tensor delta: chooses operations, splits them into frames, codes each frame. Pure.

The format is that of `vedette.delta.layout`; what is made is executed once with the device's own code.
"""

from __future__ import annotations

import contextlib
import zlib
from dataclasses import dataclass, replace

import bsdiff4.core

from vedette.delta.execute import Executor
from vedette.delta.layout import (
    CONTEXTS,
    GROUPS,
    MAX_OPERATIONS,
    MAX_PAYLOAD_BYTES,
    Frame,
    Plan,
    Predictor,
    Table,
    skeleton_ranges,
)
from vedette.delta.plan import build_plan, parse_plan, plan_size_bytes
from vedette.delta.varint import write
from vedette.errors import BadInputError, InternalError, VedetteError
from vedette_fleet.delta.align import align
from vedette_fleet.delta.choose import Choice, Chooser
from vedette_fleet.delta.code_frame import Coded, count_tables, frame_payload, lanes_for_time, pack
from vedette_fleet.delta.frames import merge_copies, order
from vedette_fleet.delta.locate import locate
from vedette_fleet.delta.products import find_products

_QUICK_SLACK = 1.3  # LZMA may be so much better than the quickest deflate


class UnsuitableError(VedetteError):
    """A pair of files that the tensor codec cannot do within the device's memory; others can."""

    exit_code = BadInputError.exit_code


def encode_tensor(old: bytes, new: bytes) -> bytes:
    """A tensor delta from `old` to `new`; where no tensors are found it is a bsdiff in frames.

    Raises:
        UnsuitableError: Too much of the new file is no tensor.
        InternalError: Executing the delta does not give the new file.
    """
    choices = choose_operations(old, new)
    smallest = _encode(old, new, choices)
    chooser = Chooser(old, new)
    plain = {id(choice) for choice in choices if packs_better(chooser, choice, new)}
    if plain:
        with contextlib.suppress(UnsuitableError):
            lighter = _encode(old, new, [choice for choice in choices if id(choice) not in plain])
            smallest = min(smallest, lighter, key=len)
    if apply_tensor(old, smallest) != new:
        raise InternalError("a tensor delta does not give back the file that it was made for")
    return smallest


def packs_better(chooser: Chooser, choice: Choice, new: bytes) -> bool:
    """Whether plain packing, in the skeleton, does better than any prediction: zeros, patterns, tables."""
    op = choice.op
    if not op.coded or op.size_bytes > MAX_PAYLOAD_BYTES:
        return False
    content = new[op.target : op.end]
    cost_bytes = chooser.cost(choice) / 8
    quick = len(zlib.compress(content, 1))
    return quick < _QUICK_SLACK * cost_bytes and len(pack(content)[1]) < cost_bytes


def _encode(old: bytes, new: bytes, choices: list[Choice]) -> bytes:
    chooser = Chooser(old, new)
    coded = [[Coded.of(chooser, choice) for choice in frame] for frame in order(choices)]
    tables, context_map = count_tables(coded)
    if len(tables) <= 1:
        coded = [[each.without_classes() for each in frame] for frame in coded]
    return min((_assemble(old, new, coded, *model) for model in ((tables, context_map), ([], b""))), key=len)


def apply_tensor(old: bytes, patch: bytes) -> bytes:
    """Execute a tensor delta in memory.

    Raises:
        BadInputError: It is damaged, or was made for another old file.
    """
    at = plan_size_bytes(patch)
    plan = parse_plan(patch[:at])
    target = _Memory(old, bytearray(plan.new_bytes))
    executor = Executor(plan, target)
    for index, frame in enumerate(plan.frames):
        executor.execute(index, patch[at : at + frame.size_bytes])
        at += frame.size_bytes
    return bytes(target.made)


@dataclass
class _Memory:
    base: bytes
    made: bytearray

    def old(self, offset: int, size: int) -> bytes:
        return self.base[offset : offset + size]

    def new(self, offset: int, size: int) -> bytes:
        return bytes(self.made[offset : offset + size])

    def write(self, offset: int, piece: bytes) -> None:
        self.made[offset : offset + len(piece)] = piece


def choose_operations(old: bytes, new: bytes) -> list[Choice]:
    """Every operation of a delta, in file order, uncut."""
    olds, news = locate(old), locate(new)
    mates = align(old, olds, new, news)
    products = find_products(new, news)
    chooser = Chooser(old, new)
    found = []
    for index, tensor in enumerate(news):
        choice = chooser.choose(tensor, mates.get(index))
        if index in products and (choice is None or choice.op.predictor is not Predictor.COPY):
            choice = products[index]
        if choice is not None:
            found.append(choice)
    # A cut tensor becomes several operations, so half of them is kept free.
    largest = sorted(merge_copies(found, old, new), key=lambda choice: -choice.op.size_bytes)
    return sorted(largest[: MAX_OPERATIONS // 2], key=lambda choice: choice.op.target)


def _assemble(
    old: bytes, new: bytes, frames: list[list[Coded]], tables: list[Table], context_map: bytes
) -> bytes:
    drafts = [Frame(tuple(coded.op for coded in frame), 0, 0, 0) for frame in frames]
    skeleton = Frame((), 0, 0, 0)
    plan = Plan(
        len(old), len(new), (skeleton, *drafts), tuple(tables), context_map or bytes(GROUPS * CONTEXTS)
    )
    old_ranges, new_ranges = skeleton_ranges(plan)
    made = b"".join(new[start:end] for start, end in new_ranges)
    payloads = [_skeleton(b"".join(old[start:end] for start, end in old_ranges), made)]
    if len(payloads[0]) > MAX_PAYLOAD_BYTES:
        raise UnsuitableError(
            f"{len(payloads[0])} bytes of the delta are about no tensor; {MAX_PAYLOAD_BYTES} is the limit",
            cure="use the codec bsdiff4",
        )
    outputs = [zlib.crc32(made)]
    lanes = lanes_for_time(frames, len(new))
    for frame in frames:
        payloads.append(frame_payload(frame, tables, context_map, lanes))
        crc = 0
        for coded in frame:
            crc = zlib.crc32(new[coded.op.target : coded.op.end], crc)
        outputs.append(crc)
    done = [
        Frame(draft.operations, len(payload), zlib.crc32(payload), crc)
        for draft, payload, crc in zip((skeleton, *drafts), payloads, outputs, strict=True)
    ]
    return build_plan(replace(plan, frames=tuple(done)), pack) + b"".join(payloads)


def _skeleton(old: bytes, new: bytes) -> bytes:
    control, diff, extra = bsdiff4.core.diff(old, new) if new else (b"", b"", b"")
    out = bytearray()
    for section in (control, diff, extra):
        stage, packed = pack(section)
        write(out, stage)
        write(out, len(section))
        write(out, len(packed))
        out += packed
    return bytes(out)
