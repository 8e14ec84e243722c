"""Magnitude classes: how large residuals are in each row and column, where telling it pays. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vedette.delta.elements import residual_of, to_image
from vedette.delta.layout import CLASSES, Operation
from vedette.delta.predict import NEUTRAL_CLASS

if TYPE_CHECKING:
    from vedette.delta.elements import Array
    from vedette_fleet.delta.choose import Choice, Chooser

STEPS_PER_OCTAVE = 2
CLASS_BITS = 2.6  # what one class costs, about
_INTEGER_BASE = 7
_FLOAT_BASE = 22
_NONE = np.zeros(0, np.uint8)


class Classified(NamedTuple):
    """An operation that knows its classes."""

    op: Operation
    rows: Array
    columns: Array


def classify(chooser: Chooser, choice: Choice) -> Classified:
    """Give an operation its base class, and rows and columns theirs where that saves more than it costs."""
    op = choice.op
    if op.untouched:
        return Classified(op, _NONE, _NONE)
    activity = _activity(chooser, choice)
    mean = float(activity.mean()) + 1e-12
    op = replace(op, base_class=_base_class(op, mean))
    rows = columns = _NONE
    row_means, column_means = activity.mean(1), activity.mean(0)
    if op.rows > 1 and _gain(row_means, mean, op.columns, op) > 0:
        rows = _classes(row_means, mean, op.columns)
        op = replace(op, row_classes=True)
        activity = activity / np.maximum(row_means, mean / op.columns)[:, None] * mean
        column_means = activity.mean(0)
    if op.rows >= 16 and _gain(column_means, mean, op.rows, op) > 0:
        columns = _classes(column_means, mean, op.rows)
        op = replace(op, column_classes=True)
    return Classified(op, rows, columns)


def _activity(chooser: Chooser, choice: Choice) -> Array:
    """Magnitude of each residual; of floats in units of the value, not of the last place."""
    op = choice.op
    image = to_image(chooser.values(op), op.element, op.shift)
    predicted = chooser.prediction(choice)
    residual = np.abs(residual_of(image, predicted.image, op.element)).astype(np.float64)
    if op.element.is_float:
        residual = np.ldexp(residual, -predicted.side.astype(np.int32))
    return np.minimum(residual, 2.0**31)


def _base_class(op: Operation, mean: float) -> int:
    if op.element.is_float:
        step = STEPS_PER_OCTAVE * (np.log2(mean) - op.element.mantissa_bits + op.shift) + _FLOAT_BASE
    elif op.element.size == 1:
        step = STEPS_PER_OCTAVE * np.log2(mean) + _INTEGER_BASE
    else:
        step = np.log2(mean)
    return int(np.clip(np.round(step), 0, CLASSES - 1))


def _classes(means: Array, mean: float, count: int) -> Array:
    """Half octaves above or below the mean; the quarter keeps an empty row finite."""
    steps = np.round(STEPS_PER_OCTAVE * np.log2((means + 0.25 * min(mean, 1.0) / count) / mean))
    classes: Array = np.clip(steps + NEUTRAL_CLASS, 0, CLASSES - 1).astype(np.uint8)
    return classes


def _gain(means: Array, mean: float, count: int, op: Operation) -> float:
    """Bits saved by telling the means apart, less what the classes cost."""
    scale = 2.0**10 if op.element.is_float else 1.0
    relative = (means / mean, 1.0) if op.element.is_float else (means, mean)
    apart = laplace_bits(np.asarray(relative[0]) * scale).sum() * count
    together = float(laplace_bits(np.asarray(relative[1] * scale))) * count * means.size
    return together - float(apart) - CLASS_BITS * means.size


def laplace_bits(mean: Array) -> Array:
    """Entropy in bits of a two-sided geometric distribution with this mean magnitude."""
    mean = np.maximum(mean, 1e-9)
    # mean = 2q / (1 - q^2) for the ratio q of neighbours.
    ratio = (np.sqrt(1 + mean * mean) - 1) / mean
    ratio = np.clip(ratio, 1e-12, 1 - 1e-12)
    bits: Array = -np.log2((1 - ratio) / (1 + ratio)) - mean * np.log2(ratio)
    return bits
