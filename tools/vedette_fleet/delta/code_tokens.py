"""The entropy coder's publishing side: tables from counts, merged where that pays; words from tokens.

Pure. The decoder is `vedette.delta.rans`; sources there. Merging is greedy: join the two groups of contexts
whose union costs least, while the table that is saved is worth more than what the union loses.
"""

from __future__ import annotations

import lzma
from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.layout import CONTEXTS, GROUPS, MAX_TABLES, PROBABILITY_BITS, Table
from vedette.delta.rans import LOWER_BOUND
from vedette.delta.stages import lzma_filters
from vedette.delta.varint import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.delta.elements import Array

_TOTAL = 1 << PROBABILITY_BITS
_TABLE_BITS = 40.0
_TABLE_DIGITS = (2, 3, 4, 5)
_SYMBOL_BITS = 9.0  # what a symbol of a table takes in the packed plan, about


def entropy_bits(counts: Array) -> Array:
    """Bits to code each row of counts with its own frequencies."""
    counts = counts.astype(np.float64)
    total = counts.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(counts > 0, counts * np.log2(counts), 0).sum(-1)
        bits: Array = np.where(total > 0, total * np.log2(np.maximum(total, 1)) - inner, 0)
    return bits


def cost_bits(tokens: Array, side: Array, raw_bits: int) -> float:
    """What a residual costs: its tokens given their side, the tables for them, and the raw bits."""
    joint = side.ravel().astype(np.int64) << 8 | tokens.ravel()
    counts = np.bincount(joint, minlength=16 << 8).reshape(16, 256)
    apart = entropy_bits(counts) + 0.5 * np.log2(counts.sum(1) + 1) * (counts > 0).sum(1)
    return float(min(apart.sum(), entropy_bits(counts.sum(0)))) + raw_bits


def build_tables(counts: Array) -> tuple[list[Table], bytes]:
    """Tables and the context map for counts of shape (GROUPS * CONTEXTS, 256)."""
    groups = [
        np.flatnonzero(counts[g * CONTEXTS : (g + 1) * CONTEXTS].sum(1)) + g * CONTEXTS for g in range(GROUPS)
    ]
    used = sum(1 for group in groups if group.size)
    tables: list[Table] = []
    context_map = np.zeros(GROUPS * CONTEXTS, np.uint8)
    for group in groups:
        if not group.size:
            continue
        labels, merged = _merge(counts[group], MAX_TABLES // used)
        context_map[group] = labels + len(tables)
        tables += [_table(row) for row in merged]
    return tables, context_map.tobytes()


def _row_cost(counts: Array) -> Array:
    cost: Array = entropy_bits(counts) + _TABLE_BITS + _SYMBOL_BITS * (counts > 0).sum(-1)
    return cost


def _merge(counts: Array, most: int) -> tuple[Array, Array]:
    """(label of each row, counts of each label)."""
    rows = counts.astype(np.float64)
    labels = np.arange(len(rows))
    alive = np.ones(len(rows), np.bool_)
    cost = _row_cost(rows)
    gain = np.full((len(rows), len(rows)), np.inf)
    for row in range(len(rows)):
        gain[row, :row] = _row_cost(rows[:row] + rows[row]) - cost[:row] - cost[row]
    while alive.sum() > 1:
        into, gone = np.unravel_index(int(np.argmin(gain)), gain.shape)
        if gain[into, gone] >= 0 and alive.sum() <= most:
            break
        rows[into] += rows[gone]
        cost[into] = _row_cost(rows[into])
        labels[labels == gone] = into
        alive[gone] = False
        gain[gone], gain[:, gone] = np.inf, np.inf
        fresh = _row_cost(rows + rows[into]) - cost - cost[into]
        fresh[~alive] = np.inf
        gain[into, :into], gain[into + 1 :, into] = fresh[:into], fresh[into + 1 :]
    kept = np.flatnonzero(alive)
    return np.searchsorted(kept, labels), rows[kept]


def _table(counts: Array) -> Table:
    """The table that costs least with what it codes; round frequencies pack better than exact ones."""
    symbols = np.flatnonzero(counts)
    shares = counts[symbols] * (_TOTAL / counts.sum())
    candidates = [_whole_frequencies(rounded) for rounded in _rounded(shares)]
    best = min(candidates, key=lambda frequencies: _table_cost(frequencies, counts[symbols]))
    return Table(tuple(symbols.tolist()), tuple(best.tolist()))


def _rounded(shares: Array) -> Iterator[Array]:
    """As they are, and rounded to so many binary digits."""
    yield shares
    exponent = np.floor(np.log2(shares))
    for digits in _TABLE_DIGITS:
        step = np.exp2(exponent - digits + 1)
        yield np.round(shares / step) * step


def _table_cost(frequencies: Array, counts: Array) -> float:
    packed = lzma.compress(
        b"".join(_varint(int(frequency)) for frequency in frequencies),
        lzma.FORMAT_RAW,
        filters=lzma_filters(),
    )
    return 8.0 * len(packed) - float((counts * np.log2(frequencies / _TOTAL)).sum())


def _varint(value: int) -> bytes:
    out = bytearray()
    write(out, value)
    return bytes(out)


def _whole_frequencies(wanted: Array) -> Array:
    """Integers that sum to the total, none of them 0."""
    frequencies = np.maximum(1, np.round(wanted)).astype(np.int64)
    while (excess := int(frequencies.sum()) - _TOTAL) != 0:
        # A step on the largest frequency costs least.
        step = -1 if excess > 0 else 1
        largest = np.argsort(-frequencies)[: abs(excess)]
        largest = largest[frequencies[largest] + step >= 1]
        frequencies[largest] += step
    return frequencies


def encode_tokens(tokens: Array, table_of: Array, tables: list[Table], lanes: int) -> tuple[Array, Array]:
    """(words, states of the lanes) that `vedette.delta.rans.decode` turns into the tokens."""
    frequency = np.zeros((len(tables), 256), np.int64)
    for index, table in enumerate(tables):
        frequency[index, list(table.symbols)] = table.frequencies
    start = np.cumsum(frequency, axis=1) - frequency
    share, offset = frequency[table_of, tokens], start[table_of, tokens]
    state = np.full(lanes, LOWER_BOUND, np.int64)
    words: list[Array] = []
    for at in reversed(range(0, tokens.size, lanes)):
        part, begin = share[at : at + lanes], offset[at : at + lanes]
        active = state[: part.size]
        high = np.flatnonzero(active >= part << (32 - PROBABILITY_BITS))
        if high.size:
            words.append(active[high][::-1] & 0xFFFF)
            active[high] >>= 16
        quotient, rest = np.divmod(active, part)
        active[:] = (quotient << PROBABILITY_BITS) + rest + begin
    stream = np.concatenate(words)[::-1] if words else np.zeros(0, np.int64)
    return stream.astype("<u2"), state.astype("<u4")
