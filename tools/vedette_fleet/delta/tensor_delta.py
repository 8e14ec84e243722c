"""Makes a tensor delta: chooses operations, splits them into frames, codes each frame. Pure.

The format is that of `vedette.delta.layout`; what is made is executed once with the device's own code.
"""

from __future__ import annotations

import lzma
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import bsdiff4.core
import numpy as np

from vedette.delta.bsdiff import offtout
from vedette.delta.elements import Array
from vedette.delta.execute import RANGE_CODED, Executor
from vedette.delta.layout import (
    CONTEXTS,
    GROUPS,
    MAX_FRAME_BYTES,
    MAX_OPERATIONS,
    Frame,
    Operation,
    Plan,
    Predictor,
    Table,
    build_plan,
    parse_plan,
    plan_size_bytes,
    skeleton_ranges,
)
from vedette.delta.predict import Block, magnitude_classes
from vedette.delta.stages import Stage, lzma_filters
from vedette.delta.varint import write
from vedette.errors import InternalError
from vedette_fleet.delta.align import align
from vedette_fleet.delta.choose import Choice, Chooser
from vedette_fleet.delta.code_tokens import build_tables, encode_tokens
from vedette_fleet.delta.locate import locate
from vedette_fleet.delta.magnitude import classify
from vedette_fleet.delta.products import find_products

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_CODED = 256  # fewer tokens are not worth the states of the lanes
BYTES_PER_LANE = 640
MAX_USED_LANES = 2048
_SMALL = 1 << 16


def encode_tensor(old: bytes, new: bytes) -> bytes:
    """A tensor delta from `old` to `new`; where no tensors are found it is a bsdiff in frames.

    Raises:
        InternalError: Executing the delta does not give the new file.
    """
    steps = _order(_choices(old, new), new)
    coded = [[_Coded.of(Chooser(old, new), choice) for choice in frame] for frame in steps]
    tables, context_map = _tables(coded)
    smallest = min(
        (_assemble(old, new, coded, *model) for model in ((tables, context_map), ([], b""))), key=len
    )
    if apply_tensor(old, smallest) != new:
        raise InternalError("a tensor delta does not give back the file that it was made for")
    return smallest


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


