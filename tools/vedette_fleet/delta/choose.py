"""Picks the predictor of each tensor by what its residual would cost. Pure.

Every candidate is an operation as the device would execute it, and is judged with the device's own
arithmetic, so what is chosen is what will be decoded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.elements import BYTES, Array, from_image, residual_of, split, split_top, to_image
from vedette.delta.layout import MAX_GROWN_BYTES, Growth, Operation, Predictor
from vedette.delta.predict import Block, OperationPredictor, Prediction
from vedette_fleet.delta.align import as_floats, as_numbers, grown_axis
from vedette_fleet.delta.code_tokens import cost_bits
from vedette_fleet.delta.outer_products import may_have_products, outer_products

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette_fleet.delta.tensors import Tensor

MIN_FITTED = 4096  # fewer elements do not pay for factors
FITTED_VECTOR = 32
DIRECTION_BITS = 4.0
MIN_PRUNED_SHARE = 0.02


def no_directions() -> Array:
    """What operations without outer products carry."""
    return np.zeros((0, 0), np.int8)


def no_factors() -> Array:
    """What most operations carry."""
    return np.zeros(0, np.float32)


class WholeFiles:
    """Both files in memory, for the device's arithmetic."""

    def __init__(self, old: bytes, new: bytes) -> None:
        self._old, self._new = old, new

    def old(self, offset: int, size: int) -> bytes:
        """Bytes of the old file."""
        return self._old[offset : offset + size]

    def new(self, offset: int, size: int) -> bytes:
        """Bytes of the new file."""
        return self._new[offset : offset + size]


@dataclass(frozen=True)
class Choice:
    """An operation and what its frame has to carry for it; directions are (rank, rows + columns)."""

    op: Operation
    factors: Array = field(default_factory=no_factors)
    directions: Array = field(default_factory=no_directions)


