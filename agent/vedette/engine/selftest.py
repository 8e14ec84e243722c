"""Proves a loaded model on its golden inputs: loading and running prove nothing (casebook 8).

A delegate or an old runtime may answer with other numbers and no error; only comparing does find that out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from vedette.bundle.golden import load_golden
from vedette.engine.accelerator import CPU, announce, ladder, satisfies, with_rejected
from vedette.engine.port import OnFallback
from vedette.errors import BundleError, EngineUnavailableError, FrameError, SelfTestError
from vedette.vision.outputs import bind_outputs
from vedette.vision.picture import picture_from_buffer
from vedette.vision.preprocess import Preprocessor
from vedette.wire.messages import SelfTest, Skipped
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from vedette.bundle.folder import Bundle
    from vedette.bundle.golden import GoldenCase
    from vedette.engine.port import Engine, EngineRequest, OpenEngine, Progress
    from vedette.vision.outputs import BoundOutput

MID_GREY = 127
UNPROVEN_DETAIL = "no golden inputs in the bundle: only shapes, types and finite numbers were checked"


@dataclass(frozen=True)
class _Deviation:
    """The largest difference in one output of one case, in real units, beside what is tolerated."""

    case: int
    output: str
    difference: float
    tolerance: float

    @property
    def share(self) -> float:
        """1 is the limit; a tolerance of 0 asks for equality."""
        if self.tolerance > 0:
            return self.difference / self.tolerance
        return 0.0 if self.difference == 0 else math.inf

    def __str__(self) -> str:
        off = f"off by {self.difference:.4g}, allowed {self.tolerance:.4g}"
        return f"case {self.case}, output {self.output!r}: {off}"


def self_test(bundle: Bundle, engine: Engine) -> SelfTest:
    """Check the tensors' contract and the golden outputs.

    Args:
        bundle: Its `model.yaml` says what the tensors must be, its golden file what they must hold.
        engine: Just opened; its `input_array` is overwritten.

    Returns:
        How close it came. Without golden inputs `cases` is 0: one grey frame gave finite numbers.

    Raises:
        SelfTestError: The tensors are not what the bundle declares, or the answers are not its golden ones.
        UnavailableError: A run failed.
    """
    runner = _Runner(bundle, engine)
    if bundle.spec.golden is None:
        width, height = bundle.spec.input.size
        runner.run(np.full((height, width, 3), MID_GREY, np.uint8), "a grey frame")
        return SelfTest(cases=0, worst=0.0, detail=UNPROVEN_DETAIL)
    cases = load_golden(bundle).cases
    deviations = [found for index, case in enumerate(cases) for found in runner.compare(index, case)]
    worst = max(deviations, key=lambda deviation: deviation.share)
    if worst.share > 1:
        failed = sum(deviation.share > 1 for deviation in deviations)
        raise SelfTestError(
            f"{_named(bundle, engine)}: {failed} of {len(deviations)} golden outputs are "
            f"out of tolerance; {worst}",
            cure="use another accelerator or runtime; if the model was changed, make the golden outputs anew",
        )
    return SelfTest(cases=len(cases), worst=round(worst.share, 6), detail=str(worst))


class _Runner:
    """Runs frames through the whole way in and reads real values out."""

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        spec = bundle.spec
        self._engine = engine
        self._name = _named(bundle, engine)
        if spec.input.name not in (None, engine.inputs[0].name):
            raise SelfTestError(
                f"model.yaml names the input {spec.input.name!r}, the model has {engine.inputs[0].name!r}",
                cure="correct input.name",
            )
        self._preprocessor = Preprocessor(spec.input, engine.inputs[0])
        self._bound = bind_outputs(spec.output, engine.outputs)

    def run(self, frame: NDArray[np.uint8], what: str) -> tuple[NDArray[np.float32], ...]:
        height, width = frame.shape[:2]
        pixels = np.ascontiguousarray(frame).data.cast("B")
        picture = picture_from_buffer(pixels, describe(width, height, PixelFormat.RGB24))
        self._preprocessor.prepare(picture, self._engine.input_array)
        outputs = self._engine.run()
        return tuple(self._read(output, outputs, what) for output in self._bound)

    def compare(self, index: int, case: GoldenCase) -> list[_Deviation]:
        got = self.run(case.frame, f"case {index}")
        if len(got) != len(case.outputs):
            raise SelfTestError(
                f"the golden file has {len(case.outputs)} outputs, the model gives {len(got)}"
            )
        if case.top1 is not None and int(np.argmax(got[0])) != case.top1:
            raise SelfTestError(
                f"{self._name}: golden case {index} must be class {case.top1}, the answer is class "
                f"{int(np.argmax(got[0]))} (values {_range(got[0])})",
                cure="use another accelerator or runtime; this one computes something else",
            )
        return [
            _Deviation(index, bound.info.name, _difference(real, wanted, bound.info.name), tolerance)
            for bound, real, wanted, tolerance in zip(
                self._bound, got, case.outputs, case.tolerances, strict=True
            )
        ]

    def _read(
        self, output: BoundOutput, outputs: tuple[NDArray[np.generic], ...], what: str
    ) -> NDArray[np.float32]:
        try:
            return output.real(output.take(outputs))
        except FrameError as error:
            raise SelfTestError(
                f"{self._name} gives no usable answer to {what}: {error.cause}",
                cure="use another accelerator or runtime, or repair the model",
            ) from error


def open_proven(
    open_engine: OpenEngine,
    request: EngineRequest,
    progress: Progress,
    prove: Callable[[Engine], SelfTest],
) -> tuple[Engine, SelfTest]:
    """Open on the best accelerator whose numbers are right; another is a rung refused.

    Args:
        open_engine: An adapter's factory.
        request: As for the factory.
        progress: One line per step.
        prove: The self-test, bound to its bundle.

    Returns:
        The engine with its report completed, and the test it passed.

    Raises:
        BundleError: Even the last rung, or the CPU, gives wrong answers: it is the model.
        EngineUnavailableError: Under `fail` the first rung gives wrong answers; or as the factory.
    """
    asked = rungs = ladder(request.accelerators)
    rejected: list[Skipped] = []
    while True:
        engine = open_engine(msgspec.structs.replace(request, accelerators=rungs), progress)
        try:
            test = prove(engine)
        except BundleError as error:
            effective, below = engine.report.effective, _below(rungs, engine.report.effective)
            skipped = engine.report.skipped
            engine.close()
            if effective == CPU or not below:
                raise
            if request.on_fallback is OnFallback.FAIL:
                raise EngineUnavailableError(
                    f"{effective} was required, but computes something else: {error.cause}", cure=error.cure
                ) from error
            progress(f"{effective} is not usable: {error.cause}")
            rejected += [*skipped, Skipped(effective, f"failed the self-test: {error.cause}")]
            rungs = below
        except BaseException:
            engine.close()
            raise
        else:
            if rejected:
                engine.report = with_rejected(engine.report, asked, rejected, request.on_fallback)
                announce(engine.report, progress)
            return engine, test


def _below(rungs: tuple[str, ...], effective: str) -> tuple[str, ...]:
    """The rungs after the one in effect."""
    for index, rung in enumerate(rungs):
        if satisfies(effective, rung):
            return rungs[index + 1 :]
    return ()


def _named(bundle: Bundle, engine: Engine) -> str:
    report = engine.report
    return f"{bundle.spec.name} {bundle.spec.version} on {report.effective} ({report.runtime})"


def _difference(real: NDArray[np.float32], wanted: NDArray[np.float32], name: str) -> float:
    if real.size != wanted.size:
        raise SelfTestError(f"output {name!r} has shape {real.shape}, its golden value {wanted.shape}")
    return float(np.max(np.abs(real.reshape(-1) - wanted.reshape(-1)), initial=0.0))


def _range(values: NDArray[np.float32]) -> str:
    return f"{float(values.min()):.4g} to {float(values.max()):.4g}"
