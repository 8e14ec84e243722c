"""Whatever the bytes: a typed error or the right file, in bounded memory and time."""

from __future__ import annotations

import bz2
import json
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.codecs import pairs
from tests.unit.codecs.test_decode_files import bsdiff40, steps

from vedette.delta.elements import BY_NAME
from vedette.delta.layout import Frame, Growth, Operation, Plan, Predictor
from vedette.delta.plan import HEADER, build_plan, parse_plan, plan_size_bytes
from vedette.errors import BadInputError
from vedette_fleet.delta.code_frame import pack
from vedette_fleet.delta.encode import encode_delta
from vedette_fleet.delta.tensor_delta import apply_tensor, encode_tensor

REPOSITORY = Path(__file__).parents[3]
ALLOWED_MIB = 48  # address space, in which arenas and stacks count too; resident growth is judged below
ALLOWED_RESIDENT = 16 << 20
PATCHES = {
    story: encode_tensor(*pairs.STORIES[story])
    for story in ("fine-tune int8", "fine-tune float16", "pruned", "low rank", "class added")
}


def reseal(patch: bytes) -> bytes:
    """Make all checksums right again, so that damage reaches the code behind them."""
    at = plan_size_bytes(patch)
    try:
        plan = parse_plan(_with_plan_check(patch[:at]))
    except BadInputError:
        return _with_plan_check(patch[:at]) + patch[at:]
    frames = []
    for frame in plan.frames:
        payload = patch[at : at + frame.size_bytes]
        frames.append(Frame(frame.operations, len(payload), zlib.crc32(payload), frame.output_crc))
        at += frame.size_bytes
    body = patch[plan_size_bytes(patch) :]
    return (
        build_plan(Plan(plan.old_bytes, plan.new_bytes, tuple(frames), plan.tables, plan.context_map), pack)
        + body
    )


def _with_plan_check(head: bytes) -> bytes:
    fields = HEADER.unpack_from(head)[:-1]
    packed = head[HEADER.size :]
    return HEADER.pack(*fields, zlib.crc32(packed, zlib.crc32(HEADER.pack(*fields, 0)))) + packed


def refused_or_right(old: bytes, new: bytes, patch: bytes) -> None:
    cure: str | None = "none was needed"
    try:
        made = apply_tensor(old, patch)
    except BadInputError as error:
        made, cure = new, error.cure
    assert made == new
    assert cure


@settings(max_examples=300, deadline=None)
@given(
    story=st.sampled_from(sorted(PATCHES)),
    flips=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4),
    sealed=st.booleans(),
)
def test_flipped_bytes(story: str, flips: list[tuple[float, int]], *, sealed: bool) -> None:
    patch = bytearray(PATCHES[story])
    for place, mask in flips:
        patch[8 + int(place * (len(patch) - 9))] ^= mask
    damaged = bytes(patch)
    if sealed:
        try:
            damaged = reseal(damaged)
        except (BadInputError, ValueError):
            return  # the header itself no longer tells where the plan ends
    refused_or_right(*pairs.STORIES[story], damaged)


@settings(max_examples=150, deadline=None)
@example(story="class added", other="fine-tune int8", cut=0.0, paste=0.0)
@given(
    story=st.sampled_from(sorted(PATCHES)),
    other=st.sampled_from(sorted(PATCHES)),
    cut=st.floats(0, 1),
    paste=st.floats(0, 1),
)
def test_cut_and_spliced_patches(story: str, other: str, cut: float, paste: float) -> None:
    one, two = PATCHES[story], PATCHES[other]
    spliced = one[: int(cut * len(one))] + two[int(paste * len(two)) :]
    refused_or_right(*pairs.STORIES[story], spliced)
    refused_or_right(*pairs.STORIES[story], one[: int(cut * (len(one) - 1))])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_noise_behind_a_right_header(noise: bytes) -> None:
    head = HEADER.pack(b"VTD1", 0, 10, 10, len(noise), len(noise), 0)
    refused_or_right(bytes(10), b"", _with_plan_check(head + noise))