class Chooser:
    """Chooses for pairs of tensors of two files."""

    def __init__(self, old: bytes, new: bytes) -> None:
        self._old, self._new = old, new
        self._files = WholeFiles(old, new)

    def choose(self, tensor: Tensor, mate: Tensor | None) -> Choice | None:
        """The cheapest way to make a tensor; None leaves its bytes to the skeleton."""
        if mate is not None and self._equal(tensor, mate):
            return Choice(Operation(tensor.offset, 1, tensor.size_bytes, BYTES, Predictor.COPY, mate.offset))
        element = tensor.element
        if element is None:
            return None
        rows, columns = geometry(tensor.shape)
        plain = Operation(tensor.offset, rows, columns, element, Predictor.CONSTANT, centre=centre_of(tensor))
        best, least = Choice(plain), self.cost(Choice(plain))
        if mate is None:
            return best
        for candidate in self._candidates(plain, tensor, mate):
            cost = self.cost(candidate)
            if cost < least:
                best, least = candidate, cost
        for candidate in self._ranked(best):
            cost = self.cost(candidate)
            if cost >= least:
                break
            best, least = candidate, cost
        return best

    def _ranked(self, choice: Choice) -> Iterator[Choice]:
        """The same with more and more outer products, as long as somebody asks for more."""
        op = choice.op
        if not may_have_products(op):
            return
        predicted = as_numbers(from_image(self.prediction(choice).image, op.element, op.shift), op.element)
        change = as_numbers(self.values(op), op.element) - predicted
        if not np.isfinite(change).all():
            return
        steps, directions = outer_products(change)
        rank = 1
        while rank <= steps.size and rank * (op.rows + op.columns) <= op.size_bytes // 8:
            yield Choice(
                replace(op, rank=rank),
                np.concatenate([choice.factors, steps[:rank]]),
                directions[:rank],
            )
            rank = rank + max(1, rank // 2)

    def prediction(self, choice: Choice) -> Prediction:
        """Of the whole tensor at once."""
        op = choice.op
        predictor = OperationPredictor(op, self._files, choice.factors, choice.directions)
        return predictor.predict(Block(0, op.rows, 0, op.columns))

    def values(self, op: Operation) -> Array:
        """The new tensor's elements, 2-D."""
        values = np.frombuffer(self._new, op.element.integer, op.count, op.target)
        return values.reshape(op.rows, op.columns)

    def tokens(self, choice: Choice) -> tuple[Array, Array, Array, Array]:
        """Tokens, width and value of their raw bits, and the side of each; all 2-D."""
        op = choice.op
        values = self.values(op)
        if op.untouched:
            return *split_top(values, op.element), np.zeros(values.shape, np.uint8)
        predicted = self.prediction(choice)
        residual = residual_of(to_image(values, op.element, op.shift), predicted.image, op.element)
        return *split(residual), predicted.side

    def cost(self, choice: Choice) -> float:
        """Bits, about."""
        tokens, widths, _, side = self.tokens(choice)
        return (
            cost_bits(tokens, side, int(widths.sum()))
            + 24.0 * choice.factors.size
            + DIRECTION_BITS * choice.directions.size
        )

    def _equal(self, tensor: Tensor, mate: Tensor) -> bool:
        return self._new[tensor.offset : tensor.end] == self._old[mate.offset : mate.end]

    def _candidates(self, plain: Operation, tensor: Tensor, mate: Tensor) -> Iterator[Choice]:
        same = replace(plain, predictor=Predictor.OLD, source=mate.offset)
        if mate.shape != tensor.shape:
            growth = growth_of(mate, tensor)
            if growth is not None:
                yield Choice(replace(same, growth=growth, reference=self._reference(mate)))
            return
        same = replace(same, reference=self._reference(mate))
        yield Choice(same)
        shift = self._shift(same)
        if shift:
            yield Choice(replace(same, shift=shift))
        yield from self._scaled(same, tensor, mate)
        if plain.element.name == "bfloat16":
            return
        before = as_floats(mate.values(self._old), mate).reshape(same.rows, same.columns)
        after = as_floats(tensor.values(self._new), tensor).reshape(same.rows, same.columns)
        if np.isfinite(before).all() and np.isfinite(after).all():
            yield from _fitted(same, before, after)
            yield from _pruned(same, before, after)

    def _scaled(self, same: Operation, tensor: Tensor, mate: Tensor) -> Iterator[Choice]:
        ours, theirs = tensor.scales, mate.scales
        if ours is None or theirs is None or ours.count != theirs.count or same.element.is_float:
            return
        axes = scale_axis(same, tensor, ours.count, ours.axis)
        if axes is None:
            return
        candidate = replace(
            same, predictor=Predictor.SCALE, scale_source=theirs.offset, scale_target=ours.offset,
            scales=ours.count, by_column=axes == "columns",
        )  # fmt: skip
        old = np.frombuffer(self._old, "<f4", ours.count, theirs.offset).astype(np.float64)
        new = np.frombuffer(self._new, "<f4", ours.count, ours.offset).astype(np.float64)
        with np.errstate(all="ignore"):
            if np.isfinite(old / new).all():
                yield Choice(candidate)

    def _reference(self, mate: Tensor) -> int:
        """The largest exponent of the old tensor, of numbers that are finite."""
        element = mate.element
        if element is None or not element.is_float:
            return 0
        mask = (1 << element.exponent_bits) - 1
        exponents = (mate.values(self._old).astype(np.int64) >> element.mantissa_bits) & mask
        finite = exponents[exponents < mask]
        return int(finite.max()) if finite.size else 0

    def _shift(self, same: Operation) -> int:
        """Low bits that are 0 in every element of the new tensor, when there are many."""
        if not same.element.is_float:
            return 0
        together = int(np.bitwise_or.reduce(self.values(same), axis=None))
        zeros = (together & -together).bit_length() - 1 if together else 0
        return min(zeros, same.element.mantissa_bits) if 4 * zeros >= same.element.mantissa_bits else 0


def geometry(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns of a tensor: the first axis against the rest, or the last where the first is 1."""
    size = math.prod(shape)
    if len(shape) < 2:
        return 1, size
    return (shape[0], size // shape[0]) if shape[0] > 1 else (size // shape[-1], shape[-1])


def centre_of(tensor: Tensor) -> int:
    """The zero point that an element type suggests."""
    return 128 if tensor.element is BYTES else 0


def scale_axis(op: Operation, tensor: Tensor, count: int, axis: int) -> str | None:
    """Whether scales belong to rows or columns; None where they fit neither."""
    last = len(tensor.shape) - 1
    if count == 1 or (axis == 0 and count == op.rows):
        return "rows"
    by_column = axis == last and tensor.shape and count == tensor.shape[last] and op.columns % count == 0
    return "columns" if by_column else None


def growth_of(mate: Tensor, tensor: Tensor) -> Growth | None:
    """How the mate has to be stretched; None when it is too large to be done in one piece."""
    axis = grown_axis(mate.shape, tensor.shape)
    if axis is None or max(mate.size_bytes, tensor.size_bytes) > MAX_GROWN_BYTES // 2:
        return None
    return Growth(mate.shape[axis], tensor.shape[axis], math.prod(tensor.shape[axis + 1 :]))


def _fitted(same: Operation, before: Array, after: Array) -> Iterator[Choice]:
    """Least-squares gain of each row, and of each column."""
    vector = same.rows == 1 and same.columns >= FITTED_VECTOR
    if same.element.size == 4 and not same.element.is_float:
        return
    if not vector and (same.rows == 1 or same.count < MIN_FITTED):
        return
    for by_column in (False,) if vector else (False, True):
        axis = 0 if by_column else 1
        power = (before * before).sum(axis)
        gains = (before * after).sum(axis) / np.where(power > 0, power, 1)
        factors = np.where(power > 0, gains, 1).astype(np.float32)
        if np.isfinite(factors).all():
            scales = same.columns if by_column else same.rows
            yield Choice(replace(same, predictor=Predictor.GAIN, by_column=by_column, scales=scales), factors)


def _pruned(same: Operation, before: Array, after: Array) -> Iterator[Choice]:
    """The largest magnitude that became 0, in all and in each row."""
    pruned = (after == 0) & (before != 0)
    if pruned.mean() <= MIN_PRUNED_SHARE:
        return
    limits = np.where(pruned, np.abs(before), -1).max(1).astype(np.float32)
    yield Choice(replace(same, predictor=Predictor.THRESHOLD, scales=1), limits.max(keepdims=True))
    if same.rows > 1:
        yield Choice(replace(same, predictor=Predictor.THRESHOLD, scales=same.rows), limits)
