"""Predictions and the contexts that follow from them, block by block. Pure, and bit-exact on every machine.

Only single IEEE operations are used (one multiplication or division, one rounding), whose results do not
depend on the processor. Factors that are not finite are refused, since what they make is not defined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from vedette.delta.elements import Array, Element, to_image
from vedette.delta.layout import CLASSES, SIDES, Operation, Predictor
from vedette.delta.varint import damaged

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_ELEMENTS = 1 << 15
NEUTRAL_CLASS = 8


class Files(Protocol):
    """What a prediction may read; a range lies inside the file, the caller has checked that."""

    def old(self, offset: int, size: int) -> bytes:
        """Bytes of the old file."""
        ...

    def new(self, offset: int, size: int) -> bytes:
        """Bytes of the new file that earlier frames made."""
        ...


class Block(NamedTuple):
    """Some whole rows, or a piece of one row."""

    row: int
    rows: int
    column: int
    columns: int


class Prediction(NamedTuple):
    """Integer image of what is expected, and a side (0..SIDES-1) that tells how sure that is; both 2-D."""

    image: Array
    side: Array


def blocks(rows: int, columns: int, most: int = BLOCK_ELEMENTS) -> Iterator[Block]:
    """Cut a matrix, in the order of its elements, into blocks of at most `most` elements."""
    if columns <= most:
        step = most // columns
        for row in range(0, rows, step):
            yield Block(row, min(step, rows - row), 0, columns)
        return
    for row in range(rows):
        for column in range(0, columns, most):
            yield Block(row, 1, column, min(most, columns - column))


class OperationPredictor:
    """Predicts one operation; `factors` and `directions` are what its frame carries for it.

    Of the factors, the last `rank` are the steps of the outer products; each direction holds a row's, then a
    column's int8.

    Raises:
        BadInputError: Factors that are not finite.
    """

    def __init__(self, op: Operation, files: Files, factors: Array, directions: Array) -> None:
        self._op = op
        self._files = files
        self._factors = self._load_factors(factors[: factors.size - op.rank])
        self._steps = _finite(factors[factors.size - op.rank :]).astype(np.float32)
        self._directions = directions.reshape(op.rank, op.rows + op.columns)
        self._grown = self._grow() if op.growth is not None else None

    def predict(self, block: Block) -> Prediction:
        """The prediction of one block."""
        op = self._op
        shape = (block.rows, block.columns)
        if op.predictor is Predictor.CONSTANT:
            return Prediction(np.full(shape, op.centre, np.int64), np.zeros(shape, np.uint8))
        old = self._old(block)
        if op.element.is_float:
            values = self._float(old, block)
            return Prediction(to_image(values, op.element, op.shift), self._float_side(values))
        return self._integer(old, block)

    def _load_factors(self, carried: Array) -> Array:
        op = self._op
        factors: Array = carried
        if op.predictor is Predictor.SCALE:
            old = np.frombuffer(self._files.old(op.scale_source, 4 * op.scales), "<f4").astype(np.float64)
            new = np.frombuffer(self._files.new(op.scale_target, 4 * op.scales), "<f4").astype(np.float64)
            with np.errstate(all="ignore"):
                factors = old / new
        return _finite(factors)

    def _grow(self) -> Array:
        op, growth = self._op, self._op.growth
        assert growth is not None  # noqa: S101 - for the type checker; the caller has looked
        old = np.frombuffer(self._files.old(op.source, op.source_bytes), op.element.integer)
        old = old.reshape(-1, growth.old, growth.inner)
        grown = np.zeros((old.shape[0], growth.new, growth.inner), op.element.integer)
        kept = min(growth.old, growth.new)
        grown[:, :kept] = old[:, :kept]
        return grown.reshape(op.rows, op.columns)

    def _old(self, block: Block) -> Array:
        op = self._op
        if self._grown is not None:
            rows = self._grown[block.row : block.row + block.rows]
            return rows[:, block.column : block.column + block.columns]
        at = op.source + (block.row * op.columns + block.column) * op.element.size
        raw = self._files.old(at, block.rows * block.columns * op.element.size)
        return np.frombuffer(raw, op.element.integer).reshape(block.rows, block.columns)

    def _factor(self, block: Block) -> Array:
        if self._op.by_column:
            return self._factors[np.arange(block.column, block.column + block.columns) % self._op.scales]
        return self._factors[np.arange(block.row, block.row + block.rows) % self._op.scales, None]

    def _float(self, bits: Array, block: Block) -> Array:
        op = self._op
        if op.predictor is Predictor.OLD and not op.rank:
            return bits
        floats = np.ascontiguousarray(bits).view(np.dtype(f"<f{op.element.size}"))
        with np.errstate(all="ignore"):
            if op.predictor is Predictor.OLD:
                return self._moved(floats.astype(np.float32), block, floats.dtype)
            factor = self._factor(block).astype(np.float32)
            if op.predictor is Predictor.THRESHOLD:
                kept = ~(np.abs(floats.astype(np.float32)) <= factor)
                return np.where(kept, bits, op.element.integer.type(0))
            return self._moved(floats.astype(np.float32) * factor, block, floats.dtype)

    def _moved(self, floats: Array, block: Block, kind: np.dtype[Any]) -> Array:
        if self._op.rank:
            floats = floats + self._products(block)
        bits: Array = floats.astype(kind).view(self._op.element.integer)
        return bits

    def _products(self, block: Block) -> Array:
        """Sum of the outer products (float32), in the order of the ranks: every machine rounds alike."""
        total = np.zeros((block.rows, block.columns), np.float32)
        summand = np.empty_like(total)
        for step, direction in zip(self._steps, self._directions, strict=True):
            rows = direction[block.row : block.row + block.rows].astype(np.float32) * step
            start = self._op.rows + block.column
            columns = direction[start : start + block.columns].astype(np.float32)
            np.multiply(rows[:, None], columns[None, :], out=summand)
            total += summand
        return total

    def _float_side(self, bits: Array) -> Array:
        """Octaves below the reference: an equal step is more units in the last place of a smaller number."""
        element = self._op.element
        exponent = (bits.astype(np.int64) >> element.mantissa_bits) & ((1 << element.exponent_bits) - 1)
        side: Array = np.clip(self._op.reference - exponent, 0, SIDES - 1).astype(np.uint8)
        return side

    def _integer(self, old: Array, block: Block) -> Prediction:
        op = self._op
        wide = old.astype(np.int64)
        if op.predictor is Predictor.OLD and not op.rank:
            return Prediction(wide, magnitude_side(wide - op.centre, op.element))
        if op.predictor is Predictor.THRESHOLD:
            kept = np.abs(wide.astype(np.float64)) > self._factor(block)
            image = np.where(kept, wide, 0)
            return Prediction(image, magnitude_side(image, op.element))
        exact = (wide - op.centre).astype(np.float64)
        if op.predictor is not Predictor.OLD:
            exact *= self._factor(block)
        if op.rank:
            exact += self._products(block)
        exact += op.centre
        rounded = np.floor(exact + 0.5)
        quarter = np.clip(np.floor((exact - rounded + 0.5) * 4), 0, 3).astype(np.uint8)
        limits = np.iinfo(op.element.integer)
        image = np.clip(rounded, limits.min, limits.max).astype(np.int64)
        return Prediction(image, quarter * 4 + magnitude_side(image - op.centre, op.element) // 4)


def _finite(factors: Array) -> Array:
    if not np.isfinite(factors).all():
        raise damaged("a factor is not finite")
    return factors


def magnitude_side(image: Array, element: Element) -> Array:
    """0, 4, 8 or 12 by how large an integer is in its type."""
    magnitude = np.abs(image)
    if element.size == 1:
        sides: Array = _BYTE_SIDES.take(magnitude)
        return sides
    return _sides(magnitude, element.bits - 1)


def _sides(magnitude: Array, top: int) -> Array:
    side = (magnitude > 0).astype(np.uint8) + (magnitude >= 1 << top - 4) + (magnitude >= 1 << top - 1)
    return (side * 4).astype(np.uint8)


_BYTE_SIDES = _sides(np.arange(512), 7)  # a byte less a centre of a byte


def magnitude_classes(op: Operation, rows: Array, columns: Array, block: Block) -> Array:
    """Class of each element of a block (uint8), from the classes of its row and column."""
    total = np.full((block.rows, block.columns), op.base_class, np.int16)
    if op.row_classes:
        total += rows[block.row : block.row + block.rows, None].astype(np.int16) - NEUTRAL_CLASS
    if op.column_classes:
        total += columns[None, block.column : block.column + block.columns].astype(np.int16) - NEUTRAL_CLASS
    return np.clip(total, 0, CLASSES - 1).astype(np.uint8)