INT8 = BY_NAME["int8"]
COPY = Operation(0, 1, 10, BY_NAME["uint8"], Predictor.COPY)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (Operation(-5, 1, 10, INT8, Predictor.OLD), "leaves the file"),
        (Operation(95, 1, 10, INT8, Predictor.OLD), "leaves the file"),
        (Operation(0, 1, 10, INT8, Predictor.OLD, source=-1), "leaves the file"),
        (Operation(0, 1, 10, INT8, Predictor.OLD, source=91), "leaves the file"),
        (Operation(0, 1 << 30, 1 << 30, INT8, Predictor.COPY), "leaves the file"),
        (Operation(0, 1 << 30, 1 << 30, INT8, Predictor.OLD), "a frame of"),
        (Operation(0, 1, 10, INT8, Predictor.SCALE, scales=1, scale_source=97), "scales lie outside"),
        (Operation(0, 1, 10, INT8, Predictor.SCALE, scales=1, scale_target=97), "scales lie outside"),
        (Operation(0, 2, 5, INT8, Predictor.GAIN, scales=1 << 40), "factors for an axis"),
        (Operation(0, 2, 5, INT8, Predictor.GAIN), "0 factors"),
        (Operation(0, 2, 5, INT8, Predictor.OLD, scales=2), "factors where none"),
        (Operation(0, 1, 10, INT8, Predictor.OLD, shift=3), "make no sense"),
        (Operation(0, 1, 10, INT8, Predictor.OLD, base_class=16), "make no sense"),
        (Operation(0, 1, 10, INT8, Predictor.PRODUCT), "vector of a product"),
        (Operation(0, 2, 5, INT8, Predictor.OLD, rank=17), "17 outer products"),
        (Operation(0, 2, 5, INT8, Predictor.OLD, rank=-1), "-1 outer products"),
        (Operation(0, 2, 5, INT8, Predictor.CONSTANT, rank=1), "takes none"),
        (Operation(0, 2, 5, INT8, Predictor.OLD, rank=9), "larger than their tensor"),
        (Operation(0, 2, 5, INT8, Predictor.OLD, growth=Growth(1 << 40, 5, 1)), "leaves the file"),
        (Operation(0, 2, 5, INT8, Predictor.OLD, growth=Growth(3, 4, 1)), "does not fit its tensor"),
        (Operation(0, 2, 5, INT8, Predictor.OLD, growth=Growth(-3, 5, 1)), "does not fit its tensor"),
    ],
)
def test_an_operation_that_reaches_outside_is_refused_before_it_runs(op: Operation, why: str) -> None:
    frames = (Frame((), 0, 0, 0), Frame((op,), 0, 0, 0))
    with pytest.raises(BadInputError, match=why):
        parse_plan(build_plan(Plan(100, 100, frames, (), b""), pack))


def test_two_operations_on_the_same_bytes_are_refused() -> None:
    frames = (Frame((), 0, 0, 0), Frame((COPY, Operation(9, 1, 5, INT8, Predictor.COPY)), 0, 0, 0))
    with pytest.raises(BadInputError, match="same bytes"):
        parse_plan(build_plan(Plan(100, 100, frames, (), b""), pack))


def bombs() -> dict[str, bytes]:
    """Small blobs that unpack to gigabytes, or say so."""
    huge = bytes(1 << 26)
    bomb = bz2.compress(huge)
    head = b"BSDIFF40" + steps(len(bomb), len(bomb), 1 << 20)
    lzma_bomb = pack(huge)
    plan = HEADER.pack(b"VTD1", int(lzma_bomb[0]), 1 << 20, 1 << 20, 1 << 20, len(lzma_bomb[1]), 0)
    return {
        "bsdiff4-bombs": head + bomb * 3,
        "bsdiff4-extra": bsdiff40(steps(0, 1 << 20, 0), b"", huge, 1 << 20),
        "zstd-bomb": zstd.compress(huge),
        "tensor-plan": _with_plan_check(plan + lzma_bomb[1]),
        "tensor-frames": _many_operations(),
    }


def _many_operations() -> bytes:
    """As many operations as may be, each of a few bytes."""
    ops = tuple(Operation(100 * at, 1, 99, INT8, Predictor.OLD, source=100 * at) for at in range(8000))
    return build_plan(Plan(1 << 20, 1 << 20, (Frame((), 0, 0, 0), Frame(ops, 0, 0, 0)), (), b""), pack)


def test_bombs_and_mutants_stay_within_memory_and_time(tmp_path: Path) -> None:
    """In a child under RLIMIT_AS and RLIMIT_CPU, as the update machine runs it."""
    old, new = pairs.STORIES["fine-tune int8"]
    new_mib = new.ljust(1 << 20, b"\0")
    old_mib = old.ljust(1 << 20, b"\0")
    (tmp_path / "base").write_bytes(old_mib)
    warm = b"warm" * 100
    (tmp_path / "warm").write_bytes(warm)
    for codec in ("bsdiff4", "tensor"):
        (tmp_path / f"warm.{codec}").write_bytes(encode_delta(warm, warm, codec)[1])
    (tmp_path / "warm.zstd").write_bytes(zstd.compress(warm))
    for name, blob in bombs().items():
        (tmp_path / name).write_bytes(blob)
    rng = random.Random(1)  # noqa: S311 - mutants are no secrets
    for codec in ("bsdiff4", "tensor"):
        patch = encode_delta(old_mib, new_mib, codec)[1]
        (tmp_path / f"{codec}-right").write_bytes(patch)
        for number in range(60):
            mutant = bytearray(patch)
            for _ in range(rng.randint(1, 5)):
                mutant[rng.randrange(8, len(mutant))] = rng.randrange(256)
            (tmp_path / f"{codec}-{number:03}").write_bytes(mutant)
    answer = subprocess.run(
        [sys.executable, "-m", "tests.unit.codecs.limited", str(tmp_path), str(ALLOWED_MIB), str(1 << 20)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    said = json.loads(answer.stdout)
    verdicts = said["verdicts"]
    assert verdicts.pop("tensor-right") == verdicts.pop("bsdiff4-right") == "made"
    # A mutant of bsdiff4 may make another file: only the hash of the output tells. Ours has checksums.
    wrong = {
        name: verdict
        for name, verdict in verdicts.items()
        if verdict != "refused" and not (name.startswith("bsdiff4-0") and verdict == "made")
    }
    assert not wrong
    assert said["grown_bytes"] < ALLOWED_RESIDENT
