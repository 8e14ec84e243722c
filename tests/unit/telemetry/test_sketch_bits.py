"""Sketches on the wire: exact, small, and safe to read from anybody."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.telemetry.recorded import VECTORS, lognormal, recorded_rows, sketch_of
from tests.unit.telemetry.test_sketch import DISTRIBUTIONS

from vedette.errors import BadInputError
from vedette.telemetry.sketch import RELATIVE_ACCURACY, Sketch
from vedette.wire import sketch_bits
from vedette.wire.range_coder import NumberOdds, RangeDecoder, RangeEncoder
from vedette.wire.sketch_bits import (
    MAX_KEY,
    MAX_SCALE,
    MIN_KEY,
    Histogram,
    accuracy,
    decode_histograms,
    encode_histograms,
    value_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

durations_ms = st.floats(0, 1e12) | st.floats(1e-6, 1e5) | st.sampled_from([0.0, 1e-10, 1e-9, 1.0, 900.0])
sketches = st.lists(durations_ms, max_size=60).map(sketch_of)
rows = st.integers(1, 4).flatmap(
    lambda slots: st.lists(st.lists(sketches, min_size=slots, max_size=slots), max_size=3)
)


@settings(max_examples=150, deadline=None)
@given(rows)
def test_what_was_written_is_read(cameras: list[list[Sketch]]) -> None:
    """Bins, zeros, count, sum, least and most: exactly, whatever the values."""
    written = [[sketch.histogram() for sketch in camera] for camera in cameras]
    assert decode_histograms(encode_histograms(written)) == written


@settings(max_examples=60, deadline=None)
@given(sketches, st.integers(0, MAX_SCALE))
def test_joined_bins_are_written_and_read_too(sketch: Sketch, scale: int) -> None:
    coarse = sketch.histogram().coarsened(scale)
    (row,) = decode_histograms(encode_histograms([[coarse]]))
    assert row == [coarse if coarse.count else Histogram()]
    assert coarse.count == sketch.count


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, (1 << 60) - 1), max_size=30), st.lists(st.booleans(), max_size=200))
def test_numbers_and_bits_survive_the_coder(numbers: list[int], bits: list[bool]) -> None:
    encoder, odds, known = RangeEncoder(), NumberOdds(), [1, 1]
    for bit in bits:
        encoder.bit(known, bit)
    for number in numbers:
        encoder.number(odds, number)
        encoder.raw(number, 60)
    decoder, odds, known = RangeDecoder(encoder.finish()), NumberOdds(), [1, 1]
    assert [bool(decoder.bit(known)) for _ in bits] == bits
    assert [number for _ in numbers for number in (decoder.number(odds), decoder.raw(60))] == [
        number for number in numbers for _ in range(2)
    ]
    decoder.finish()


def test_carries_run_through_bytes_that_were_held_back() -> None:
    """The rare path of every range coder: long runs of one answer, then the other."""
    for length in range(1, 400, 7):
        encoder, known = RangeEncoder(), [1, 1]
        answers = [1] * length + [0] + [1] * length
        for answer in answers:
            encoder.bit(known, answer)
        decoder, known = RangeDecoder(encoder.finish()), [1, 1]
        assert [decoder.bit(known) for _ in answers] == answers


def test_the_format_does_not_change_by_accident() -> None:
    """Devices and fleets of different age read each other: the recorded bytes are those of today."""
    blob = (VECTORS / "window.blob").read_bytes()
    assert decode_histograms(blob) == recorded_rows()
    assert encode_histograms(recorded_rows()) == blob


def test_no_machines_arithmetic_makes_a_difference() -> None:
    """What bins stand for is rounded to 16 bits; none lies where two roundings of `exp` would part."""
    for scale in range(MAX_SCALE + 1):
        for key in range(-(-MIN_KEY >> scale), -(-MAX_KEY >> scale) + 1):
            exact_ns = min(value_ms(key, scale), 1e12) * 1e6
            unit = 1 << max(0, int(exact_ns).bit_length() - 16)
            assert abs((exact_ns / unit) % 1 - 0.5) > 1e-9, f"bin {key} at scale {scale}"


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_thousand_reports_merge_within_one_per_cent(name: str) -> None:
    """Case 43, and the bar: p50, p95, p99, p99.9 of 1,000 devices, through the wire, against all values."""
    rng = random.Random(name)  # noqa: S311 - reproducible data, no secret
    draw = DISTRIBUTIONS[name]
    everything: list[float] = []
    fleet = Sketch()
    for _ in range(1000):
        values = [draw(rng) for _ in range(rng.randint(1, 25))]
        everything += values
        (received,) = decode_histograms(encode_histograms([[sketch_of(values).histogram()]]))
        fleet.merge(Sketch.of(received[0]))
    everything.sort()
    assert fleet.count == len(everything)
    assert fleet.accuracy == pytest.approx(RELATIVE_ACCURACY)
    for q in (0.5, 0.95, 0.99, 0.999):
        true = everything[int(q * (len(everything) - 1))]
        assert fleet.quantile(q) == pytest.approx(true, rel=RELATIVE_ACCURACY * (1 + 1e-9)), f"q={q}"


@pytest.mark.parametrize("unlike", [1, 3])
def test_a_coarser_part_makes_the_whole_coarser_and_it_says_so(unlike: int) -> None:
    values = [float(value) for value in range(1, 400)]
    fine, coarse = sketch_of(values).histogram(), sketch_of(values).histogram().coarsened(unlike)
    for order in ((fine, coarse), (coarse, fine)):
        merged = Sketch.merged(Sketch.of(histogram) for histogram in order)
        merged.record(200.0)
        assert merged.accuracy == pytest.approx(accuracy(unlike))
        assert merged.count == 2 * len(values) + 1
        for q in (0.1, 0.5, 0.99):
            true = sorted([*values, *values, 200.0])[int(q * 2 * len(values))]
            assert merged.quantile(q) == pytest.approx(true, rel=merged.accuracy)


def test_two_modes_far_apart_pay_for_no_gap() -> None:
    """1 ms and 900 ms with 340 empty bins between them."""
    rng = random.Random(4)  # noqa: S311 - reproducible data, no secret
    values = [rng.gauss(1, 0.02) if rng.random() < 0.9 else rng.gauss(900, 20) for _ in range(1800)]
    assert len(encode_histograms([[sketch_of(values).histogram()]])) < 64


def test_a_lognormal_minute_is_as_small_as_the_module_says() -> None:
    rng = random.Random(5)  # noqa: S311 - reproducible data, no secret
    minute = [[lognormal(rng, 5.0, 0.3) for _ in range(6)] for _ in range(8)]
    assert len(encode_histograms(minute)) / 48 < 62


def test_more_than_anybody_reads_is_not_written() -> None:
    wide = Histogram(bins={MIN_KEY: 1, MAX_KEY: 1}, sum_ns=10**18, min_ns=0, max_ns=10**18)
    with pytest.raises(ValueError, match="rows of"):
        encode_histograms([[wide] * 32] * 2)
    with pytest.raises(ValueError, match="rows of"):
        encode_histograms([[wide], []])


# Hostile bytes -------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_sketch_or_bad_input(blob: bytes) -> None:
    """Whatever a stranger sends: an error that says so, or figures within bounds; never another exception."""
    try:
        rows = decode_histograms(blob)
    except BadInputError:
        return
    assert all(histogram.count <= sketch_bits.MAX_COUNT for row in rows for histogram in row)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2774), st.integers(1, 255))
def test_one_damaged_byte_never_breaks_the_reader(at: int, flip: int) -> None:
    blob = bytearray((VECTORS / "window.blob").read_bytes())
    blob[at % len(blob)] ^= flip
    with contextlib.suppress(BadInputError):
        assert len(decode_histograms(bytes(blob))) <= sketch_bits.MAX_ROWS


@pytest.mark.parametrize("length", [0, 1, 3, 4, 10, 1000])
def test_a_cut_blob_is_refused(length: int) -> None:
    with pytest.raises(BadInputError):
        decode_histograms((VECTORS / "window.blob").read_bytes()[:length])


def test_something_behind_the_end_is_refused() -> None:
    with pytest.raises(BadInputError, match="behind its end"):
        decode_histograms((VECTORS / "window.blob").read_bytes() + b"and more")


def test_numbers_beyond_all_bounds_are_refused() -> None:
    assert_refused([(16, 60_000), (8, 7)], "rows")
    assert_refused([(16, 1), (8, 200)], "rows")


def assert_refused(fields: Sequence[tuple[int, int]], why: str) -> None:
    encoder = RangeEncoder()
    for width, value in fields:
        encoder.raw(value, width)
    with pytest.raises(BadInputError, match=why):
        decode_histograms(encoder.finish())


@pytest.mark.parametrize(
    ("histogram", "why"),
    [
        (Histogram(bins={5000: 3}, sum_ns=3, min_ns=1, max_ns=1), "a bin 5000"),
        (Histogram(bins={10: 3}, sum_ns=1 << 90, min_ns=1, max_ns=1), "contradict"),
        (Histogram(bins={10: 3}, sum_ns=3, min_ns=9, max_ns=1), "contradict"),
        (Histogram(bins={10: 3}, sum_ns=-3, min_ns=-1, max_ns=-1), "contradict"),
        (Histogram(bins={10: 1 << 50}, sum_ns=1 << 50, min_ns=1, max_ns=1), "values"),
        (Histogram(bins={1: 1}, sum_ns=1, min_ns=1, max_ns=1, scale=12), "scale 12"),
    ],
)
def test_figures_that_cannot_be_are_refused(histogram: Histogram, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        decode_histograms(encode_histograms([[histogram]]))


def test_a_small_blob_cannot_keep_a_reader_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's encoder without our limits: what costs little to send may not cost much to read."""
    one = sketch_of([1.0]).histogram()
    with monkeypatch.context() as patched:
        patched.setattr(sketch_bits, "MAX_SYMBOLS", 1 << 40)
        blob = encode_histograms([[one] * 32] * 400)
    with pytest.raises(BadInputError, match="more than 131072 numbers"):
        decode_histograms(blob)
