"""What an update would take, decided before a byte of it is fetched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from vedette.update.causes import Cause
from vedette.update.plan import (
    Box,
    ClockWindow,
    Conditions,
    Deferred,
    FileStep,
    Plan,
    Refused,
    make_plan,
    not_now,
    parse_window,
)
from vedette.update.record import REUSE, FileProgress
from vedette.wire.release import Codec, Encoding, EncodingKind, ReleaseFile, ReleaseManifest, ReleaseNeeds

OLD, OTHER, NEW, LABELS = "a" * 64, "b" * 64, "c" * 64, "d" * 64
NEEDS = ReleaseNeeds(
    engine="onnx",
    runtime="1.18",
    opset=(17, 17),
    arch=("aarch64", "x86_64"),
    accelerators=(),
    memory_mb=200,
    agent="0.1",
)
BOX = Box(
    arch="x86_64",
    agent="0.1.0",
    runtimes={"onnx": "1.22.1"},
    opsets=(7, 23),
    accelerators=("cpu",),
    memory_mb=2048,
)


def full(size_bytes: int, codec: Codec = Codec.ZSTD) -> Encoding:
    return Encoding(EncodingKind.FULL, codec, "e" * 64, size_bytes)


def delta(base: str, size_bytes: int, codec: Codec = Codec.TENSOR) -> Encoding:
    return Encoding(EncodingKind.DELTA, codec, "f" * 64, size_bytes, base)


def release(*encodings: Encoding, needs: ReleaseNeeds = NEEDS) -> ReleaseManifest:
    model = ReleaseFile("model.onnx", NEW, 1000, encodings or (full(900), delta(OLD, 100)))
    labels = ReleaseFile("labels.txt", LABELS, 50, (full(20),))
    return ReleaseManifest(1, "acme", "traffic", "2", 2, "0" * 64, (model, labels), needs)


def plan(
    manifest: ReleaseManifest,
    stored: set[str] | None = None,
    *,
    box: Box = BOX,
    free_bytes: int = 1 << 20,
    conditions: Conditions | None = None,
    codecs: frozenset[Codec] = frozenset(Codec),
) -> Plan | Deferred | Refused:
    return make_plan(
        manifest,
        box=box,
        stored=stored or set(),
        free_bytes=free_bytes,
        conditions=conditions or Conditions(),
        codecs=codecs,
    )


def test_a_delta_is_taken_when_its_base_is_here_by_content() -> None:
    """Case 38: the base is known by its hash, never by a version."""
    made = plan(release(), {OLD, LABELS})
    assert isinstance(made, Plan)
    assert made.steps == (FileStep("model.onnx", 1, 0, 100), FileStep("labels.txt", REUSE, 0, 0))
    assert (made.fetch_bytes, made.need_bytes, made.bytes_limit) == (100, 1150, 1840)
    assert made.progress() == (FileProgress(1, 0), FileProgress(REUSE, 0))


@pytest.mark.parametrize("stored", [set(), {OTHER}])
def test_without_the_base_the_smallest_full_encoding_is_taken(stored: set[str]) -> None:
    made = plan(release(full(1000, Codec.RAW), full(900), delta(OLD, 100)), stored)
    assert isinstance(made, Plan)
    assert made.steps[0] == FileStep("model.onnx", 1, 1, 900)


@pytest.mark.parametrize(("size_bytes", "encoding"), [(720, 1), (721, 0)])
def test_a_delta_above_four_fifths_of_the_full_one_is_not_worth_it(size_bytes: int, encoding: int) -> None:
    made = plan(release(full(900), delta(OLD, size_bytes)), {OLD})
    assert isinstance(made, Plan)
    assert made.steps[0].encoding == encoding


def test_codecs_that_this_agent_cannot_decode_are_passed_over() -> None:
    manifest = release(full(900), delta(OLD, 100), delta(OLD, 300, Codec.BSDIFF4))
    made = plan(manifest, {OLD}, codecs=frozenset({Codec.ZSTD, Codec.BSDIFF4}))
    assert isinstance(made, Plan)
    assert made.steps[0].encoding == 2
    none = plan(manifest, codecs=frozenset({Codec.TENSOR}))
    assert isinstance(none, Refused)
    assert "update the agent" in none.detail


@pytest.mark.parametrize("free_bytes", [1149, 1150])
def test_space_is_checked_before_a_byte_is_fetched(free_bytes: int) -> None:
    """Case 36: outputs and blobs, beside the reserve."""
    made = plan(release(), {OLD, LABELS}, free_bytes=free_bytes)
    assert isinstance(made, Plan if free_bytes == 1150 else Refused)
    if isinstance(made, Refused):
        assert (made.cause, made.space_wanted_bytes) == (Cause.NO_SPACE, 1150)
        assert "1150" in made.detail
        assert "1149" in made.detail


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        ({"arch": ("riscv64",)}, "riscv64; this box is x86_64"),
        ({"accelerators": ("cuda", "tensorrt")}, "cuda, tensorrt; this box has cpu"),
        ({"memory_mb": 4096}, "4096 MB of memory; this box has 2048"),
        ({"engine": "litert", "opset": None}, "litert, which is not installed"),
        ({"runtime": "1.23"}, "1.23 or newer; 1.22.1 is installed"),
        ({"opset": (17, 99)}, "17 to 99; the runtime reads 7 to 23"),
        ({"agent": "2.0"}, "2.0 or newer; this is 0.1.0"),
        ({"engine": ""}, "`engine` is empty"),
        ({"runtime": ""}, "`runtime` is empty"),
        ({"agent": ""}, "`agent` is empty"),
        ({"opset": None}, "`opset` is missing"),
        ({"runtime": "new"}, "new or newer"),
        ({"memory_mb": -1}, "less than no memory"),
    ],
)
def test_a_release_for_another_box_is_refused_before_download(needs: dict[str, object], words: str) -> None:
    """Case 5 and 64: both sides are named, and a missing requirement refuses."""
    made = plan(release(needs=replace(NEEDS, **needs)))
    assert isinstance(made, Refused)
    assert made.cause is Cause.WRONG_DEVICE
    assert words in made.detail


def test_a_release_that_does_not_fit_is_refused_at_once_and_not_at_night() -> None:
    late = Conditions(minute=12 * 60, window=ClockWindow(120, 300))
    assert isinstance(plan(release(needs=replace(NEEDS, arch=("riscv64",))), conditions=late), Refused)
    assert plan(release(), conditions=late) == Deferred("outside the update window", 14 * 3600.0)


def test_other_names_of_the_same_machine_and_longer_versions_fit() -> None:
    arm = replace(BOX, arch="arm64", agent="0.1")
    assert isinstance(plan(release(needs=replace(NEEDS, agent="0.1.0")), box=arm), Plan)


@pytest.mark.parametrize(
    ("conditions", "wait_s"),
    [
        (Conditions(), None),
        (Conditions(too_hot=True), 300.0),
        (Conditions(queue_full=True), 60.0),
        (Conditions(minute=119, window=ClockWindow(120, 300)), 60.0),
        (Conditions(minute=120, window=ClockWindow(120, 300)), None),
        (Conditions(minute=299, window=ClockWindow(120, 300)), None),
        (Conditions(minute=300, window=ClockWindow(120, 300)), 21 * 3600.0),
        (Conditions(minute=10, window=ClockWindow(1380, 60)), None),
        (Conditions(minute=60, window=ClockWindow(1380, 60)), 22 * 3600.0),
        (Conditions(minute=None, window=ClockWindow(120, 300)), 900.0),
        (Conditions(minute=None, window=ClockWindow(120, 300), waited_s=86400.0), None),
    ],
)
def test_now_or_later(conditions: Conditions, wait_s: float | None) -> None:
    """Case 39, I10: a window is waited for while the clock is wrong, but not for ever."""
    found = not_now(conditions)
    assert (found.wait_s if found else None) == wait_s


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 1439))
def test_after_the_wait_the_window_is_open(start_min: int, end_min: int, minute: int) -> None:
    window = ClockWindow(start_min, end_min)
    wait_min = window.wait_min(minute)
    if start_min != end_min:
        assert 0 <= wait_min < 1440
        assert window.wait_min((minute + wait_min) % 1440) == 0
        assert wait_min == 0 or window.wait_min((minute + wait_min - 1) % 1440) == 1


def test_a_window_is_written_in_local_times() -> None:
    assert parse_window("02:00-05:00") == ClockWindow(120, 300)
    assert parse_window("23:30-01:00") == ClockWindow(1410, 60)
    for text in ("2:00-5:00", "02:00", "24:00-05:00", "02:60-03:00", "02:00-02:00", 7200, None):
        with pytest.raises(ValueError, match="window"):
            parse_window(text)
