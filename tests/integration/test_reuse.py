"""Answers that are given again while nothing changes: real children, a real clip, and a model that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from msgspec import UNSET
from msgspec.structs import replace
from tests.stubs.running import Running, camera, plan, stub_bundle, worker
from tests.stubs.waiting import until

from vedette.engine.still_scene import brightness
from vedette.gate.reuse_rules import ReuseRules
from vedette.vision.picture import picture_from_buffer
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.runtime.plan import CameraPlan
    from vedette.wire.messages import Result

pytestmark = [pytest.mark.engine]

PATIENT = ReuseRules(max_age_s=600.0, check_share=0.0)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_bundle(tmp_path_factory.mktemp("bundles") / "tiny")


def film(folder: Path, *, still: int, moved: int) -> Path:
    """The same picture again and again, then one with something in it, again and again."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    scene = rng.integers(60, 120, (240, 320, 3), np.uint8)
    visited = scene.copy()
    visited[60:160, 100:200] = 230
    for number in range(still + moved):
        assert cv2.imwrite(str(folder / f"{number:03}.png"), scene if number < still else visited)
    return folder


def played(source: Path | str, rules: ReuseRules | None, **spec: Any) -> CameraPlan:  # noqa: ANN401 - fields of SourceSpec
    return replace(camera("front", str(source), max_age_ms=None, **spec), reuse=rules)


def again(run: Running) -> list[Result]:
    return [one for one in run.sink.of("front") if one.reused_ms is not UNSET]


def test_a_still_scene_is_answered_once_and_a_change_at_once(bundle: Path, tmp_path: Path) -> None:
    """Every frame has its line; the repetition is the same answer, and says how old it is."""
    frames = film(tmp_path / "film", still=12, moved=8)
    with Running(plan(worker(bundle), played(frames, PATIENT))) as run:
        run.wait()
    lines = run.sink.of("front")
    assert len(lines) == 20
    anew = [one.seq for one in lines if one.reused_ms is UNSET]
    assert anew == [1, 13]
    for one in again(run):
        first = lines[0] if one.seq < 13 else lines[12]
        assert (one.top, one.model) == (first.top, first.model)
        assert one.reused_ms == pytest.approx((one.captured_ns - first.captured_ns) / 1e6, abs=0.01)
        assert one.latency_ms is not UNSET
        assert one.latency_ms.infer == 0
    counts = run.daemon.results.reuse["front"]
    assert (counts.again, counts.checks, counts.wrong) == (18, 0, 0)
    assert run.counts("front").ok == 20


def test_without_the_key_every_frame_is_answered(bundle: Path, tmp_path: Path) -> None:
    frames = film(tmp_path / "film", still=6, moved=0)
    with Running(plan(worker(bundle), played(frames, None))) as run:
        run.wait()
    assert again(run) == []
    assert run.daemon.results.reuse == {}


def test_some_are_answered_anew_to_see_whether_that_was_right(bundle: Path, tmp_path: Path) -> None:
    frames = film(tmp_path / "film", still=30, moved=0)
    with Running(plan(worker(bundle), played(frames, ReuseRules(600.0, check_share=0.5)))) as run:
        run.wait()
    counts = run.daemon.results.reuse["front"]
    assert counts.again + counts.checks == 29
    assert counts.checks > 3
    assert counts.wrong == 0, "the stub says the same of the same picture"
    assert len(again(run)) == counts.again


def test_no_answer_outlives_its_model(bundle: Path, tmp_path: Path) -> None:
    """After a switch the first frame is answered by the new model, whatever was known before."""
    other = stub_bundle(tmp_path / "two", name="two", version="2")
    frames = film(tmp_path / "film", still=1, moved=0)
    still = played(next(frames.iterdir()), PATIENT, loop=True, fps=20.0, live=True)
    with Running(plan(worker(bundle), still)) as run:
        until(lambda: len(again(run)) > 5, "answers are given again")
        run.daemon.live.switch(other)
        until(
            lambda: any(one.model.name == "two" and one.reused_ms is not UNSET for one in run.sink.results),
            "and again by the second model",
        )
        run.stop()
    second = [one for one in run.sink.of("front") if one.model.name == "two"]
    assert second[0].reused_ms is UNSET


def test_answers_that_are_too_old_are_not_given_again(bundle: Path, tmp_path: Path) -> None:
    frames = film(tmp_path / "film", still=10, moved=0)
    with Running(plan(worker(bundle), played(frames, ReuseRules(1e-9, 0.0)))) as run:
        run.wait()
    assert again(run) == []


@pytest.mark.parametrize("pixel", list(PixelFormat))
def test_a_change_is_seen_in_every_pixel_format(pixel: PixelFormat) -> None:
    """What is compared lies upright in memory, of one size, whatever the camera sends."""
    fmt = describe(64, 48, pixel)
    picture = picture_from_buffer(memoryview(bytearray(fmt.frame_bytes)), fmt)
    seen = brightness(picture)
    assert seen.dtype == np.uint8
    assert seen.shape[0] == 48
    assert seen.ndim in {2, 3}
