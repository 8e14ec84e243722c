"""Which operations a frame holds: copies joined, large tensors cut, readers of the new file last. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.layout import MAX_FRAME_BYTES, Predictor
from vedette_fleet.delta.choose import Choice

if TYPE_CHECKING:
    from collections.abc import Iterator


def merge_copies(choices: list[Choice], old: bytes, new: bytes) -> list[Choice]:
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


def order(choices: list[Choice]) -> list[list[Choice]]:
    """Frames of operations; what reads the new file comes after the frames that make it."""
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
            factors = np.concatenate([factors[row : row + rows], factors[op.rows :]])
        cut = np.concatenate(
            [choice.directions[:, row : row + rows], choice.directions[:, op.rows :]], axis=1
        )
        if part.direction_bytes > part.size_bytes:  # a last part of few rows
            part, factors, cut = replace(part, rank=0), factors[: factors.size - op.rank], cut[:0]
        yield Choice(part, factors, cut)


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
