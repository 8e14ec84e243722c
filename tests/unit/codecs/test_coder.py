"""The entropy coder and the integer images: exact, ordered, and close to the entropy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.delta import rans
from vedette.delta.elements import (
    BY_NAME,
    ELEMENTS,
    BitReader,
    Element,
    from_image,
    join,
    join_top,
    raw_widths,
    split,
    split_top,
    to_image,
)
from vedette.delta.layout import CONTEXTS, GROUPS
from vedette.delta.stages import SectionReader, Stage, unpack
from vedette.delta.varint import Cursor, write, write_signed
from vedette.errors import BadInputError
from vedette_fleet.delta.code_frame import pack, pack_bits
from vedette_fleet.delta.code_tokens import build_tables, encode_tokens, entropy_bits


def coded(
    tokens: np.ndarray, contexts: np.ndarray, lanes: int
) -> tuple[np.ndarray, np.ndarray, rans.Tables, np.ndarray]:
    counts = np.zeros((GROUPS * CONTEXTS, 256), np.int64)
    np.add.at(counts, (contexts, tokens), 1)
    tables, context_map = build_tables(counts)
    table_of = np.frombuffer(context_map, np.uint8)[contexts]
    words, states = encode_tokens(tokens, table_of, tables, lanes)
    return words, states, rans.Tables(tables), table_of


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 3000),
    kinds=st.integers(1, 256),
    lanes=st.integers(1, 300),
    seed=st.integers(0, 9999),
)
def test_tokens_come_back_in_any_number_of_lanes(count: int, kinds: int, lanes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, kinds, count).astype(np.uint8)
    contexts = rng.choice(GROUPS * CONTEXTS, 9)[rng.integers(0, 9, count)]
    words, states, tables, table_of = coded(tokens, contexts, lanes)
    assert np.array_equal(rans.decode(words, states, tables, table_of), tokens)


@pytest.mark.parametrize("spread", [0.3, 2.0, 20.0])
def test_words_stay_within_two_per_cent_of_the_entropy(spread: float) -> None:
    rng = np.random.default_rng(1)
    tokens, _, _ = split(np.round(rng.laplace(scale=spread, size=200_000)).astype(np.int64))
    words, states, _, _ = coded(tokens, np.zeros(tokens.size, np.int64), 64)
    least = float(entropy_bits(np.bincount(tokens, minlength=256))) / 8
    assert words.nbytes + states.nbytes <= 1.02 * least


def test_contexts_that_differ_get_tables_of_their_own() -> None:
    rng = np.random.default_rng(1)
    contexts = rng.integers(0, 2, 50_000)
    tokens = np.where(contexts, rng.integers(0, 200, 50_000), 3).astype(np.uint8)
    words, *_ = coded(tokens, contexts, 32)
    assert words.nbytes <= 1.03 * float(entropy_bits(np.bincount(tokens[contexts == 1]))) / 8


@pytest.mark.parametrize("damage", ["cut", "longer", "state"])
def test_a_damaged_stream_is_refused(damage: str) -> None:
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 99, 5000).astype(np.uint8)
    words, states, tables, table_of = coded(tokens, np.zeros(5000, np.int64), 16)
    if damage == "cut":
        words = words[:-3]
    elif damage == "longer":
        words = np.append(words, words[:1])
    else:
        states = states ^ np.uint32(1 << 20)
    with pytest.raises(BadInputError, match="damaged patch"):
        rans.decode(words, states, tables, table_of)


def test_every_residual_of_32_bits_has_a_token_and_comes_back() -> None:
    edges = [1 << bits for bits in range(32)]
    values = np.array([0, *(sign * (edge + d) for edge in edges for d in (-1, 0, 1) for sign in (1, -1))])
    values = values[(values >= -(1 << 31)) & (values <= 1 << 31)]
    tokens, widths, raw = split(values)
    assert np.array_equal(widths, raw_widths(tokens))
    assert np.array_equal(join(tokens, raw), values)


def test_every_byte_residual_comes_back() -> None:
    values = np.arange(-128, 128)
    tokens, _, raw = split(values)
    assert len(set(zip(tokens.tolist(), raw.tolist(), strict=True))) == 256
    assert np.array_equal(join(tokens, raw), values)


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda element: element.name)
def test_the_image_keeps_order_and_bits(element: Element) -> None:
    bits = np.random.default_rng(1).integers(0, 256, 4000, np.uint8)[: 4000 // element.size * element.size]
    values = bits.view(element.integer)
    image = to_image(values, element, 0)
    assert np.array_equal(from_image(image, element, 0), values)
    if element.name in {"float32", "float16"}:
        floats = values.view(f"<f{element.size}")
        finite = np.isfinite(floats)
        order = np.argsort(image[finite], kind="stable")
        assert (np.diff(floats[finite][order].astype(np.float64)) >= 0).all()
    if element.is_float:
        tokens, _, raw = split_top(values, element)
        assert np.array_equal(join_top(tokens, raw, element), values)


def test_a_shift_drops_only_bits_that_are_zero() -> None:
    element = BY_NAME["float32"]
    values = np.array([1.5, -1.5, 0, -0.0, 2**20, -(2.0**-20)], np.float32).view("<u4")
    assert np.array_equal(from_image(to_image(values, element, 12), element, 12), values)


@given(st.lists(st.tuples(st.integers(0, 31), st.integers(0, 2**31 - 1)), max_size=50))
def test_raw_bits_come_back_and_no_more(pairs: list[tuple[int, int]]) -> None:
    widths = np.array([width for width, _ in pairs], np.int64)
    values = np.array([value & ((1 << width) - 1) for width, value in pairs], np.int64)
    reader = BitReader(pack_bits(widths, values))
    assert np.array_equal(reader.read(widths), values)
    reader.finish()
    with pytest.raises(BadInputError):
        reader.read(np.full(1, 8, np.int64))


@given(st.integers(-(2**62), 2**62))
def test_numbers_of_variable_length_come_back(value: int) -> None:
    out = bytearray()
    write_signed(out, value)
    write(out, abs(value))
    cursor = Cursor(bytes(out))
    assert (cursor.signed("value"), cursor.number("value")) == (value, abs(value))
    cursor.finish("numbers")


@given(st.binary(max_size=12))
def test_no_bytes_break_the_reader_of_numbers(raw: bytes) -> None:
    cursor = Cursor(raw)
    try:
        assert 0 <= cursor.number("value") < 1 << 64
    except BadInputError:
        assert cursor.at <= len(raw)


@pytest.mark.parametrize("raw", [b"", b"x", bytes(5000), bytes(range(256)) * 20])
def test_sections_come_back_piece_by_piece(raw: bytes) -> None:
    stage, packed = pack(raw)
    reader = SectionReader(stage, packed, len(raw))
    pieces = [reader.read(min(7, len(raw) - at)) for at in range(0, len(raw), 7)]
    reader.finish()
    assert b"".join(pieces) == raw


@pytest.mark.parametrize("stage", list(Stage))
def test_sections_that_are_no_sections_are_refused(stage: Stage) -> None:
    with pytest.raises(BadInputError):
        unpack(stage, b"\x07garbage", 1000)
