"""The delta bench's own instruments: its pairs are what they are called, and a tool that is away is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.bench import delta, rival_deltas
from tests.bench.delta import Figures, Spent, collect, judge, quietest
from tests.bench.model_pairs import PRUNED_SHARE, Pair, derive, find_pairs
from tests.bench.rival_deltas import RIVALS
from tests.bench.trained_models import PIXELS, Network, fresh, to_onnx, train
from tests.bench.verdict import EXIT_MISSED, Verdict

from vedette.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def error_of(network: Network, clean: np.ndarray) -> float:
    return float(((network.forward(clean)[-1][:, :PIXELS] - clean) ** 2).mean())


def test_training_lowers_the_error_and_a_tuned_head_leaves_the_rest_alone() -> None:
    """Gradients point downhill; `only_last` is what a head-only pair says."""
    rng = np.random.default_rng(1)
    clean = (rng.random((400, 4)) @ rng.random((4, PIXELS)) / 4).astype(np.float32)
    start = fresh()
    trained = train(start, clean, steps=30, rate=1e-3, seed=1)
    assert error_of(trained, clean) < 0.3 * error_of(start, clean)
    head = train(trained, clean, steps=3, rate=1e-3, seed=2, only_last=True)
    same = [np.array_equal(a, b) for a, b in zip(head.weights, trained.weights, strict=True)]
    assert same == [True, True, False]


def test_gradients_are_those_of_finite_differences() -> None:
    """Backpropagation by hand, checked by hand."""
    rng = np.random.default_rng(1)
    network = Network(
        [rng.standard_normal((3, 5)), rng.standard_normal((5, 2))], [rng.standard_normal(5), np.zeros(2)]
    )
    batch, wanted = rng.standard_normal((7, 3)), rng.standard_normal((7, 2))

    def loss() -> float:
        return float(((network.forward(batch)[-1] - wanted) ** 2).sum() / len(batch))

    for index, gradient, _ in network.gradients(batch, wanted):
        weight = network.weights[index]
        before, step = loss(), 1e-6
        weight[1, 1] += step
        assert (loss() - before) / step == pytest.approx(gradient[1, 1], rel=1e-3, abs=1e-4)
        weight[1, 1] -= step


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    network = fresh()
    tuned = network.copy()
    tuned.weights[0] += np.float32(1e-3)
    onnx.save(to_onnx(network), tmp_path / "net.v1.fp32.onnx")
    onnx.save(to_onnx(tuned), tmp_path / "net.b_small.fp32.onnx")
    (tmp_path / "README.md").write_text("no pair")
    return tmp_path


def constants(path: Path) -> dict[str, np.ndarray]:
    return {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}


def test_derived_pairs_are_half_floats_and_half_zeros(folder: Path, tmp_path: Path) -> None:
    """Made from the float32 pair, found with it, and each under the bar of its kind."""
    out = tmp_path / "derived"
    derive(folder, out)
    found = {pair.name: pair for pair in find_pairs(folder, out)}
    kinds = {name: (pair.kind, pair.judged, pair.old.name) for name, pair in found.items()}
    assert kinds == {
        "net.b_small.fp32.onnx": ("fp32", True, "net.v1.fp32.onnx"),
        "net.b_small.fp16.onnx": ("fp16", True, "net.v1.fp16.onnx"),
        "net.d_pruned.fp32.onnx": ("pruned", True, "net.v1.fp32.onnx"),
        "net-sparse.b_small.fp32.onnx": ("sparse", True, "net-sparse.v1.fp32.onnx"),
    }
    halves = constants(found["net.b_small.fp16.onnx"].new)
    assert halves["layers.0.weight"].dtype == np.float16
    pruned = constants(found["net.d_pruned.fp32.onnx"].new)["layers.1.weight"]
    assert (pruned == 0).mean() == pytest.approx(PRUNED_SHARE, abs=0.01)
    full = constants(folder / "net.v1.fp32.onnx")["layers.1.weight"]
    assert np.array_equal(pruned[pruned != 0], full[pruned != 0])


def figures(ours_bytes: int, **rivals: int | None) -> Figures:
    spent = Spent(1 << 20, 0.1, 0.2)
    sizes = dict.fromkeys(RIVALS, 100_000) | rivals
    return Figures(sizes, 900.0, "tensor", ours_bytes, 4_000_000, spent, spent, spent)


def test_a_tool_that_is_away_is_told_and_is_no_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are still compared; the exit status tells."""
    verdict = Verdict("deltas")
    pair = Pair(folder / "net.v1.int8.onnx", folder / "net.a_head.int8.onnx")
    judge(verdict, {pair: figures(700, xdelta3=None)})
    said = capsys.readouterr().out
    assert "xdelta3 is not installed (apt-get install xdelta3)" in said
    assert "MISS  tools compared with: 3, wanted 4" in said
    assert verdict.exit_status(strict=True) == EXIT_MISSED


@pytest.mark.parametrize(("ours_bytes", "word"), [(102_000, "PASS"), (102_001, "MISS")])
def test_two_per_cent_above_the_best_of_the_others_is_the_most(
    folder: Path, capsys: pytest.CaptureFixture[str], ours_bytes: int, word: str
) -> None:
    """The best, not the mean: the others are far larger here."""
    pair = Pair(folder / "net.v1.int8.onnx", folder / "net.a_head.int8.onnx")
    judge(Verdict("deltas"), {pair: figures(ours_bytes, HDiffPatch=900_000, zstd=900_000)})
    assert f"{word}  net.a_head.int8.onnx: ours / best other" in capsys.readouterr().out


def test_below_a_header_sizes_are_equal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A patch of 300 bytes against one of 100 is no loss worth a codec; one of 400 would be."""
    pair = Pair(folder / "net.v1.int8.onnx", folder / "net.e_recalib.int8.onnx")
    for ours_bytes, word in ((300, "PASS"), (400, "MISS")):
        judge(Verdict("deltas"), {pair: figures(ours_bytes, HDiffPatch=100)})
        assert f"{word}  net.e_recalib.int8.onnx: ours / best other" in capsys.readouterr().out


def test_rounds_give_the_most_memory_and_the_least_time() -> None:
    """Noise only adds time; memory is a promise."""
    assert quietest([Spent(5, 0.2, 0.9), Spent(7, 0.4, 0.3)]) == Spent(7, 0.2, 0.3)


def test_every_rival_makes_a_patch_that_is_smaller_than_the_file() -> None:
    """Those that are installed; the programs are given both files."""
    old = np.random.default_rng(1).bytes(60_000)
    new = old[:30_000] + b"between" + old[30_000:]
    sizes = {name: make(old, new) for name, make in RIVALS.items()}
    assert all(size is None or 0 < size < 2000 for size in sizes.values())
    assert sizes["bsdiff4"] is not None
    assert sizes["zstd"] is not None


def test_a_program_that_is_not_on_the_path_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not an error, nor a size of 0."""
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert rival_deltas.xdelta3_bytes(b"old", b"new") is None


def test_a_folder_that_is_not_there_is_said_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An absent folder is no folder without pairs."""
    monkeypatch.setattr(delta, "MADE", tmp_path)
    with pytest.raises(UsageError, match="no folder") as caught:
        collect(str(tmp_path / "gone"))
    assert caught.value.cure
