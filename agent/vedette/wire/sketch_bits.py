"""Latency histograms as few bits: what a sketch's bins look like between two machines. Pure.

The bins are those of a DDSketch of 1 % (Masson, Rim, Lee, PVLDB 12(12), 2019): bin k holds the values in
(g^(k-1), g^k] milliseconds, g = 1.01/0.99. At scale s two to the s neighbours are one bin, which doubles the
error with each step (Epicoco et al., "UDDSketch", IEEE Access 8, 2020) and lets sketches of any scale merge.

A count is coded with the odds of those that followed similar neighbours, learnt from all histograms of the
blob before it; gaps are run lengths. Sum, least and most value are whole nanoseconds, written as distances
from what the bins say. A lognormal minute at 30 a second takes about 60 bytes, of which the bare information
in its counts is 44 (sigma 0.3).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.errors import BadInputError
from vedette.wire.range_coder import NumberOdds, Odds, RangeDecoder, RangeEncoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RELATIVE_ACCURACY = 0.01
MAX_VALUE_MS = 1e12  # 31 years
MIN_VALUE_MS = 1e-9  # smaller ones count as zero
MAX_SCALE = 11  # everything in two or three bins
MAX_SLOTS = 32
MAX_ROWS = 512
MAX_SYMBOLS = 1 << 17  # half a second to read
MAX_COUNT = 1 << 48

LOG_GAMMA = math.log((1 + RELATIVE_ACCURACY) / (1 - RELATIVE_ACCURACY))
MIN_KEY = math.ceil(math.log(MIN_VALUE_MS) / LOG_GAMMA)
MAX_KEY = math.ceil(math.log(MAX_VALUE_MS) / LOG_GAMMA)

_NS = 1e6
_END = 0xA5  # read last; after a damaged byte it most likely reads as something else
_HEAD_SYMBOLS = 16  # what a histogram takes beside its bins
_SIGNIFICANT_BITS = 16
_GAP = 4  # empty bins in a row before the rest of the gap is a length
_RARE = 4  # neighbourhoods that hold less are told apart exactly
_ERROR_BITS = 7  # a bin's value is good to one part in 100


class Histogram(msgspec.Struct, frozen=True):
    """Counts by bin, ascending, none of them 0; zeros apart. Sum, least and most are of all values."""

    zeros: int = 0
    bins: dict[int, int] = {}
    sum_ns: int = 0
    min_ns: int = 0
    max_ns: int = 0
    scale: int = 0

    @property
    def count(self) -> int:
        """Number of values."""
        return self.zeros + sum(self.bins.values())

    def coarsened(self, scale: int) -> Histogram:
        """The same at a larger scale, or itself."""
        steps = scale - self.scale
        return (
            self if steps <= 0 else msgspec.structs.replace(self, bins=joined(self.bins, steps), scale=scale)
        )


def accuracy(scale: int) -> float:
    """Largest relative error of a quantile at a scale."""
    return math.tanh(math.ldexp(LOG_GAMMA, scale) / 2)


def joined(bins: dict[int, int], steps: int) -> dict[int, int]:
    """Two to the `steps` neighbours made one, again and again."""
    wide: dict[int, int] = {}
    for key, count in bins.items():
        wide_key = -(-key >> steps)  # ceil, so that upper edges stay upper edges
        wide[wide_key] = wide.get(wide_key, 0) + count
    return wide


def value_ms(key: int, scale: int = 0) -> float:
    """The value that stands for a bin: no value in it is further away than `accuracy`."""
    return math.exp(math.ldexp(LOG_GAMMA, scale) * key) * (1 - accuracy(scale))


def encode_histograms(rows: Sequence[Sequence[Histogram]]) -> bytes:
    """Rows of histograms, each as long as the others; empty ones cost next to nothing.

    Raises:
        ValueError: More or larger than anybody reads.
    """
    slots = {len(row) for row in rows} or {0}
    if len(slots) != 1 or max(slots) > MAX_SLOTS or len(rows) > MAX_ROWS or symbols(rows) > MAX_SYMBOLS:
        raise ValueError(f"{len(rows)} rows of {slots} histograms with {symbols(rows)} bins")
    encoder = RangeEncoder()
    encoder.raw(len(rows), 16)
    encoder.raw(slots.pop(), 8)
    writer = _Writer(encoder)
    for row in rows:
        for histogram in row:
            writer.write(histogram)
    encoder.raw(_END, 8)
    return encoder.finish()


def decode_histograms(blob: bytes) -> list[list[Histogram]]:
    """Read what `encode_histograms` wrote.

    Raises:
        BadInputError: Damaged, impossible, or more than anybody writes.
    """
    decoder = RangeDecoder(blob)
    rows, slots = decoder.raw(16), decoder.raw(8)
    if rows > MAX_ROWS or slots > MAX_SLOTS:
        raise BadInputError(f"a sketch blob of {rows} rows of {slots} histograms")
    reader = _Reader(decoder)
    histograms = [[reader.read() for _ in range(slots)] for _ in range(rows)]
    if decoder.raw(8) != _END:
        raise BadInputError("a sketch blob that is cut or damaged")
    decoder.finish()
    return histograms


def symbols(rows: Iterable[Iterable[Histogram]]) -> int:
    """An upper bound of how many numbers the bins take."""
    return sum(
        _HEAD_SYMBOLS + (max(histogram.bins) - min(histogram.bins) + 1 if histogram.bins else 0)
        for row in rows
        for histogram in row
        if histogram.count
    )


class _Odds:
    """What was learnt from the histograms before; both ends learn alike."""

    def __init__(self) -> None:
        self.there: Odds = [1, 1]
        self.same_count: Odds = [1, 1]
        self.scale = NumberOdds()
        self.total = NumberOdds()
        self.zeros = NumberOdds()
        self.first = NumberOdds()
        self.gap = NumberOdds()
        self.exact = (NumberOdds(), NumberOdds(), NumberOdds())
        self.counts = [NumberOdds() for _ in range(64)]


class _Writer:
    def __init__(self, encoder: RangeEncoder) -> None:
        self._encoder = encoder
        self._odds = _Odds()
        self._count = 0
        self._first = 0

    def write(self, histogram: Histogram) -> None:
        encoder, odds = self._encoder, self._odds
        count = histogram.count
        encoder.bit(odds.there, bool(count))
        if not count:
            return
        encoder.number(odds.scale, histogram.scale)
        encoder.bit(odds.same_count, count == self._count)
        if count != self._count:
            encoder.number(odds.total, count)
            self._count = count
        encoder.number(odds.zeros, histogram.zeros)
        if histogram.bins:
            first = min(histogram.bins)
            encoder.number(odds.first, _folded(first))
            self._counts(histogram.bins, first)
        guessed = _guessed_ns(histogram.bins, histogram.scale, count)
        exact_ns = histogram.sum_ns, histogram.min_ns, histogram.max_ns
        for known, value_ns, guess in zip(odds.exact, exact_ns, guessed, strict=True):
            distance = _folded(value_ns - guess.value_ns)
            encoder.number(known, distance >> guess.bits)
            encoder.raw(distance, guess.bits)

    def _counts(self, bins: dict[int, int], at: int) -> None:
        """The counts from the first bin on; the end is known by their sum."""
        encoder, counts = self._encoder, self._odds.counts
        context = _Context()
        for key in sorted(bins):
            while at < key:
                encoder.number(counts[context.index], 0)
                at += 1
                if context.learn(0) == _GAP:
                    encoder.number(self._odds.gap, key - at)
                    at = key
                    context = _Context()
            encoder.number(counts[context.index], bins[key])
            context.learn(bins[key])
            at += 1


class _Reader:
    def __init__(self, decoder: RangeDecoder) -> None:
        self._decoder = decoder
        self._odds = _Odds()
        self._count = 0
        self._symbols_left = MAX_SYMBOLS

    def read(self) -> Histogram:
        decoder, odds = self._decoder, self._odds
        if not decoder.bit(odds.there):
            return Histogram()
        self._spend(_HEAD_SYMBOLS)
        scale = decoder.number(odds.scale)
        if not decoder.bit(odds.same_count):
            self._count = decoder.number(odds.total)
        count = self._count
        zeros = decoder.number(odds.zeros)
        if not (scale <= MAX_SCALE and 0 < count <= MAX_COUNT and zeros <= count):
            raise BadInputError(f"a histogram of {count} values, {zeros} of them zero, at scale {scale}")
        bins = {}
        if zeros < count:
            bins = self._counts(_unfolded(decoder.number(odds.first)), count - zeros, scale)
        exact_ns: list[int] = []
        for known, guess in zip(odds.exact, _guessed_ns(bins, scale, count), strict=True):
            distance = decoder.number(known) << guess.bits | decoder.raw(guess.bits)
            exact_ns.append(guess.value_ns + _unfolded(distance))
        sum_ns, min_ns, max_ns = exact_ns
        histogram = Histogram(zeros, bins, sum_ns, min_ns, max_ns, scale)
        _check(histogram, count)
        return histogram

    def _counts(self, at: int, left: int, scale: int) -> dict[int, int]:
        """The counts that the writer wrote; `left` is their sum."""
        decoder, counts = self._decoder, self._odds.counts
        lowest, highest = -(-MIN_KEY >> scale), -(-MAX_KEY >> scale)
        bins: dict[int, int] = {}
        context = _Context()
        while left:
            self._spend(1)
            if not lowest <= at <= highest:
                raise BadInputError(f"a histogram with a bin {at} at scale {scale}")
            count = decoder.number(counts[context.index])
            if count > left:
                raise BadInputError("a histogram whose bins hold more values than it says")
            if count:
                bins[at] = count
                left -= count
            at += 1
            if context.learn(count) == _GAP and left:
                at += decoder.number(self._odds.gap)
                context = _Context()
        return bins

    def _spend(self, symbols: int) -> None:
        self._symbols_left -= symbols
        if self._symbols_left < 0:
            raise BadInputError(f"a sketch blob of more than {MAX_SYMBOLS} numbers")


class _Context:
    """Which numbers to learn from: those that followed counts like the four before this one."""

    __slots__ = ("_before", "_empty", "index")

    def __init__(self) -> None:
        self._before = (0, 0, 0)
        self._empty = 0
        self.index = 0

    def learn(self, count: int) -> int:
        """Go on to the next bin; how many in a row were empty."""
        second, third, fourth = self._before
        self._before = (count, second, third)
        near = 2 * (count + second) + third + fourth
        self.index = near if near < _RARE else min(_RARE + near.bit_length(), 63)
        self._empty = 0 if count else self._empty + 1
        return self._empty


def _check(histogram: Histogram, count: int) -> None:
    least_ns, most_ns = histogram.min_ns, histogram.max_ns
    slack_ns = count + (count * most_ns >> 30)  # rounding, of each value and of the sum
    possible = count * least_ns - slack_ns <= histogram.sum_ns <= count * most_ns + slack_ns
    if not (0 <= least_ns <= most_ns <= _NS * MAX_VALUE_MS and histogram.sum_ns >= 0 and possible):
        raise BadInputError("a histogram whose sum, least and most value contradict each other")


def _folded(value: int) -> int:
    """Any number as one >= 0, small magnitudes small."""
    return 2 * value if value >= 0 else -2 * value - 1


def _unfolded(value: int) -> int:
    return -(value + 1 >> 1) if value & 1 else value >> 1


class _Guess(NamedTuple):
    """A figure as the bins alone say it, and how many bits its distance from the truth usually has."""

    value_ns: int
    bits: int


def _guessed_ns(bins: dict[int, int], scale: int, count: int) -> tuple[_Guess, _Guess, _Guess]:
    """Sum, least and most."""
    if not bins:
        return _Guess(0, 0), _Guess(0, 0), _Guess(0, 0)
    sum_ns = sum(_value_ns(key, scale) * values for key, values in bins.items())
    low_ns = _value_ns(min(bins), scale) if sum(bins.values()) == count else 0
    high_ns = _value_ns(max(bins), scale)
    even_out = count.bit_length() >> 1  # the errors of many values
    return (
        _Guess(sum_ns, max(0, sum_ns.bit_length() - _ERROR_BITS + scale - even_out)),
        _Guess(low_ns, max(0, low_ns.bit_length() - _ERROR_BITS + scale)),
        _Guess(high_ns, max(0, high_ns.bit_length() - _ERROR_BITS + scale)),
    )


@lru_cache(maxsize=8192)
def _value_ns(key: int, scale: int) -> int:
    """`value_ms` in nanoseconds, rounded so far that no machine's `exp` makes a difference."""
    mantissa, exponent = math.frexp(min(value_ms(key, scale), MAX_VALUE_MS) * _NS)
    shift = max(0, exponent - _SIGNIFICANT_BITS)
    return int(math.ldexp(mantissa, exponent - shift) + 0.5) << shift
