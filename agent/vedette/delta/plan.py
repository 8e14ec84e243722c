"""Reads and writes the header and plan of a tensor delta. Pure; the layout is described in `layout`."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from vedette.delta.check_plan import check_plan
from vedette.delta.elements import ELEMENTS
from vedette.delta.layout import (
    CONTEXTS,
    GROUPS,
    MAX_OPERATIONS,
    MAX_PLAN_BYTES,
    MAX_SIZE_BYTES,
    MAX_TABLES,
    PROBABILITY_BITS,
    Frame,
    Growth,
    Operation,
    Plan,
    Predictor,
    Table,
)
from vedette.delta.stages import Stage, stage_of, unpack
from vedette.delta.varint import Cursor, damaged, write, write_signed

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"VTD1"
HEADER = struct.Struct("<4sBQQIII")


def build_plan(plan: Plan, pack: Callable[[bytes], tuple[Stage, bytes]]) -> bytes:
    """Header and packed plan."""
    raw = bytearray()
    write(raw, len(plan.frames))
    for frame in plan.frames:
        write(raw, len(frame.operations))
        write(raw, frame.size_bytes)
    _write_operations(raw, plan.operations)
    write(raw, len(plan.tables))
    for table in plan.tables:
        _write_table(raw, table)
    raw += plan.context_map if plan.tables else b""
    for frame in plan.frames:
        raw += struct.pack("<II", frame.payload_crc, frame.output_crc)
    stage, packed = pack(bytes(raw))
    fields = (MAGIC, int(stage), plan.old_bytes, plan.new_bytes, len(raw), len(packed))
    check = zlib.crc32(packed, zlib.crc32(HEADER.pack(*fields, 0)))
    return HEADER.pack(*fields, check) + packed


def plan_size_bytes(head: bytes) -> int:
    """How long header and plan are, from the header.

    Raises:
        BadInputError: Not a tensor delta, or too large.
    """
    if len(head) < HEADER.size or head[:4] != MAGIC:
        raise damaged("it is no tensor delta")
    _, _, _, _, raw_bytes, packed_bytes, _ = HEADER.unpack_from(head)
    if max(raw_bytes, packed_bytes) > MAX_PLAN_BYTES:
        raise damaged(f"a plan of {raw_bytes} bytes; {MAX_PLAN_BYTES} is the limit")
    return HEADER.size + int(packed_bytes)


def parse_plan(raw: bytes) -> Plan:
    """Read header and plan, and check that every operation stays inside the two files.

    Raises:
        BadInputError: Damaged, or a value that cannot be right.
    """
    packed = raw[HEADER.size : plan_size_bytes(raw)]
    magic, stage, old_bytes, new_bytes, raw_bytes, packed_bytes, check = HEADER.unpack_from(raw)
    blank = HEADER.pack(magic, stage, old_bytes, new_bytes, raw_bytes, packed_bytes, 0)
    if zlib.crc32(packed, zlib.crc32(blank)) != check:
        raise damaged("the checksum of its plan does not match")
    if max(old_bytes, new_bytes) > MAX_SIZE_BYTES:
        raise damaged(f"files of {old_bytes} and {new_bytes} bytes; {MAX_SIZE_BYTES} is the limit")
    cursor = Cursor(unpack(stage_of(stage), packed, raw_bytes))
    heads = [
        (cursor.number("operations of a frame", MAX_OPERATIONS), cursor.number("frame size", MAX_SIZE_BYTES))
        for _ in range(cursor.number("frames", MAX_OPERATIONS))
    ]
    if not heads or heads[0][0]:
        raise damaged("it has no skeleton")
    operations = _read_operations(cursor, sum(count for count, _ in heads))
    tables = tuple(_read_table(cursor) for _ in range(cursor.number("tables", MAX_TABLES)))
    context_map = cursor.take(GROUPS * CONTEXTS, "context map") if tables else bytes(GROUPS * CONTEXTS)
    if tables and max(context_map) >= len(tables):
        raise damaged("a context names a table that is not there")
    frames = []
    for count, size in heads:
        payload_crc, output_crc = struct.unpack("<II", cursor.take(8, "checksums"))
        frames.append(Frame(tuple(operations[:count]), size, payload_crc, output_crc))
        del operations[:count]
    cursor.finish("plan")
    plan = Plan(old_bytes, new_bytes, tuple(frames), tables, context_map)
    check_plan(plan)
    return plan


def _write_operations(out: bytearray, operations: tuple[Operation, ...]) -> None:
    target = source = scale_source = scale_shift = 0
    columns: list[list[int]] = []
    for op in operations:
        growth = op.growth or Growth(0, 0, 0)
        flags = op.by_column | op.row_classes << 1 | op.column_classes << 2
        source_step = op.source - source - (op.target - target) if op.source_bytes else 0
        scaled = op.predictor is Predictor.SCALE
        shift = op.scale_target - op.scale_source
        product_step = op.scale_target - op.target if op.predictor is Predictor.PRODUCT else 0
        columns.append(
            [
                op.target - target, op.rows, op.columns, op.element.code, op.predictor, source_step, flags,
                op.base_class, op.shift, op.reference, op.centre,
                op.scale_source - scale_source if scaled else 0,
                shift - scale_shift if scaled else product_step,
                op.scales, growth.old, growth.new, growth.inner, op.rank,
            ]
        )  # fmt: skip
        target = op.end
        source = op.source + op.source_bytes if op.source_bytes else source + op.size_bytes
        if scaled:
            scale_source, scale_shift = op.scale_source, shift
    for column in zip(*columns, strict=True):
        for value in column:
            write_signed(out, value)


_COLUMNS = 18


def _read_operations(cursor: Cursor, count: int) -> list[Operation]:
    if count > MAX_OPERATIONS:
        raise damaged(f"{count} operations; {MAX_OPERATIONS} is the limit")
    if not count:
        return []
    columns = [[cursor.signed("operation") for _ in range(count)] for _ in range(_COLUMNS)]
    target = source = scale_source = scale_shift = 0
    operations = []
    for step, rows, width, code, kind, source_step, flags, *rest in zip(*columns, strict=True):
        base, shift, reference, centre, scale_step, shift_step, scales, old, new, inner, rank = rest
        if not (0 <= code < len(ELEMENTS) and 0 <= kind < len(Predictor) and 0 <= flags < 8):
            raise damaged("an operation of an unknown kind")
        if min(rows, width) < 1 or max(rows, width) > MAX_SIZE_BYTES:
            raise damaged(f"an operation of {rows} x {width} elements")
        scaled = kind == Predictor.SCALE
        start = target + step
        if scaled:
            scale_source += scale_step
            scale_shift += shift_step
        op = Operation(
            target=start, rows=rows, columns=width, element=ELEMENTS[code], predictor=Predictor(kind),
            source=source + step + source_step, by_column=bool(flags & 1), row_classes=bool(flags & 2),
            column_classes=bool(flags & 4), base_class=base, shift=shift, reference=reference, centre=centre,
            scale_source=scale_source if scaled else 0,
            scale_target=scale_source + scale_shift if scaled else start + shift_step,
            scales=scales, growth=Growth(old, new, inner) if new else None, rank=rank,
        )  # fmt: skip
        operations.append(op)
        target = op.end
        source = op.source + op.source_bytes if op.source_bytes else source + op.size_bytes
    return operations


def _write_table(out: bytearray, table: Table) -> None:
    write(out, len(table.symbols))
    last = -1
    for symbol, frequency in zip(table.symbols, table.frequencies, strict=True):
        write(out, symbol - last - 1)
        write(out, frequency)
        last = symbol


def _read_table(cursor: Cursor) -> Table:
    symbols: list[int] = []
    frequencies = []
    last = -1
    for _ in range(cursor.number("symbols of a table", 256)):
        last += cursor.number("symbol", 255) + 1
        symbols.append(last)
        frequencies.append(cursor.number("frequency", 1 << PROBABILITY_BITS))
    if last > 255 or sum(frequencies) != 1 << PROBABILITY_BITS or 0 in frequencies:
        raise damaged("a table of frequencies does not add up")
    return Table(tuple(symbols), tuple(frequencies))
