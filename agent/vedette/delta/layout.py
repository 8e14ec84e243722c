"""The tensor delta's layout: header, plan and frames. Pure.

A patch is a header, a packed plan, and frames. Frame 0 is the skeleton: every byte of the new file that no
operation makes, as a bsdiff of the old file's bytes that no operation reads. Each further frame executes the
operations that the plan gives it. An operation says where its elements go, what predicts them and from where;
no model format is known here. A frame depends only on the old file and on frames before it, and carries
checksums of itself and of what it makes, so work can stop after any frame and go on from there.

Integers are little-endian. The plan is stored column by column, as numbers of variable length.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vedette.delta.elements import Element

MAX_SIZE_BYTES = 1 << 31
MAX_PLAN_BYTES = 1 << 20
MAX_OPERATIONS = 8192
MAX_FRAME_BYTES = 2 << 20  # output of one frame; copies and products, which need no tokens, do not count
MAX_PAYLOAD_BYTES = 5 << 20  # of one frame, the skeleton included
MAX_GROWN_BYTES = 4 << 20
MAX_TABLES = 32
MAX_RANK = 16
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


@dataclass(frozen=True, slots=True)
class Operation:
    """Makes rows x columns elements at `target`; offsets are bytes in the old or (said so) the new file.

    `by_column` tells whether scales and factors belong to columns. `scales` is how many there are, repeated
    to the axis' length. `row_classes` and `column_classes`: magnitude classes follow in the frame.
    `rank` outer products of a vector of rows and one of columns are added to a prediction: what a short
    training changes is largely that. `reference` is the exponent that counts as class 0 of a float's side.
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
    rank: int = 0

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
        own = self.scales if self.predictor in {Predictor.GAIN, Predictor.THRESHOLD} else 0
        return own + self.rank

    @property
    def direction_bytes(self) -> int:
        """How many int8 follow in the frame: for each rank a vector of rows and one of columns."""
        return self.rank * (self.rows + self.columns)

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