def pack(raw: bytes) -> tuple[Stage, bytes]:
    """The smallest packing of a section."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    candidates = [
        (Stage.RAW, raw),
        (Stage.DEFLATE, deflate.compress(raw) + deflate.flush()),
        (Stage.LZMA, lzma.compress(raw, lzma.FORMAT_RAW, filters=lzma_filters())),
    ]
    return min(candidates, key=lambda candidate: len(candidate[1]))


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


def _choices(old: bytes, new: bytes) -> list[Choice]:
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
    found = _merge_copies(found, old, new)
    return found if len(found) <= MAX_OPERATIONS // 2 else []


def _merge_copies(choices: list[Choice], old: bytes, new: bytes) -> list[Choice]:
    """Neighbouring copies with the same bytes between them become one."""
    merged: list[Choice] = []
    for choice in choices:
        last, op = merged[-1].op if merged else None, choice.op
        if (
            last is not None
            and last.predictor is op.predictor is Predictor.COPY
            and op.source - last.source == op.target - last.target
            and old[last.source + last.size_bytes : op.source] == new[last.end : op.target]
        ):
            merged[-1] = Choice(replace(last, columns=op.end - last.target))
        else:
            merged.append(choice)
    return merged


def _order(choices: list[Choice], new: bytes) -> list[list[Choice]]:
    """Frames of operations; what reads the new file comes after the frames that make it."""
    del new
    later = {Predictor.PRODUCT: 1, Predictor.SCALE: 2}
    frames: list[list[Choice]] = []
    for phase in range(3):
        filled = MAX_FRAME_BYTES + 1
        for whole in choices:
            if later.get(whole.op.predictor, 0) != phase:
                continue
            for choice in _parts(whole):
                size = choice.op.size_bytes if choice.op.coded else 0
                if filled + size > MAX_FRAME_BYTES:
                    frames.append([])
                    filled = 0
                frames[-1].append(choice)
                filled += size
    return frames


def _parts(choice: Choice) -> Iterator[Choice]:
    """An operation cut so that each part fits a frame."""
    op = choice.op
    if not op.coded or op.size_bytes <= MAX_FRAME_BYTES:
        yield choice
        return
    row_bytes = op.columns * op.element.size
    if row_bytes > MAX_FRAME_BYTES:
        yield from _column_parts(choice)
        return
    step = MAX_FRAME_BYTES // row_bytes
    per_row = not op.by_column and op.scales == op.rows
    for row in range(0, op.rows, step):
        rows = min(step, op.rows - row)
        part = replace(op, target=op.target + row * row_bytes, rows=rows, source=op.source + row * row_bytes)
        factors = choice.factors
        if per_row:
            part = replace(
                part,
                scales=rows,
                scale_source=op.scale_source + 4 * row,
                scale_target=op.scale_target + 4 * row,
            )
            factors = factors[row : row + rows]
        yield Choice(part, factors)


def _column_parts(choice: Choice) -> Iterator[Choice]:
    """Rows that are too long: they are cut too, and factors of columns, which would be cut, are given up."""
    op, factors = choice.op, choice.factors
    if op.by_column:
        op, factors = (
            replace(op, predictor=Predictor.OLD, by_column=False, scales=0, scale_source=0, scale_target=0),
            factors[:0],
        )
    step = MAX_FRAME_BYTES // op.element.size
    row_bytes = op.columns * op.element.size
    for row in range(op.rows):
        own = min(row, op.scales - 1) if op.scales else 0
        for column in range(0, op.columns, step):
            at = row * row_bytes + column * op.element.size
            part = replace(
                op,
                target=op.target + at,
                rows=1,
                columns=min(step, op.columns - column),
                source=op.source + at,
            )
            if op.scales:
                part = replace(
                    part,
                    scales=1,
                    scale_source=op.scale_source + 4 * own,
                    scale_target=op.scale_target + 4 * own,
                )
            yield Choice(part, factors[own : own + 1])


@dataclass(frozen=True)
class _Coded:
    """An operation with its classes, tokens, contexts and raw bits."""

    op: Operation
    factors: Array
    classes: bytes
    tokens: Array
    contexts: Array
    raw_widths: Array
    raw: Array

    @classmethod
    def of(cls, chooser: Chooser, choice: Choice) -> _Coded:
        if not choice.op.coded:
            none = np.zeros(0, np.int64)
            return cls(choice.op, choice.factors, b"", none.astype(np.uint8), none, none, none)
        op, rows, columns = classify(chooser, choice)
        tokens, widths, raw, side = chooser.tokens(replace(choice, op=op))
        classes = magnitude_classes(op, rows, columns, Block(0, op.rows, 0, op.columns))
        contexts = classes.astype(np.int64) * 16 + side + op.group * CONTEXTS
        return cls(
            op,
            choice.factors,
            rows.tobytes() + columns.tobytes(),
            tokens.ravel(),
            contexts.ravel(),
            widths.ravel(),
            raw.ravel(),
        )


def _tables(frames: list[list[_Coded]]) -> tuple[list[Table], bytes]:
    counts = np.zeros((GROUPS * CONTEXTS, 256), np.int64)
    for frame in frames:
        for coded in frame:
            joint = np.bincount(coded.contexts << 8 | coded.tokens, minlength=counts.size)
            counts += joint.reshape(counts.shape)
    return build_tables(counts)


def _assemble(
    old: bytes, new: bytes, frames: list[list[_Coded]], tables: list[Table], context_map: bytes
) -> bytes:
    drafts = [Frame(tuple(coded.op for coded in frame), 0, 0, 0) for frame in frames]
    skeleton = Frame((), 0, 0, 0)
    plan = Plan(
        len(old), len(new), (skeleton, *drafts), tuple(tables), context_map or bytes(GROUPS * CONTEXTS)
    )
    old_ranges, new_ranges = skeleton_ranges(plan)
    made = b"".join(new[start:end] for start, end in new_ranges)
    payloads = [_skeleton(b"".join(old[start:end] for start, end in old_ranges), made)]
    outputs = [zlib.crc32(made)]
    for frame in frames:
        payloads.append(_payload(frame, tables, context_map))
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


def _payload(frame: list[_Coded], tables: list[Table], context_map: bytes) -> bytes:
    out = bytearray()
    factors = np.concatenate([coded.factors for coded in frame]).astype("<f4")
    _section(out, factors.view(np.uint8).reshape(-1, 4).T.tobytes())
    _section(out, b"".join(coded.classes for coded in frame))
    tokens = np.concatenate([coded.tokens for coded in frame])
    stage, packed = _pack_tokens(frame, tokens, tables, context_map)
    raw = pack_bits(
        np.concatenate([coded.raw_widths for coded in frame]), np.concatenate([coded.raw for coded in frame])
    )
    write(out, stage)
    write(out, len(packed))
    out += packed
    write(out, len(raw))
    return bytes(out + raw)


def _section(out: bytearray, raw: bytes) -> None:
    if raw:
        stage, packed = pack(raw)
        write(out, stage)
        write(out, len(packed))
        out += packed


def _pack_tokens(
    frame: list[_Coded], tokens: Array, tables: list[Table], context_map: bytes
) -> tuple[int, bytes]:
    plain = pack(tokens.tobytes())
    if not tables or tokens.size < MIN_CODED:
        return plain
    table_of = np.frombuffer(context_map, np.uint8)[np.concatenate([coded.contexts for coded in frame])]
    lanes = int(
        np.clip(
            len(plain[1]) // BYTES_PER_LANE, max(8, tokens.size // 16384), min(MAX_USED_LANES, tokens.size)
        )
    )
    words, states = encode_tokens(tokens, table_of, tables, lanes)
    out = bytearray()
    write(out, lanes)
    coded = bytes(out) + states.tobytes() + words.tobytes()
    return (RANGE_CODED, coded) if len(coded) < len(plain[1]) else plain


def pack_bits(widths: Array, values: Array) -> bytes:
    """Concatenate values of so many bits each, lowest bit first."""
    bits = []
    for start in range(0, widths.size, _SMALL):
        width, value = widths[start : start + _SMALL], values[start : start + _SMALL]
        first = np.repeat(np.cumsum(width) - width, width)
        bits.append(((np.repeat(value, width) >> (np.arange(first.size) - first)) & 1).astype(np.uint8))
    return np.packbits(np.concatenate(bits), bitorder="little").tobytes() if bits else b""
