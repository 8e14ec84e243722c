"""Interleaved range coding with static tables, many lanes at a time. Pure.

Lane i of n codes the elements i, i + n, i + 2n ...; all lanes share one stream of 16-bit words, which a step
takes in the order of its lanes. Source: J. Duda, "Asymmetric numeral systems" (2013), and F. Giesen,
"Interleaved entropy coders" (2014); here a lane is an element of a NumPy vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vedette.delta.layout import PROBABILITY_BITS, Table
from vedette.delta.varint import damaged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.delta.elements import Array

LOWER_BOUND = 1 << 16
MAX_LANES = 4096
_SLOTS = 1 << PROBABILITY_BITS
_SLAB_ELEMENTS = 1 << 16


class Tables:
    """Lookup tables of all contexts: slot -> token, and slot -> frequency and offset in one word."""

    def __init__(self, tables: Sequence[Table]) -> None:
        slots = max(1, len(tables)) * _SLOTS
        self.token = np.zeros(slots, np.uint8)
        # As wide as the states: a cast in each step would cost more than the memory does.
        self.step = np.zeros(slots, np.int64)
        for index, table in enumerate(tables):
            frequencies = np.array(table.frequencies, np.int64)
            starts = np.cumsum(frequencies) - frequencies
            part = slice(index * _SLOTS, (index + 1) * _SLOTS)
            self.token[part] = np.repeat(np.array(table.symbols, np.uint8), frequencies)
            offset = np.arange(_SLOTS) - np.repeat(starts, frequencies)
            self.step[part] = np.repeat(frequencies, frequencies) << 16 | offset


def decode(words: Array, states: Array, tables: Tables, table_of: Array) -> Array:
    """Tokens (uint8), one for each entry of `table_of` (uint8, a table's index).

    Raises:
        BadInputError: The words end early, are left over, or a lane does not come to rest.
    """
    lanes = states.size
    tokens = np.empty(table_of.size, np.uint8)
    state = states.astype(np.int64)
    at = 0
    slab = max(1, _SLAB_ELEMENTS // lanes) * lanes
    for start in range(0, table_of.size, slab):
        base = table_of[start : start + slab].astype(np.int64) << PROBABILITY_BITS
        near = words[at : at + base.size].astype(np.int64)  # a token takes at most one word
        whole = base.size - base.size % lanes
        used = _decode_rows(base[:whole].reshape(-1, lanes), state, near, 0, tables.step)
        last = base[whole:]
        used = _decode_rows(last.reshape(-1, max(1, last.size)), state[: last.size], near, used, tables.step)
        at += used
        tables.token.take(base, out=tokens[start : start + slab], mode="wrap")
    if at != words.size or (state != LOWER_BOUND).any():
        raise damaged("coded tokens do not come out even")
    return tokens


def _decode_rows(base: Array, state: Array, words: Array, at: int, step_of: Array) -> int:
    """Turn each table's start in `base` into the slot that was hit; returns the words used so far."""
    step, spare = np.empty_like(state), np.empty_like(state)
    for slots in base:
        np.bitwise_and(state, _SLOTS - 1, out=spare)
        np.add(slots, spare, out=slots)
        step_of.take(slots, out=step, mode="wrap")  # slots are in range; "raise" would copy `out`
        np.right_shift(step, 16, out=spare)
        state >>= PROBABILITY_BITS
        state *= spare
        step &= 0xFFFF
        state += step
        (low,) = (state < LOWER_BOUND).nonzero()
        if low.size:
            used = at + low.size
            if used > words.size:
                raise damaged("coded tokens end early")
            state[low] = state[low] << 16 | words[at:used]
            at = used
    return at
