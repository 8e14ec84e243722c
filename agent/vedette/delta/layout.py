"""The tensor delta's layout: header, plan and frames. Pure.

A patch is a header, a packed plan, and frames. Frame 0 is the skeleton: every byte of the new file that no
operation makes, as a bsdiff of the old file's bytes that no operation reads. Each further frame executes the
operations that the plan gives it. An operation says where its elements go, what predicts them and from where;
no model format is known here. A frame depends only on the old file and on frames before it, and carries
checksums of itself and of what it makes, so work can stop after any frame and go on from there.

Integers are little-endian. The plan is stored column by column, as numbers of variable length.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from vedette.delta.elements import ELEMENTS, Element
from vedette.delta.stages import Stage, stage_of, unpack
from vedette.delta.varint import Cursor, damaged, write, write_signed

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"VTD1"
HEADER = struct.Struct("<4sBQQIII")
MAX_SIZE_BYTES = 1 << 31
MAX_PLAN_BYTES = 1 << 20
MAX_OPERATIONS = 16384
MAX_FRAME_BYTES = 2 << 20  # output of one frame; copies and products, which need no tokens, do not count
MAX_GROWN_BYTES = 4 << 20
MAX_TABLES = 32
CLASSES = 16
SIDES = 16
CONTEXTS = CLASSES * SIDES
GROUPS = 5  # contexts are apart for: bytes, wider integers, short floats, floats, unpredicted floats
PROBABILITY_BITS = 14


class Predictor(IntEnum):
    """What stands in for an element before its residual is added."""

    CONSTANT = 0  # the centre
    COPY = 1  # the old bytes, no residual
    OLD = 2
    SCALE = 3  # old times the ratio of old and new quantisation scale
    GAIN = 4  # old times a factor that the patch carries
    THRESHOLD = 5  # old, or 0 where its magnitude is at most a limit that the patch carries
    PRODUCT = 6  # a vector of the new file times a factor, no residual


@dataclass(frozen=True)
class Growth:
    """The old tensor had another length along one axis: (outer, old, inner) became (outer, new, inner)."""

    old: int
    new: int
    inner: int


@dataclass(frozen=True)
class Operation:
    """Makes rows x columns elements at `target`; offsets are bytes in the old or (said so) the new file.

    `by_column` tells whether scales and factors belong to columns. `scales` is how many there are, repeated
    to the axis' length. `row_classes` and `column_classes`: magnitude classes follow in the frame.
    `reference` is the exponent that counts as class 0 of a float's side.
    """

    target: int
    rows: int
    columns: int
    element: Element
    predictor: Predictor
    source: int = 0
    by_column: bool = False
    row_classes: bool = False
    column_classes: bool = False
    base_class: int = 0
    shift: int = 0
    reference: int = 0
    centre: int = 0
    scale_source: int = 0
    scale_target: int = 0
    scales: int = 0
    growth: Growth | None = None

    @property
    def count(self) -> int:
        """Elements."""
        return self.rows * self.columns

    @property
    def size_bytes(self) -> int:
        """Output bytes."""
        return self.count * self.element.size

    @property
    def end(self) -> int:
        """Where its output ends."""
        return self.target + self.size_bytes

    @property
    def source_bytes(self) -> int:
        """Bytes of the old file that it covers; 0 when it reads none."""
        if self.predictor in {Predictor.CONSTANT, Predictor.PRODUCT}:
            return 0
        if self.growth is None:
            return self.size_bytes
        return self.size_bytes // max(1, self.growth.new) * self.growth.old

    @property
    def coded(self) -> bool:
        """Whether a residual follows."""
        return self.predictor not in {Predictor.COPY, Predictor.PRODUCT}

    @property
    def untouched(self) -> bool:
        """A float without a prediction, coded by its top byte."""
        return self.predictor is Predictor.CONSTANT and self.element.is_float

    @property
    def factors(self) -> int:
        """How many float32 parameters follow in the frame."""
        if self.predictor is Predictor.PRODUCT:
            return 1
        if self.predictor in {Predictor.GAIN, Predictor.THRESHOLD}:
            return self.scales
        return 0

    @property
    def group(self) -> int:
        """Which set of contexts its tokens use."""
        if self.untouched:
            return 4
        if self.element.is_float:
            return 2 if self.element.size == 2 else 3
        return 0 if self.element.size == 1 else 1


@dataclass(frozen=True)
class Frame:
    """One step; checksums are CRC-32 of its payload and of its output, in the order of its operations."""

    operations: tuple[Operation, ...]
    size_bytes: int
    payload_crc: int
    output_crc: int


@dataclass(frozen=True)
class Table:
    """Frequencies of the tokens of one context class; they sum to 2 ** PROBABILITY_BITS."""

    symbols: tuple[int, ...]
    frequencies: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """All that is known before the first frame. `context_map[group * CONTEXTS + context]` is a table."""

    old_bytes: int
    new_bytes: int
    frames: tuple[Frame, ...]
    tables: tuple[Table, ...]
    context_map: bytes

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Of all frames."""
        return tuple(operation for frame in self.frames for operation in frame.operations)


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
    _check(plan)
    return plan


