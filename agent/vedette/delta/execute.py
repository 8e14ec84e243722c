"""Executes the frames of a tensor delta. Pure: files are read and written through what it is given."""

from __future__ import annotations

import bisect
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vedette.delta import bsdiff, rans
from vedette.delta.elements import Array, BitReader, from_image, join, join_top, raw_widths
from vedette.delta.layout import (
    CLASSES,
    CONTEXTS,
    MAX_FRAME_BYTES,
    MAX_SIZE_BYTES,
    SIDES,
    Frame,
    Operation,
    Plan,
    Predictor,
    skeleton_ranges,
)
from vedette.delta.predict import Block, Files, OperationPredictor, blocks, magnitude_classes
from vedette.delta.stages import SectionReader, stage_of, unpack
from vedette.delta.varint import Cursor, damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

RANGE_CODED = 255  # in place of a stage: the tokens are range coded
_COPY_BYTES = 1 << 16


class Target(Files, Protocol):
    """Both files."""

    def write(self, offset: int, piece: bytes) -> None:
        """Put bytes into the new file."""
        ...


@dataclass
class _Output:
    """Writes and sums up what was written."""

    target: Target
    crc: int = 0

    def put(self, offset: int, piece: bytes) -> None:
        self.target.write(offset, piece)
        self.crc = zlib.crc32(piece, self.crc)


class Executor:
    """Executes frames in order; any may be the last of a run, and the next run starts at the one after."""

    def __init__(self, plan: Plan, target: Target) -> None:
        self._plan = plan
        self._target = target
        self._tables = rans.Tables(plan.tables)
        self._context_map = np.frombuffer(plan.context_map, np.uint8)

    def execute(self, index: int, payload: bytes) -> None:
        """Make what frame `index` makes.

        Raises:
            BadInputError: The payload is damaged, or the old file is not the one it was made for.
        """
        frame = self._plan.frames[index]
        if len(payload) != frame.size_bytes or zlib.crc32(payload) != frame.payload_crc:
            raise damaged(f"the checksum of frame {index} does not match")
        output = _Output(self._target)
        if index:
            self._operations(frame, payload, output)
        else:
            self._skeleton(payload, output)
        if output.crc != frame.output_crc:
            raise damaged(f"frame {index} makes something else; was it made against another old file?")

    def _skeleton(self, payload: bytes, output: _Output) -> None:
        old_ranges, new_ranges = skeleton_ranges(self._plan)
        old, new = _Joined(old_ranges), _Joined(new_ranges)
        cursor = Cursor(payload)
        sections = [_read_section(cursor) for _ in range(3)]
        cursor.finish("skeleton")
        made = 0

        def read(at: int, size: int) -> bytes:
            return b"".join(self._target.old(offset, part) for offset, part in old.pieces(at, size))

        def put(piece: bytes) -> None:
            nonlocal made
            taken = 0
            for offset, part in new.pieces(made, len(piece)):
                output.put(offset, piece[taken : taken + part])
                taken += part
            made += taken

        bsdiff.apply_steps(
            *(section.read for section in sections),
            old=read,
            old_bytes=old.size_bytes,
            write=put,
            new_bytes=new.size_bytes,
        )
        for section in sections:
            section.finish()

    def _operations(self, frame: Frame, payload: bytes, output: _Output) -> None:
        content = FrameContent(frame, payload, self._target)
        tokens = self._tokens(content)
        raw_bits = BitReader(content.raw_bits)
        at = 0
        for part in content.parts:
            op = part.op
            if op.predictor is Predictor.COPY:
                self._copy(op, output)
            elif op.predictor is Predictor.PRODUCT:
                self._product(part, output)
            else:
                self._residual(part, tokens[at : at + op.count], raw_bits, output)
                at += op.count
        raw_bits.finish()

    def _tokens(self, content: FrameContent) -> Array:
        if content.stage != RANGE_CODED:
            return np.frombuffer(unpack(stage_of(content.stage), content.packed, content.count), np.uint8)
        cursor = Cursor(content.packed)
        lanes = cursor.number("lanes", rans.MAX_LANES)
        if not lanes:
            raise damaged("tokens in no lane")
        states = np.frombuffer(cursor.take(4 * lanes, "states"), "<u4")
        words = content.packed[cursor.at :]
        if len(words) % 2 or not self._plan.tables:
            raise damaged("coded tokens without tables, or half a word")
        table_of = np.empty(content.count, np.uint8)
        for start, contexts in content.contexts():
            table_of[start : start + contexts.size] = self._context_map[contexts]
        return rans.decode(np.frombuffer(words, "<u2"), states, self._tables, table_of)

    def _copy(self, op: Operation, output: _Output) -> None:
        for start in range(0, op.size_bytes, _COPY_BYTES):
            size = min(_COPY_BYTES, op.size_bytes - start)
            output.put(op.target + start, self._target.old(op.source + start, size))

    def _product(self, part: Part, output: _Output) -> None:
        for start in range(0, part.op.size_bytes, _COPY_BYTES):
            size = min(_COPY_BYTES, part.op.size_bytes - start)
            vector = np.frombuffer(self._target.new(part.op.scale_target + start, size), "<f4")
            output.put(part.op.target + start, product(vector, part.factors[0]).tobytes())

    def _residual(self, part: Part, tokens: Array, raw_bits: BitReader, output: _Output) -> None:
        op, at, offset = part.op, 0, part.op.target
        for index, block in enumerate(blocks(op.rows, op.columns)):
            piece = tokens[at : at + block.rows * block.columns]
            at += piece.size
            if op.untouched:
                low = raw_bits.read(np.full(piece.size, op.element.bits - 8, np.int64))
                values = join_top(piece, low, op.element)
            else:
                residual = join(piece, raw_bits.read(raw_widths(piece)))
                image = part.image(index, block) + residual
                values = from_image(image, op.element, op.shift)
            made = values.tobytes()
            output.put(offset, made)
            offset += len(made)


