"""Golden inputs decide whether an engine may answer (case 8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from tests.stubs.engines import StubEngine, open_stub

from vedette.bundle.folder import Bundle
from vedette.bundle.golden import GoldenCase, write_golden
from vedette.engine.port import EngineRequest, OnFallback
from vedette.engine.selftest import open_proven, self_test
from vedette.errors import BundleError, EngineUnavailableError, UnavailableError
from vedette.wire.bundle import (
    EngineName,
    InputSpec,
    ModelSpec,
    OutputLayout,
    OutputSpec,
    Quantisation,
    Task,
    TensorLayout,
)

if TYPE_CHECKING:
    from vedette.engine.port import Engine, Progress
    from vedette.wire.messages import SelfTest

SIDE = 4
CLASSES = 4
ANSWER = np.array([[1, 0, 0, 0]], np.float32)  # what the stub says unless told otherwise


def bundle_with(folder: Path, *cases: GoldenCase, **spec: object) -> Bundle:
    """A bundle in memory whose golden file is real; the stub never reads a model file."""
    import hashlib

    files: dict[str, str] = {}
    if cases:
        write_golden(folder / "golden.npz", cases)
        files["golden.npz"] = hashlib.sha256((folder / "golden.npz").read_bytes()).hexdigest()
    model = ModelSpec(
        schema=1,
        name="stub",
        version="1",
        task=Task.CLASSIFY,
        engine=EngineName.LITERT,
        file="model.tflite",
        input=InputSpec(size=(SIDE, SIDE), layout=TensorLayout.NHWC),
        output=OutputSpec(layout=OutputLayout.SCORES),
        golden="golden.npz" if cases else None,
    )
    return Bundle(
        root=folder.resolve(),
        spec=msgspec.structs.replace(model, **spec),
        labels=(),
        sha256="0" * 64,
        model_path=folder / "model.tflite",
        model_sha256="0" * 64,
        files=files,
    )


def case(
    *,
    answer: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = ANSWER,
    tolerance: float = 0.01,
    top1: int | None = 0,
) -> GoldenCase:
    frame = np.arange(SIDE * SIDE * 3, dtype=np.uint8).reshape(SIDE, SIDE, 3)
    return GoldenCase(frame, (answer,), (tolerance,), top1)


def request(*accelerators: str, on_fallback: OnFallback = OnFallback.WARN) -> EngineRequest:
    return EngineRequest(
        model_path=Path("model.tflite"),
        model_sha256="0" * 64,
        accelerators=accelerators or ("cpu",),
        on_fallback=on_fallback,
        threads=1,
        cache_dir=None,
        input_shape=(1, SIDE, SIDE, 3),
        options={"outputs": f"1x{CLASSES}:float32"},
    )


def stub(**options: str) -> StubEngine:
    asked = request()
    return open_stub(msgspec.structs.replace(asked, options=asked.options | options), lambda _line: None)


def test_right_answers_pass_and_say_how_close(tmp_path: Path) -> None:
    """The worst deviation is told as a share of its tolerance."""
    near = ANSWER + np.float32(0.005)
    result = self_test(bundle_with(tmp_path, case(), case(answer=near)), stub())
    assert result.cases == 2
    assert result.worst == pytest.approx(0.5, abs=1e-3)
    assert "case 1, output 'stub_output_0': off by 0.005, allowed 0.01" in result.detail


def test_an_accelerator_that_saturates_is_refused(tmp_path: Path) -> None:
    """Case 8: a delegate that returns all class scores at their maximum."""
    with pytest.raises(BundleError, match=r"out of tolerance.*off by 1, allowed 0\.01"):
        self_test(bundle_with(tmp_path, case()), stub(answer="maximum"))


def test_another_winner_is_refused_with_the_figures(tmp_path: Path) -> None:
    """Even where a wide tolerance would let it pass."""
    wanted = np.array([[0, 0, 1, 0]], np.float32)
    with pytest.raises(BundleError, match="golden case 0 must be class 2, the answer is class 0"):
        self_test(bundle_with(tmp_path, case(answer=wanted, tolerance=9, top1=2)), stub())


def test_a_tolerance_of_zero_asks_for_equality(tmp_path: Path) -> None:
    """Bit-exact engines may be held to it."""
    assert self_test(bundle_with(tmp_path, case(tolerance=0)), stub()).worst == 0
    with pytest.raises(BundleError, match="out of tolerance"):
        self_test(bundle_with(tmp_path, case(tolerance=0, answer=ANSWER * np.float32(0.999))), stub())


@pytest.mark.parametrize("golden", [True, False])
def test_nan_is_never_an_answer(golden: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the table
    """With golden inputs and without."""
    cases = (case(),) if golden else ()
    with pytest.raises(BundleError, match="NaN or infinity"):
        self_test(bundle_with(tmp_path, *cases), stub(answer="nan"))


def test_without_golden_inputs_that_is_said(tmp_path: Path) -> None:
    """Nobody must take it for a proof."""
    result = self_test(bundle_with(tmp_path), stub())
    assert result.cases == 0
    assert "no golden inputs" in result.detail


def test_quantised_outputs_are_compared_in_real_units(tmp_path: Path) -> None:
    """Case 10: 127 at scale 1/256 and zero point -128 is 255/256."""
    engine = stub(outputs=f"1x{CLASSES}:int8", answer="maximum", quantisation="0.00390625,-128")
    wanted = np.full((1, CLASSES), 255 / 256, np.float32)
    assert self_test(bundle_with(tmp_path, case(answer=wanted, tolerance=1e-6)), engine).worst <= 1


def test_quantisation_in_the_manifest_is_used(tmp_path: Path) -> None:
    """For runtimes that do not carry it, such as ONNX with integer outputs."""
    output = OutputSpec(layout=OutputLayout.SCORES, quantisation=(Quantisation(0.5, 27),))
    bundle = bundle_with(
        tmp_path, case(answer=np.full((1, CLASSES), 50, np.float32), tolerance=1e-6), output=output
    )
    assert self_test(bundle, stub(outputs=f"1x{CLASSES}:int8", answer="maximum")).worst <= 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"input": InputSpec(size=(SIDE, SIDE + 1), layout=TensorLayout.NHWC)}, "has shape"),
        (
            {"input": InputSpec(size=(SIDE, SIDE), layout=TensorLayout.NHWC, name="other")},
            "names the input 'other'",
        ),
        ({"output": OutputSpec(layout=OutputLayout.SCORES, names=("nowhere",))}, "nowhere"),
    ],
)
def test_tensors_that_are_not_as_declared_are_refused(
    spec: dict[str, object], words: str, tmp_path: Path
) -> None:
    """Before any frame is fed."""
    with pytest.raises(BundleError, match=words):
        self_test(bundle_with(tmp_path, case(), **spec), stub())


def test_a_golden_file_of_another_size_is_refused(tmp_path: Path) -> None:
    """More classes than the model gives."""
    wider = np.zeros((1, CLASSES + 1), np.float32)
    with pytest.raises(BundleError, match="its golden value"):
        self_test(bundle_with(tmp_path, case(answer=wider, top1=None)), stub())


def test_a_run_that_fails_is_no_bundle_error(tmp_path: Path) -> None:
    """It may work later; the bundle is not to blame."""
    with pytest.raises(UnavailableError, match="run failed"):
        self_test(bundle_with(tmp_path, case()), stub(raise_on="1"))


class Board:
    """A board whose accelerators may compute something else; keeps the engines it opened."""

    def __init__(self, *wrong: str) -> None:
        self.wrong = wrong
        self.opened: list[StubEngine] = []
        self.lines: list[str] = []

    def open(self, asked: EngineRequest, progress: Progress) -> Engine:
        answer = "maximum" if asked.accelerators[0] in self.wrong else "constant"
        options = asked.options | {"answer": answer}
        self.opened.append(open_stub(msgspec.structs.replace(asked, options=options), progress))
        return self.opened[-1]

    def prove(self, bundle: Bundle, asked: EngineRequest) -> tuple[Engine, SelfTest]:
        return open_proven(self.open, asked, self.lines.append, lambda engine: self_test(bundle, engine))


def test_an_accelerator_with_wrong_numbers_is_a_rung_refused(tmp_path: Path) -> None:
    """Case 8: loaded and running, but wrong: the next rung is opened anew, and the report says all of it."""
    board = Board("edgetpu", "gpu")
    engine, result = board.prove(bundle_with(tmp_path, case()), request("edgetpu", "gpu", "cpu"))
    assert result.worst == 0
    report = engine.report
    assert (report.asked, report.effective, report.degraded) == (("edgetpu", "gpu", "cpu"), "cpu", True)
    assert [item.accelerator for item in report.skipped] == ["edgetpu", "gpu"]
    assert all("failed the self-test" in item.reason for item in report.skipped)
    for refused in board.opened[:2]:
        with pytest.raises(UnavailableError, match="closed"):
            refused.run()


def test_wrong_numbers_are_the_end_where_the_accelerator_is_required(tmp_path: Path) -> None:
    """Case 8 under `fail`."""
    asked = request("edgetpu", "cpu", on_fallback=OnFallback.FAIL)
    with pytest.raises(EngineUnavailableError, match="edgetpu was required, but computes something else"):
        Board("edgetpu").prove(bundle_with(tmp_path, case()), asked)


def test_wrong_numbers_on_the_cpu_blame_the_model(tmp_path: Path) -> None:
    """There is nothing below to fall back on."""
    board = Board("cpu")
    with pytest.raises(BundleError, match="out of tolerance"):
        board.prove(bundle_with(tmp_path, case()), request("cpu"))
    with pytest.raises(UnavailableError, match="closed"):
        board.opened[0].run()
