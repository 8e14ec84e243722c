"""Tensor deltas come back bit for bit, and are as small as the change they tell of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codecs import pairs

from vedette.delta.execute import RANGE_CODED, FrameContent
from vedette.delta.layout import Predictor
from vedette.delta.plan import parse_plan, plan_size_bytes
from vedette.delta.varint import Cursor
from vedette.errors import BadInputError, UsageError
from vedette.wire.release import Codec
from vedette_fleet.delta.choose import WholeFiles
from vedette_fleet.delta.encode import encode_delta, encode_full
from vedette_fleet.delta.tensor_delta import apply_tensor, encode_tensor

NOTHING = 300  # bytes of a delta that tells of no change: header, plan, checksums


def predictors(patch: bytes) -> set[Predictor]:
    return {op.predictor for op in parse_plan(patch[: plan_size_bytes(patch)]).operations}


@pytest.mark.parametrize("story", pairs.STORIES)
def test_every_kind_of_change_comes_back_bit_for_bit(story: str) -> None:
    old, new = pairs.STORIES[story]
    assert apply_tensor(old, encode_tensor(old, new)) == new


@pytest.mark.parametrize(
    ("story", "predictor"),
    [
        ("fine-tune int8", Predictor.PRODUCT),
        ("fine-tune float32", Predictor.OLD),
        ("pruned", Predictor.THRESHOLD),
        ("rescaled channels", Predictor.GAIN),
        ("renamed", Predictor.COPY),
    ],
)
def test_each_change_is_told_by_the_predictor_made_for_it(story: str, predictor: Predictor) -> None:
    assert predictor in predictors(encode_tensor(*pairs.STORIES[story]))


def test_a_change_of_low_rank_is_told_by_outer_products() -> None:
    """Three of them leave nothing but the noise."""
    old, new = pairs.STORIES["low rank"]
    patch = encode_tensor(old, new)
    (op,) = (op for op in parse_plan(patch[: plan_size_bytes(patch)]).operations if op.coded)
    assert op.rank >= 3
    assert len(patch) < 0.72 * len(encode_delta(old, new, "bsdiff4")[1])


def test_scales_alone_that_changed_cost_only_themselves() -> None:
    """Re-calibrated: the weights are the same, so are their integers; the biases follow from the scales."""
    rng = np.random.default_rng(3)
    weights = rng.integers(-127, 127, (64, 64)).astype(np.int8)
    scale = rng.uniform(0.01, 0.02, 64).astype(np.float32)
    fresh = (scale * np.float32(1.125)).astype(np.float32)
    bias = rng.integers(-90000, 90000, 64)
    old = pairs.onnx_file({"w": weights, "b": bias.astype(np.int32), "b.scale": scale})
    new = pairs.onnx_file({"w": weights, "b": np.round(bias / 1.125).astype(np.int32), "b.scale": fresh})
    patch = encode_tensor(old, new)
    assert Predictor.SCALE in predictors(patch)
    assert len(patch) < NOTHING + 3 * 64


@pytest.mark.parametrize("story", ["the same", "to nothing"])
def test_no_change_costs_nothing(story: str) -> None:
    assert len(encode_tensor(*pairs.STORIES[story])) < NOTHING


@pytest.mark.parametrize(
    ("story", "share"), [("fine-tune int8", 0.55), ("fine-tune float32", 0.75), ("pruned", 0.05)]
)
def test_it_beats_bsdiff4_where_weights_moved(story: str, share: float) -> None:
    old, new = pairs.STORIES[story]
    _, plain = encode_delta(old, new, "bsdiff4")
    codec, best = encode_delta(old, new)
    assert codec is Codec.TENSOR
    assert len(best) <= share * len(plain)


def test_a_layer_that_is_put_in_costs_what_it_holds() -> None:
    """It took the name of the layer behind it, which tells nothing of it; nearly an identity packs well."""
    rng = np.random.default_rng(4)
    inner, last = (rng.normal(size=(96, width)).astype(np.float32) for width in (96, 64))
    fresh = np.eye(96, dtype=np.float32)
    fresh[5, :40] = 1e-4 * rng.normal(size=40)
    old = pairs.onnx_file({"layers.0": inner, "layers.1": last})
    new = pairs.onnx_file({"layers.0": inner, "layers.1": fresh, "layers.2": last})
    patch = encode_tensor(old, new)
    assert len(patch) < 800
    assert len(patch) < len(encode_delta(old, new, "bsdiff4")[1])


def test_a_sparse_change_is_decoded_in_many_lanes_and_a_small_one_in_few() -> None:
    """Steps of all lanes cost time, whatever they hold; where few bytes are coded, lanes only cost space."""
    rng = np.random.default_rng(5)
    before = rng.integers(-99, 99, (300, 1000), np.int8)
    after = before + (rng.random(before.shape) < 0.01).astype(np.int8)
    assert coded_lanes({"w": before}, {"w": after}) >= 200
    still = rng.integers(-99, 99, (300, 10_000), np.int8)
    assert coded_lanes({"w": before[:20], "v": still}, {"w": after[:20] + 1, "v": still}) <= 8


def coded_lanes(before: dict[str, pairs.Array], after: dict[str, pairs.Array]) -> int:
    """Of the only frame with range coded tokens."""
    old, new = pairs.onnx_file(before), pairs.onnx_file(after)
    patch = encode_tensor(old, new)
    at = plan_size_bytes(patch)
    plan = parse_plan(patch[:at])
    (frame,) = (frame for frame in plan.frames if any(op.coded for op in frame.operations))
    start = at + sum(each.size_bytes for each in plan.frames[: plan.frames.index(frame)])
    content = FrameContent(frame, patch[start : start + frame.size_bytes], WholeFiles(old, new))
    assert content.stage == RANGE_CODED
    return Cursor(content.packed).number("lanes")


def test_auto_takes_whatever_is_smaller() -> None:
    rng = np.random.default_rng(1)
    for old in (rng.bytes(40_000), b"configuration: 1\n" * 40, pairs.STORIES["pruned"][0]):
        new = old[: len(old) // 2] + b"and more\n" + old[len(old) // 2 :]
        sizes = {
            codec: len(encode_delta(old, new, codec.value)[1]) for codec in (Codec.BSDIFF4, Codec.TENSOR)
        }
        codec, blob = encode_delta(old, new)
        assert (len(blob), sizes[codec]) == (min(sizes.values()), min(sizes.values()))


def test_a_codec_that_makes_no_deltas_is_a_wrong_call() -> None:
    with pytest.raises(UsageError, match="zstd"):
        encode_delta(b"", b"", "zstd")


def test_full_encodings_are_never_larger_than_the_file() -> None:
    noise = np.random.default_rng(1).bytes(5000)
    assert encode_full(noise) == (Codec.RAW, noise)
    codec, blob = encode_full(bytes(5000))
    assert (codec, len(blob) < 50) == (Codec.ZSTD, True)


def test_the_same_pair_gives_the_same_bytes() -> None:
    """Releases are reproducible."""
    old, new = pairs.STORIES["fine-tune int8"]
    assert encode_tensor(old, new) == encode_tensor(old, new)


@pytest.mark.parametrize("story", ["fine-tune int8", "pruned", "class added"])
def test_a_flipped_byte_of_the_base_is_noticed(story: str) -> None:
    """Casebook 38: same version, other bytes. Each frame carries a checksum of what it makes."""
    old, new = pairs.STORIES[story]
    patch = encode_tensor(old, new)
    damaged = bytearray(old)
    damaged[len(old) // 2] ^= 0x10
    with pytest.raises(BadInputError, match="another old file"):
        apply_tensor(bytes(damaged), patch)


def test_tensors_larger_than_a_frame_are_cut() -> None:
    rng = np.random.default_rng(2)
    before = rng.integers(-99, 99, (3, 800_000), np.int8)
    after = before + (rng.random(before.shape) < 0.01).astype(np.int8)
    old, new = pairs.onnx_file({"w": before}), pairs.onnx_file({"w": after})
    patch = encode_tensor(old, new)
    assert len(parse_plan(patch[: plan_size_bytes(patch)]).frames) > 2
    assert apply_tensor(old, patch) == new


def test_a_row_longer_than_a_frame_is_cut_too() -> None:
    rng = np.random.default_rng(2)
    before = rng.integers(-99, 99, (1, 9 << 18), np.int8)
    old, new = pairs.onnx_file({"w": before}), pairs.onnx_file({"w": before + np.int8(1)})
    assert apply_tensor(old, encode_tensor(old, new)) == new


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_two_files_come_back(old: bytes, new: bytes) -> None:
    assert apply_tensor(old, encode_tensor(old, new)) == new


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(pairs.ONNX_TYPES)),
    rows=st.integers(1, 20),
    columns=st.integers(1, 40),
    changed=st.floats(0, 1),
    seed=st.integers(0, 1 << 32),
)
def test_any_bits_in_a_tensor_come_back(
    kind: str, rows: int, columns: int, changed: float, seed: int
) -> None:
    """NaN with payloads, infinities, subnormals and negative zero are bits like any others."""
    rng = np.random.default_rng(seed)
    size = np.dtype(kind).itemsize
    before = rng.integers(0, 256, (rows, columns * size), np.uint8)
    after = np.where(rng.random(before.shape) < changed, rng.integers(0, 256, before.shape), before)
    old, new = (
        pairs.onnx_file({"w": np.ascontiguousarray(bits.astype(np.uint8)).view(kind)})
        for bits in (before, after)
    )
    assert apply_tensor(old, encode_tensor(old, new)) == new
