"""What is said of a model: figures since a moment and over a window, agreement, constancy."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.clock import ManualClock
from vedette.runtime.agreement import CONSTANT_AFTER, Digest, agree, digest_of, iou
from vedette.runtime.health import (
    MAX_WAITING_BYTES,
    SETTLED_FRAMES,
    ModelHealth,
    ShadowHealth,
    SlidingHealth,
    _Waiting,
)
from vedette.runtime.process_memory import anonymous_bytes
from vedette.wire.messages import Detection, Failure, Label, LatencyMs, ModelRef, RawTensor, Result

if TYPE_CHECKING:
    from vedette.runtime.agreement import Box

OLD, NEW = ModelRef("tiny", "1", "old"), ModelRef("tiny", "2", "new")


def answer(
    seq: int, label: str = "car", score: float = 0.5, *, model: ModelRef = NEW, ms: float = 3.0
) -> Result:
    latency = LatencyMs(0.5, 100.0, ms / 3, ms / 3, ms / 3, ms + 100.5)
    return Result(1, "front", seq, 7, model, "classify", top=(Label(label, 0, score),), latency_ms=latency)


def failure(seq: int, *, model: ModelRef = NEW) -> Result:
    return Result(1, "front", seq, 7, model, "classify", failed=Failure("infer", "no"))


def boxes(*found: tuple[str, Box], seq: int = 1, model: ModelRef = NEW) -> Result:
    detections = tuple(Detection(label, 0, 0.9, box) for label, box in found)
    return Result(1, "front", seq, 7, model, "detect", detections=detections)


def health(*, scene_varied: bool = True) -> ModelHealth:
    made = ModelHealth(ManualClock())
    made.sha256 = NEW.sha256
    made.begin(scene_varied=scene_varied)
    return made


def test_work_is_measured_without_waiting_and_other_models_do_not_count() -> None:
    """p95 is preprocess, infer and postprocess: a queue is no fault of the model."""
    made = health()
    for seq in range(20):
        made.add(answer(seq, ms=6.0))
        made.add(answer(seq, model=OLD, ms=60.0))
    made.add(failure(21))
    stats = made.stats()
    assert (stats.frames, stats.failed) == (21, 1)
    assert stats.p95_ms == pytest.approx(6.0, rel=0.02)


def test_the_window_begins_with_the_first_camera() -> None:
    """Loading is not part of it."""
    clock = ManualClock()
    made = ModelHealth(clock)
    clock.advance_s(5)
    assert made.stats().elapsed_s == 0
    made.begin()
    clock.advance_s(2)
    assert made.stats().elapsed_s == 2


def test_deaths_are_facts() -> None:
    """Counted, the last one told."""
    made = health()
    made.died("worker_crashed: SIGSEGV")
    made.died("worker_hung: 2 s")
    made.give_up()
    stats = made.stats()
    assert (stats.worker_deaths, stats.last_death, stats.given_up) == (2, "worker_hung: 2 s", True)


@pytest.mark.parametrize(
    ("scores", "scene_varied", "constant"),
    [
        ([0.5] * CONSTANT_AFTER, True, True),
        ([0.5] * CONSTANT_AFTER, False, False),
        ([0.5] * (CONSTANT_AFTER - 1), True, False),
        ([0.5] * CONSTANT_AFTER + [0.5001], True, False),
    ],
    ids=["stuck", "still scene", "too few", "varies a little"],
)
def test_constant_answers_need_a_scene_that_was_seen_to_vary(
    *, scores: list[float], scene_varied: bool, constant: bool
) -> None:
    """The same answer to the last digit, many times, where the model before said different things."""
    made = health(scene_varied=scene_varied)
    for seq, score in enumerate(scores):
        made.add(answer(seq, score=score))
    assert made.stats().constant_answers is constant


def test_answers_that_differ_are_said_to_vary_by_the_window_and_by_the_baseline() -> None:
    """One other score is enough; until then nothing is said of a scene that may stand still."""
    clock = ManualClock()
    sliding, made = SlidingHealth(clock, 600.0), health(scene_varied=False)
    sliding.sha256 = NEW.sha256
    for seq in range(2 * CONSTANT_AFTER):
        sliding.add(answer(seq))
        made.add(answer(seq))
    assert [(s.varied, s.constant_answers) for s in (sliding.stats(), made.stats())] == [(False, False)] * 2
    sliding.add(answer(900, score=0.51))
    made.add(answer(900, score=0.51))
    assert sliding.stats().varied
    assert made.stats().varied


def test_an_empty_scene_is_no_constant_answer() -> None:
    """Night came: nothing to detect, which says nothing."""
    made = health()
    for seq in range(2 * CONSTANT_AFTER):
        made.add(boxes(seq=seq))
    assert not made.stats().constant_answers


def test_a_shadow_is_compared_frame_by_frame_whoever_answers_first() -> None:
    """Pairs by camera and number; failures and frames without a partner are no pairs."""
    made = ShadowHealth(ManualClock())
    made.sha256 = NEW.sha256
    made.add(answer(1, "car", model=OLD))
    made.add_shadow(answer(1, "car"), 0)
    made.add_shadow(answer(2, "bus"), 0)
    made.add(answer(2, "car", model=OLD))
    made.add(answer(3, model=OLD))
    made.add(failure(4, model=OLD))
    made.add_shadow(answer(4), 0)
    made.add_shadow(failure(5), 0)
    stats = made.stats()
    assert (stats.shadowed, stats.disagreed) == (2, 1)
    assert (stats.frames, stats.failed) == (4, 1)


def test_time_without_a_cpu_is_not_the_candidates() -> None:
    """Of 9 ms it waited 6 for a CPU, because its priority is low."""
    made = ShadowHealth(ManualClock())
    made.sha256 = NEW.sha256
    made.add_shadow(answer(1, ms=9.0), 6_000_000)
    assert made.stats().p95_ms == pytest.approx(3.0, rel=0.02)


def test_a_detector_that_sees_nothing_where_the_live_one_sees_things_is_stuck() -> None:
    """Silence beside a model that varies."""
    made = ShadowHealth(ManualClock())
    made.sha256 = NEW.sha256
    for seq in range(CONSTANT_AFTER):
        made.add(boxes(("car", (0, 0, 10, 10 + seq)), seq=seq, model=OLD))
        made.add_shadow(boxes(seq=seq), 0)
    stats = made.stats()
    assert stats.constant_answers
    assert stats.disagreed == CONSTANT_AFTER


def test_answers_without_a_partner_take_bounded_memory() -> None:
    """The oldest go first."""
    waiting = _Waiting()
    for seq in range(10_000):
        waiting.put(answer(seq), Digest("classify", top="car"))
    assert waiting._bytes <= MAX_WAITING_BYTES
    assert waiting.pop(answer(0)) is None
    assert waiting.pop(answer(9_999)) is not None


def test_the_baseline_forgets_what_is_older_than_its_window() -> None:
    """Ten parts; a model that was slow an hour ago is not slow now."""
    clock = ManualClock()
    made = SlidingHealth(clock, window_s=100)
    made.sha256 = NEW.sha256
    for _ in range(20):
        made.add(answer(1, ms=90.0))
    made.died("worker_crashed: once")
    assert made.stats().worker_deaths == 1
    for second in range(200):
        clock.advance_s(1)
        made.add(answer(second, ms=3.0))
    stats = made.stats()
    assert 100 <= stats.frames <= 110
    assert stats.p95_ms == pytest.approx(3.0, rel=0.02)
    assert stats.worker_deaths == 0
    assert 90 <= stats.elapsed_s <= 111


def test_the_baseline_survives_a_silence() -> None:
    """No frame for longer than the window: nothing is left, and nothing breaks."""
    clock = ManualClock()
    made = SlidingHealth(clock, window_s=10)
    made.sha256 = NEW.sha256
    made.add(answer(1))
    clock.advance_s(1000)
    assert made.stats().frames == 0
    assert made.stats().p95_ms is None
    assert not made.varied


def test_labels_are_compared_not_their_numbers() -> None:
    """A class was added in front: the same label has another index."""
    assert agree(digest_of(answer(1, "car")), digest_of(answer(1, "car", model=OLD)))
    assert not agree(digest_of(answer(1, "car")), digest_of(answer(1, "bus")))
    assert not agree(digest_of(answer(1, "car")), digest_of(boxes(("car", (0, 0, 1, 1)))))


def test_boxes_match_by_class_and_overlap() -> None:
    """One box of four may come and go; a moved or renamed one has no partner."""
    car, far = ("car", (0.0, 0.0, 10.0, 10.0)), ("car", (50.0, 50.0, 60.0, 60.0))
    assert agree(digest_of(boxes(car)), digest_of(boxes(("car", (1, 1, 11, 11)))))
    assert not agree(digest_of(boxes(car)), digest_of(boxes(far)))
    assert not agree(digest_of(boxes(car)), digest_of(boxes(("bus", car[1]))))
    assert not agree(digest_of(boxes(car)), digest_of(boxes()))
    assert agree(digest_of(boxes()), digest_of(boxes()))
    assert agree(digest_of(boxes(car, far)), digest_of(boxes(car)))


def test_raw_tensors_agree_when_their_peaks_do() -> None:
    """The position of the largest value of each."""

    def raw(*values: float) -> Result:
        tensor = RawTensor("out", (len(values),), "float32", struct.pack(f"<{len(values)}f", *values))
        return Result(1, "front", 1, 7, NEW, "raw", tensors=(tensor,))

    assert agree(digest_of(raw(1, 5, 2)), digest_of(raw(0, 9, 8)))
    assert not agree(digest_of(raw(1, 5, 2)), digest_of(raw(9, 5, 2)))


_SIDES = st.tuples(*[st.floats(0, 100, allow_nan=False)] * 2).map(sorted)


@given(_SIDES, _SIDES, _SIDES, _SIDES)
def test_overlap_is_symmetric_and_a_share(
    x: list[float], y: list[float], u: list[float], v: list[float]
) -> None:
    """Between 0 and 1, the same from both sides, 1 with itself where there is an area."""
    one: Box = (x[0], y[0], x[1], y[1])
    other: Box = (u[0], v[0], u[1], v[1])
    assert 0 <= iou(one, other) <= 1 + 1e-9
    assert iou(one, other) == iou(other, one)
    if (x[1] - x[0]) * (y[1] - y[0]) > 1e-6:
        assert iou(one, one) == pytest.approx(1)


def test_growth_of_memory_counts_from_when_the_worker_has_settled() -> None:
    """What it allocates at first is no growth; shrinking is none either, and nobody's word is nothing."""
    held = [100 << 20]
    made = ModelHealth(ManualClock())
    made.sha256 = NEW.sha256
    made.begin(memory_bytes=lambda: held[0])
    for seq in range(SETTLED_FRAMES - 1):
        made.add(answer(seq))
    held[0] = 300 << 20
    assert made.stats().grown_bytes == 0
    made.add(answer(SETTLED_FRAMES))
    assert made.stats().grown_bytes == 0
    held[0] = 340 << 20
    assert made.stats().grown_bytes == 40 << 20
    held[0] = 0
    assert made.stats().grown_bytes == 0
    assert health().stats().grown_bytes == 0


def test_memory_that_a_process_has_to_itself_is_read_from_the_kernel() -> None:
    """Neither files nor shared frames; a process that is gone has none."""
    before_bytes = anonymous_bytes(os.getpid())
    held = bytearray(os.urandom(1) * (48 << 20))
    grown_bytes = anonymous_bytes(os.getpid()) - before_bytes
    assert len(held) * 0.9 < grown_bytes < len(held) * 1.5
    assert anonymous_bytes(2**22 + 1) == 0