def gaps(taken: list[tuple[int, int]], size_bytes: int) -> list[tuple[int, int]]:
    """The ranges of a file that are in none of `taken`."""
    found = []
    at = 0
    for start, end in sorted(taken):
        if start > at:
            found.append((at, start))
        at = max(at, end)
    if size_bytes > at:
        found.append((at, size_bytes))
    return found


def skeleton_ranges(plan: Plan) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Ranges of the old and of the new file that no operation reads or makes."""
    sources = [(op.source, op.source + op.source_bytes) for op in plan.operations if op.source_bytes]
    return gaps(sources, plan.old_bytes), gaps(
        [(op.target, op.end) for op in plan.operations], plan.new_bytes
    )


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
                op.scales, growth.old, growth.new, growth.inner,
            ]
        )  # fmt: skip
        target = op.end
        source = op.source + op.source_bytes if op.source_bytes else source + op.size_bytes
        if scaled:
            scale_source, scale_shift = op.scale_source, shift
    for column in zip(*columns, strict=True):
        for value in column:
            write_signed(out, value)


_COLUMNS = 17


def _read_operations(cursor: Cursor, count: int) -> list[Operation]:
    if count > MAX_OPERATIONS:
        raise damaged(f"{count} operations; {MAX_OPERATIONS} is the limit")
    if not count:
        return []
    columns = [[cursor.signed("operation") for _ in range(count)] for _ in range(_COLUMNS)]
    target = source = scale_source = scale_shift = 0
    operations = []
    for step, rows, width, code, kind, source_step, flags, *rest in zip(*columns, strict=True):
        base, shift, reference, centre, scale_step, shift_step, scales, old, new, inner = rest
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
            scales=scales, growth=Growth(old, new, inner) if new else None,
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


def _check(plan: Plan) -> None:
    made = sorted((op.target, op.end) for op in plan.operations)
    for (_, end), (start, _) in zip(made, made[1:], strict=False):
        if end > start:
            raise damaged("two operations make the same bytes")
    for frame in plan.frames:
        coded = sum(op.size_bytes for op in frame.operations if op.coded)
        if coded > MAX_FRAME_BYTES:
            raise damaged(f"a frame of {coded} bytes; {MAX_FRAME_BYTES} is the limit")
        for op in frame.operations:
            _check_operation(op, plan)


def _check_operation(op: Operation, plan: Plan) -> None:
    inside_new = op.target >= 0 and op.end <= plan.new_bytes
    inside_old = not op.source_bytes or (op.source >= 0 and op.source + op.source_bytes <= plan.old_bytes)
    if not (inside_new and inside_old):
        raise damaged("an operation leaves the file")
    numbers = 0 <= op.base_class < CLASSES and 0 <= op.shift < op.element.bits and 0 <= op.reference <= 255
    limit = 1 << op.element.bits - 1
    if not numbers or not -limit <= op.centre <= 2 * limit - 1 or (op.shift and not op.element.is_float):
        raise damaged("an operation's numbers make no sense")
    axis = op.columns if op.by_column else op.rows
    if op.predictor in {Predictor.SCALE, Predictor.GAIN, Predictor.THRESHOLD}:
        if not 1 <= op.scales <= axis or axis % op.scales or op.element.name == "bfloat16":
            raise damaged(f"{op.scales} factors for an axis of {axis}")
    elif op.scales:
        raise damaged("factors where none are used")
    if op.predictor is Predictor.SCALE:
        reads_old = 0 <= op.scale_source <= plan.old_bytes - 4 * op.scales
        if op.element.is_float or not reads_old or not 0 <= op.scale_target <= plan.new_bytes - 4 * op.scales:
            raise damaged("scales lie outside of the file")
    if op.predictor is Predictor.PRODUCT and (
        op.element.name != "float32" or not 0 <= op.scale_target <= plan.new_bytes - op.size_bytes
    ):
        raise damaged("the vector of a product lies outside of the file")
    if op.growth is not None:
        _check_growth(op, op.growth)


def _check_growth(op: Operation, growth: Growth) -> None:
    known = op.predictor in {Predictor.OLD, Predictor.SCALE, Predictor.GAIN, Predictor.THRESHOLD}
    block = growth.new * growth.inner
    if not known or min(growth.old, growth.new, growth.inner) < 1 or op.count % block:
        raise damaged("a grown axis that does not fit its tensor")
    if max(op.source_bytes, op.size_bytes) > MAX_GROWN_BYTES:
        raise damaged(f"a grown tensor above {MAX_GROWN_BYTES} bytes")
