"""A model in batches: the same answers as alone, and no batches where rows are not kept apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.stubs.cloud_bundles import LABELS, colour_bundle, mixing_bundle
from tests.stubs.engines import StubEngine
from tests.stubs.running import STUB, STUB_OPTIONS

from vedette.engine.messages import WorkerSpec
from vedette.engine.port import EngineRequest, OnFallback
from vedette.wire.pixels import FrameFormat, PixelFormat, describe, tensor_format
from vedette_cloud.batch_model import PAYS, Asked, BatchModel, batch_sizes, load_batch_model, share_of_alone
from vedette_cloud.messages import ChildSpec, Question

pytestmark = pytest.mark.engine
BGR = {"red": (0, 0, 255), "green": (0, 255, 0), "blue": (255, 0, 0), "dark": (0, 0, 0)}


def load(bundle: Path, batch: int = 4) -> BatchModel:
    return load_batch_model(ChildSpec(WorkerSpec(bundle=str(bundle), warmup_runs=1), batch), lambda _: None)


def asked(colour: str, *, side: int = 8, ranking: bool = False) -> Asked:
    pixels = bytes(BGR[colour]) * (side * side)
    return _asked(describe(side, side, PixelFormat.BGR24), pixels, ranking=ranking)


def _asked(frame_format: FrameFormat, content: bytes, *, ranking: bool = False) -> Asked:
    return Asked(Question(frame_format, 0, 0, ranking), memoryview(content))


def tops(model: BatchModel, questions: list[Asked]) -> list[str]:
    return [answer.result.top[0].label for answer in model.answer(questions) if answer.result.top]


def test_a_batch_answers_each_frame_as_if_it_were_alone(tmp_path: Path) -> None:
    model = load(colour_bundle(tmp_path / "colours"))
    assert (model.sizes, model.one_by_one) == ((1, 2, 4), "")
    colours = ["red", "blue", "dark", "green", "blue", "red", "green"]  # more than the largest batch
    questions = [asked(colour, side=8 + index) for index, colour in enumerate(colours)]
    together = model.answer(questions)
    assert [answer.result.top[0].label for answer in together if answer.result.top] == colours
    for question, answer in zip(questions, together, strict=True):
        (alone,) = model.answer([question])
        assert [e.score for e in answer.result.top or ()] == pytest.approx(
            [e.score for e in alone.result.top or ()]
        )


def test_every_class_is_ranked_where_that_is_asked_for(tmp_path: Path) -> None:
    model = load(
        colour_bundle(
            tmp_path / "colours",
            output={
                "layout": "scores",
                "activation": "given",
                "labels": {"count": 4},
                "top_k": 1,
            },
        )
    )
    with_, without = model.answer([asked("red", ranking=True), asked("red")])
    assert {entry.label for entry in with_.ranking} == set(LABELS)
    assert len(with_.result.top or ()) == 1
    assert without.ranking == ()


def test_what_is_wrong_with_one_frame_costs_only_that_frame(tmp_path: Path) -> None:
    model = load(colour_bundle(tmp_path / "colours"))
    broken = _asked(tensor_format(5), b"12345")
    first, second, third = model.answer([asked("red"), broken, asked("green")])
    assert (first.result.top or ())[0].label == "red"
    assert (third.result.top or ())[0].label == "green"
    assert second.result.failed
    assert "5 bytes" in second.result.failed.detail


def test_a_tensor_of_ones_own_comes_back_as_the_engine_gives_it(tmp_path: Path) -> None:
    model = load(colour_bundle(tmp_path / "colours"))
    red = np.zeros((1, 3, 8, 8), np.float32)
    red[:, 0] = 1
    raw = _asked(tensor_format(red.nbytes), red.tobytes())
    answer, other = model.answer([raw, asked("blue")])
    scores = np.frombuffer((answer.result.tensors or ())[0].data, np.float32)
    assert LABELS[int(scores.argmax())] == "red"
    assert (other.result.top or ())[0].label == "blue"


def test_a_file_with_a_fixed_batch_is_served_one_by_one_and_says_so(tmp_path: Path) -> None:
    model = load(colour_bundle(tmp_path / "fixed", batch=1))
    assert model.sizes == (1,)
    assert "batches of 2 are not run as one" in model.one_by_one
    assert tops(model, [asked("red"), asked("blue")]) == ["red", "blue"]


def test_an_open_axis_over_rows_that_are_mixed_is_found_out(tmp_path: Path) -> None:
    model = load(mixing_bundle(tmp_path / "mixing"))
    assert model.sizes == (1,)
    assert "depends on its neighbours" in model.one_by_one


def test_an_engine_that_takes_one_frame_at_a_time_is_not_given_more(tmp_path: Path) -> None:
    worker = WorkerSpec(
        bundle=str(colour_bundle(tmp_path / "colours")), options=STUB_OPTIONS, plugins=STUB, warmup_runs=1
    )
    model = load_batch_model(ChildSpec(worker, 4), lambda _: None)
    assert model.sizes == (1,)
    assert "not 2" in model.one_by_one


@pytest.mark.parametrize(("run_s", "pays"), [("0.01", True), ("0.1", False)])
def test_a_size_of_batch_is_kept_where_it_pays(run_s: str, pays: bool) -> None:  # noqa: FBT001 - a table's column
    alone = stub_engine(1, "0.02")
    together = stub_engine(4, run_s)
    assert (share_of_alone(alone, together) <= PAYS) is pays


def stub_engine(batch: int, run_s: str) -> StubEngine:
    options = {"input": f"{batch}x3x8x8:float32", "outputs": f"{batch}x4:float32", "run_s": run_s}
    return StubEngine(
        EngineRequest(Path("none"), "", ("cpu",), OnFallback.ALLOW, 1, None, (batch, 3, 8, 8), options)
    )


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, ()), (2, (2,)), (3, (2, 3)), (8, (2, 4, 8)), (12, (2, 4, 8, 12))]
)
def test_sizes_double(largest: int, sizes: tuple[int, ...]) -> None:
    assert batch_sizes(largest) == sizes