@dataclass
class Part:
    """An operation with what its frame says of it."""

    op: Operation
    factors: Array
    rows: Array
    columns: Array
    directions: Array
    files: Files
    _predictor: OperationPredictor | None = None
    _images: list[Array] = field(default_factory=list)

    @property
    def predictor(self) -> OperationPredictor:
        """Made when first needed: scales may come from this frame."""
        if self._predictor is None:
            self._predictor = OperationPredictor(self.op, self.files, self.factors, self.directions)
        return self._predictor

    def contexts(self) -> Iterator[Array]:
        """Contexts of its elements, block by block (int64, within all groups)."""
        for block in blocks(self.op.rows, self.op.columns):
            classes = magnitude_classes(self.op, self.rows, self.columns, block)
            image, side = self.predictor.predict(block)
            if self.op.element.size == 1:  # a frame of bytes is small enough to keep what was predicted
                self._images.append(image.astype(self.op.element.integer))
            context = classes.astype(np.int64) * SIDES + side + self.op.group * CONTEXTS
            yield context.ravel()

    def image(self, index: int, block: Block) -> Array:
        """What is predicted for a block, flat; kept from `contexts` where that was cheap."""
        if index < len(self._images):
            return self._images[index].astype(np.int64).ravel()
        return self.predictor.predict(block).image.ravel()


class FrameContent:
    """A frame's payload taken apart.

    Raises:
        BadInputError: A section is missing, too long, or out of range.
    """

    def __init__(self, frame: Frame, payload: bytes, files: Files) -> None:
        cursor = Cursor(payload)
        self.count = sum(op.count for op in frame.operations if op.coded)
        factors = np.frombuffer(
            _whole_section(cursor, 4 * sum(op.factors for op in frame.operations)), np.uint8
        )
        # Bytes of equal significance stand together.
        factors = np.ascontiguousarray(factors.reshape(4, -1).T).view("<f4").ravel()
        classes = np.frombuffer(
            _whole_section(cursor, sum(class_count(op) for op in frame.operations)), np.uint8
        )
        if classes.size and classes.max() >= CLASSES:
            raise damaged("a magnitude class is out of range")
        directions = np.frombuffer(
            _whole_section(cursor, sum(op.direction_bytes for op in frame.operations)), np.int8
        )
        self.parts = _cut(frame.operations, factors, classes, directions, files)
        self.stage = cursor.number("packing", RANGE_CODED)
        self.packed = cursor.take(cursor.number("tokens", 2 * MAX_FRAME_BYTES), "tokens")
        self.raw_bits = cursor.take(cursor.number("raw bits", MAX_FRAME_BYTES), "raw bits")
        cursor.finish("frame")

    def contexts(self) -> Iterator[tuple[int, Array]]:
        """(position of the first, contexts) of all coded elements."""
        at = 0
        for part in self.parts:
            if part.op.coded:
                for contexts in part.contexts():
                    yield at, contexts
                    at += contexts.size


def class_count(op: Operation) -> int:
    """How many magnitude classes an operation's frame carries."""
    if not op.coded:
        return 0
    return op.rows * op.row_classes + op.columns * op.column_classes


def product(vector: Array, factor: np.float32) -> Array:
    """A vector of float32 times a factor."""
    with np.errstate(all="ignore"):
        scaled: Array = (vector * np.float32(factor)).astype("<f4")
    return scaled


def _cut(
    operations: tuple[Operation, ...], factors: Array, classes: Array, directions: Array, files: Files
) -> list[Part]:
    parts = []
    factor_at = class_at = direction_at = 0
    for op in operations:
        rows = op.rows * op.row_classes if op.coded else 0
        end = class_at + class_count(op)
        parts.append(
            Part(
                op,
                factors[factor_at : factor_at + op.factors],
                classes[class_at : class_at + rows],
                classes[class_at + rows : end],
                directions[direction_at : direction_at + op.direction_bytes],
                files,
            )
        )
        factor_at, class_at = factor_at + op.factors, end
        direction_at += op.direction_bytes
    return parts


def _read_section(cursor: Cursor) -> SectionReader:
    stage = stage_of(cursor.number("packing", 255))
    size = cursor.number("section", 3 * MAX_SIZE_BYTES)
    packed = cursor.take(cursor.number("packed section", 2 * MAX_SIZE_BYTES), "section")
    return SectionReader(stage, packed, size)


def _whole_section(cursor: Cursor, size: int) -> bytes:
    """A section whose size follows from the plan; an empty one takes no space."""
    if not size:
        return b""
    if size > 2 * MAX_FRAME_BYTES:
        raise damaged(f"{size} parameters in one frame")
    stage = stage_of(cursor.number("packing", 255))
    return unpack(stage, cursor.take(cursor.number("packed section", 2 * MAX_FRAME_BYTES), "section"), size)


class _Joined:
    """Several ranges of a file seen as one string."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self._ranges = ranges
        self._starts = []
        self.size_bytes = 0
        for start, end in ranges:
            self._starts.append(self.size_bytes)
            self.size_bytes += end - start

    def pieces(self, at: int, size: int) -> Iterator[tuple[int, int]]:
        """(offset in the file, bytes) of the pieces that make up a part of the string."""
        index = bisect.bisect_right(self._starts, at) - 1
        while size:
            start, end = self._ranges[index]
            offset = start + at - self._starts[index]
            part = min(size, end - offset)
            yield offset, part
            at, size, index = at + part, size - part, index + 1
