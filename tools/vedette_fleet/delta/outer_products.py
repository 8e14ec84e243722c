"""The few outer products that make up most of a change: a truncated singular value decomposition. Pure.

The gradient of a layer is a sum of outer products of what comes in and what goes back, so what a short
training changes is nearly of low rank. Source of the method: N. Halko, P. Martinsson, J. Tropp, "Finding
structure with randomness" (2011), with three power iterations. Vectors are rounded to few levels; the step
of each is fitted after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.layout import MAX_FRAME_BYTES, MAX_RANK, Operation, Predictor

if TYPE_CHECKING:
    from vedette.delta.elements import Array

MIN_ELEMENTS = 4096
MIN_AXIS = 16
LEVELS = 7
_OVERSAMPLING = 8
_ITERATIONS = 3


def may_have_products(op: Operation) -> bool:
    """Whether an operation can take outer products at all, and is large enough for one to pay."""
    known = op.predictor in {Predictor.OLD, Predictor.SCALE, Predictor.GAIN}
    large = op.count >= MIN_ELEMENTS and min(op.rows, op.columns) >= MIN_AXIS
    uncut = op.columns * op.element.size <= MAX_FRAME_BYTES  # longer rows are cut apart
    return known and large and uncut and op.element.name != "bfloat16" and not op.shift


def outer_products(change: Array) -> tuple[Array, Array]:
    """(steps, directions) of a matrix' strongest outer products; a direction is its rows, then columns."""
    left, right = _strongest(change, min(MAX_RANK, *change.shape))
    steps, directions = [], []
    rest = change
    for rows, columns in zip(left.T, right, strict=True):
        if not rows.any() or not columns.any():
            break
        row_levels, column_levels = _rounded(rows), _rounded(columns)
        power = (row_levels @ row_levels) * (column_levels @ column_levels)
        step = np.float32(row_levels @ rest @ column_levels / power)
        rest = rest - float(step) * np.outer(row_levels, column_levels)
        steps.append(step)
        directions.append(np.concatenate([row_levels, column_levels]).astype(np.int8))
    if not steps:
        return np.zeros(0, np.float32), np.zeros((0, sum(change.shape)), np.int8)
    return np.array(steps, np.float32), np.array(directions)


def _strongest(matrix: Array, rank: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    span = matrix @ rng.normal(size=(matrix.shape[1], min(rank + _OVERSAMPLING, *matrix.shape)))
    for _ in range(_ITERATIONS):
        span = matrix @ (matrix.T @ np.linalg.qr(span)[0])
    basis = np.linalg.qr(span)[0]
    left, _, right = np.linalg.svd(basis.T @ matrix, full_matrices=False)
    return (basis @ left)[:, :rank], right[:rank]


def _rounded(vector: Array) -> Array:
    levels: Array = np.round(vector * (LEVELS / np.abs(vector).max()))
    return levels
