"""Codes the operations of one frame: factors, classes, tokens, raw bits. Pure."""

from __future__ import annotations

import lzma
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.execute import RANGE_CODED
from vedette.delta.layout import CONTEXTS, GROUPS, SIDES, Operation, Table
from vedette.delta.predict import Block, magnitude_classes
from vedette.delta.stages import Stage, lzma_filters
from vedette.delta.varint import write
from vedette_fleet.delta.code_tokens import build_tables, encode_tokens
from vedette_fleet.delta.magnitude import classify

if TYPE_CHECKING:
    from vedette.delta.elements import Array
    from vedette_fleet.delta.choose import Choice, Chooser

MIN_CODED = 256  # fewer tokens are not worth the states of the lanes
FEW_LANES_BYTES = 8192  # up to here a lane's state costs more than the time that it saves is worth
BYTES_PER_LANE = 640
MIN_LANES, MAX_LANES = 8, 2048
# A step of all lanes takes the device 10 us, copying a byte compressed 25 ns: so many lanes for each token of
# a byte of the new file keep decoding well below three times that, also where tokens take next to no space.
LANES_FOR_TIME = 384
_SLAB = 1 << 16


def pack(raw: bytes) -> tuple[Stage, bytes]:
    """The smallest packing of a section."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    candidates = [
        (Stage.RAW, raw),
        (Stage.DEFLATE, deflate.compress(raw) + deflate.flush()),
        (Stage.LZMA, lzma.compress(raw, lzma.FORMAT_RAW, filters=lzma_filters())),
    ]
    return min(candidates, key=lambda candidate: len(candidate[1]))


@dataclass(frozen=True)
class Coded:
    """An operation with its classes, tokens, contexts and raw bits."""

    op: Operation
    factors: Array
    classes: bytes
    directions: Array
    tokens: Array
    contexts: Array
    raw_widths: Array
    raw: Array

    @classmethod
    def of(cls, chooser: Chooser, choice: Choice) -> Coded:
        """Code one operation."""
        if not choice.op.coded:
            none = np.zeros(0, np.int64)
            return cls(
                choice.op, choice.factors, b"", choice.directions, none.astype(np.uint8), none, none, none
            )
        op, rows, columns = classify(chooser, choice)
        tokens, widths, raw, side = chooser.tokens(replace(choice, op=op))
        classes = magnitude_classes(op, rows, columns, Block(0, op.rows, 0, op.columns))
        contexts = classes.astype(np.int64) * SIDES + side + op.group * CONTEXTS
        return cls(
            op,
            choice.factors,
            rows.tobytes() + columns.tobytes(),
            choice.directions,
            tokens.ravel(),
            contexts.ravel(),
            widths.ravel(),
            raw.ravel(),
        )

    def without_classes(self) -> Coded:
        """The same where one table serves all contexts, so that classes tell nothing."""
        return replace(self, op=replace(self.op, row_classes=False, column_classes=False), classes=b"")


def count_tables(frames: list[list[Coded]]) -> tuple[list[Table], bytes]:
    """Tables for the tokens of all frames, and which context uses which."""
    counts = np.zeros((GROUPS * CONTEXTS, 256), np.int64)
    for frame in frames:
        for coded in frame:
            joint = np.bincount(coded.contexts << 8 | coded.tokens, minlength=counts.size)
            counts += joint.reshape(counts.shape)
    return build_tables(counts)


def lanes_for_time(frames: list[list[Coded]], new_bytes: int) -> int:
    """The least number of lanes that decodes all these frames in time."""
    tokens = sum(coded.tokens.size for frame in frames for coded in frame)
    return max(MIN_LANES, LANES_FOR_TIME * tokens // max(1, new_bytes))


def frame_payload(frame: list[Coded], tables: list[Table], context_map: bytes, lanes: int) -> bytes:
    """A frame as `vedette.delta.execute.FrameContent` takes it apart, in at least so many lanes."""
    out = bytearray()
    factors = np.concatenate([coded.factors for coded in frame]).astype("<f4")
    _section(out, factors.view(np.uint8).reshape(-1, 4).T.tobytes())
    _section(out, b"".join(coded.classes for coded in frame))
    _section(out, b"".join(coded.directions.tobytes() for coded in frame))
    tokens = np.concatenate([coded.tokens for coded in frame])
    stage, packed = _pack_tokens(frame, tokens, tables, context_map, lanes)
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
    frame: list[Coded], tokens: Array, tables: list[Table], context_map: bytes, lanes: int
) -> tuple[int, bytes]:
    plain = pack(tokens.tobytes())
    if not tables or tokens.size < MIN_CODED:
        return plain
    table_of = np.frombuffer(context_map, np.uint8)[np.concatenate([coded.contexts for coded in frame])]
    lanes = int(
        np.clip(
            (len(plain[1]) - FEW_LANES_BYTES) // BYTES_PER_LANE,
            min(lanes, MAX_LANES),
            min(MAX_LANES, tokens.size),
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
    for start in range(0, widths.size, _SLAB):
        width, value = widths[start : start + _SLAB], values[start : start + _SLAB]
        first = np.repeat(np.cumsum(width) - width, width)
        bits.append(((np.repeat(value, width) >> (np.arange(first.size) - first)) & 1).astype(np.uint8))
    return np.packbits(np.concatenate(bits), bitorder="little").tobytes() if bits else b""
