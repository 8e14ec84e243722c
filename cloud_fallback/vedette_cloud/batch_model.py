"""A model that answers several frames in one run, where its file allows that.

An engine has one shape, so there is one for each size of batch: 1, 2, 4, … A batch takes the smallest that
holds it. A file whose first axis is open need not be one that keeps its rows apart: that is proved on each
engine, with different frames in different rows, before it is used. Nor need a batch be quicker than its
frames one by one (a CPU has little to gain from convolutions): each size is timed, and kept where it pays.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from vedette.api.messages import ModelDescription
from vedette.engine.model import engine_request, load_model
from vedette.engine.port import OnFallback
from vedette.engine.registry import resolve
from vedette.errors import (
    BundleError,
    EngineUnavailableError,
    FrameError,
    OutOfMemoryError,
    UnavailableError,
    VedetteError,
)
from vedette.vision.answers import ClassNames
from vedette.vision.classify import Classifier
from vedette.vision.outputs import bind_outputs
from vedette.vision.picture import picture_from_buffer
from vedette.wire.bundle import Task
from vedette.wire.causes import FailCause
from vedette.wire.messages import Failure, Label, LatencyMs, Result
from vedette_cloud.messages import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from vedette.engine.model import Model
    from vedette.engine.port import Engine
    from vedette.vision.answers import Answer as Reading
    from vedette.vision.geometry import Placement
    from vedette_cloud.messages import ChildSpec, Question

    Outputs = tuple[NDArray[np.generic], ...]

# Rounding in another order of sums; far below what one row leaking into another makes.
RELATIVE_TOLERANCE = 1e-3
# A frame of a batch takes at most this share of its time alone; less than that is noise.
PAYS = 0.95
TIMED_RUNS = 5
CAMERA = "cloud"


class Asked(NamedTuple):
    """A question and its frame's bytes."""

    question: Question
    frame: memoryview


class _Prepared(NamedTuple):
    placement: Placement | None
    taken_ns: int
    prepared_ns: int


class BatchModel:
    """One loaded model; one thread owns it. `sizes` are the batches that it runs as one, ascending."""

    def __init__(self, model: Model, engines: Sequence[Engine], one_by_one: str) -> None:
        self._model = model
        self._engines = {engine.input_array.shape[0]: engine for engine in (model.engine, *engines)}
        self._rows = {
            size: [engine.input_array[row : row + 1] for row in range(size)]
            for size, engine in self._engines.items()
        }
        self._ranker = _ranker(model)
        self.sizes = tuple(sorted(self._engines))
        self.one_by_one = one_by_one

    def description(self) -> ModelDescription:
        """What clients are told of it."""
        ready = self._model.describe(can_serve=True)
        return ModelDescription(
            ready=True,
            model=ready.model,
            task=ready.task,
            platform=ready.engine,
            inputs=ready.inputs,
            outputs=ready.outputs,
            bundle_bytes=ready.bundle_bytes,
            engine=ready.accelerator,
            self_test=ready.self_test,
        )

    def answer(self, asked: Sequence[Asked]) -> tuple[Answer, ...]:
        """An answer for each, in order; what is wrong with one frame costs that frame only."""
        answers: list[Answer] = []
        largest = self.sizes[-1]
        for start in range(0, len(asked), largest):
            answers += self._run(asked[start : start + largest])
        return tuple(answers)

    def close(self) -> None:
        """Give the engines' memory back."""
        for engine in self._engines.values():
            engine.close()

    def _run(self, asked: Sequence[Asked]) -> list[Answer]:
        size = next(size for size in self.sizes if size >= len(asked))
        engine, rows = self._engines[size], self._rows[size]
        prepared = [self._prepare(one, row) for one, row in zip(asked, rows, strict=False)]
        if all(isinstance(one, VedetteError) for one in prepared):
            return [
                self._failed(one.question, error)
                for one, error in zip(asked, prepared, strict=True)
                if isinstance(error, VedetteError)
            ]
        started_ns = time.monotonic_ns()
        try:
            outputs = engine.run()
        except (UnavailableError, MemoryError) as error:
            if len(asked) > 1:  # the fault of one of them, or too much at once
                return [answer for one in asked for answer in self._run([one])]
            return [self._failed(asked[0].question, error)]
        ran_ns = time.monotonic_ns()
        answers = []
        for row, (one, ready) in enumerate(zip(asked, prepared, strict=True)):
            if isinstance(ready, VedetteError):
                answers.append(self._failed(one.question, ready))
                continue
            own = outputs if size == 1 else tuple(output[row : row + 1] for output in outputs)
            answers.append(self._read(one.question, ready, own, (started_ns, ran_ns)))
        return answers

    def _prepare(self, one: Asked, row: NDArray[Any]) -> _Prepared | VedetteError:
        taken_ns = time.monotonic_ns()
        try:
            if one.question.format.tensor:
                _take_tensor(one.frame, row)
                return _Prepared(None, taken_ns, time.monotonic_ns())
            picture = picture_from_buffer(one.frame, one.question.format)
            placement = self._model.preprocessor.prepare(picture, row)
        except (FrameError, OutOfMemoryError) as error:
            return error
        return _Prepared(placement, taken_ns, time.monotonic_ns())

    def _read(self, question: Question, ready: _Prepared, outputs: Outputs, ran: tuple[int, int]) -> Answer:
        model = self._model
        ranking: tuple[Label, ...] = ()
        try:
            if ready.placement is None:
                reading: Reading = model.raw_answer(outputs)
            else:
                reading = model.postprocessor.answer(outputs, ready.placement)
                if question.ranking and self._ranker is not None:
                    ranking = self._ranker.answer(outputs, ready.placement).top or ()
        except FrameError as error:
            return self._failed(question, error)
        answered_ns = time.monotonic_ns()
        result = Result(
            1,
            CAMERA,
            0,
            question.captured_ns,
            model.ref,
            model.task if ready.placement is not None else Task.RAW.value,
            top=reading.top,
            detections=reading.detections,
            tensors=reading.tensors,
            confidence=reading.confidence,
            latency_ms=LatencyMs(
                _ms(question.queued_ns - question.captured_ns),
                _ms(ready.taken_ns - question.queued_ns),
                _ms(ready.prepared_ns - ready.taken_ns),
                _ms(ran[1] - ran[0]),
                _ms(answered_ns - ran[1]),
                _ms(answered_ns - question.captured_ns),
            ),
        )
        return Answer(result, ranking)

    def _failed(self, question: Question, error: Exception) -> Answer:
        if isinstance(error, (OutOfMemoryError, MemoryError)):
            cause = FailCause.OUT_OF_MEMORY
        elif isinstance(error, FrameError):
            cause = FailCause.BAD_OUTPUT if error.kind == "bad_output" else FailCause.DECODE
        else:
            cause = FailCause.INFER
        model, failure = self._model, Failure(cause.value, str(error)[:500])
        return Answer(Result(1, CAMERA, 0, question.captured_ns, model.ref, model.task, failed=failure))


def load_batch_model(spec: ChildSpec, progress: Callable[[str], None]) -> BatchModel:
    """Load a model, and engines for larger batches where its file allows them.

    Raises:
        BundleError: As for one frame.
        EngineUnavailableError: As for one frame.
    """
    model = load_model(spec.worker, progress)
    engines: list[Engine] = []
    reasons: list[str] = []
    try:
        for size in batch_sizes(spec.batch):
            progress(f"loading {model.ref.name} once more, for batches of {size}")
            try:
                engine = _open_batch(spec, model, size)
            except (BundleError, EngineUnavailableError, OutOfMemoryError) as error:
                reasons.append(f"batches of {size} are not run as one: {error.cause}")
                break
            share = share_of_alone(model.engine, engine)
            if share <= PAYS:
                engines.append(engine)
            else:
                engine.close()
                reasons.append(f"batches of {size} do not pay: {share:.2f} of the time one by one")
        return BatchModel(model, engines, "; ".join(reasons))
    except BaseException:
        for engine in (model.engine, *engines):
            engine.close()
        raise


def batch_sizes(largest: int) -> tuple[int, ...]:
    """Above one: the powers of two, and the largest itself; at most half of a batch is wasted."""
    sizes = []
    size = 2
    while size < largest:
        sizes.append(size)
        size *= 2
    return (*sizes, largest) if largest > 1 else ()


def _open_batch(spec: ChildSpec, model: Model, size: int) -> Engine:
    """An engine for one size, proved against that for one frame.

    Raises:
        BundleError: The file has a fixed batch, or mixes its rows.
        EngineUnavailableError: Not on the accelerator that the model runs on.
    """
    worker = msgspec.structs.replace(
        spec.worker, accelerators=(model.engine.report.effective,), on_fallback=OnFallback.FAIL
    )
    open_engine = resolve(model.bundle.spec.engine.value, spec.worker.plugins)
    engine = open_engine(engine_request(worker, model.bundle, batch=size), _silent)
    try:
        prove_rows(model, engine, size)
    except BaseException:
        engine.close()
        raise
    return engine


def prove_rows(model: Model, engine: Engine, size: int) -> None:
    """Run different frames in the rows of a batch: each must give what it gives alone.

    Raises:
        BundleError: The model mixes its rows, or its outputs have no row for each frame.
        UnavailableError: A run failed.
    """
    if engine.input_array.shape[0] != size:
        raise BundleError(f"the engine takes {engine.input_array.shape[0]} frames at a time, not {size}")
    single = model.engine
    wanted = []
    for row in range(size):
        fill_with_noise(single.input_array, seed=row)
        engine.input_array[row : row + 1] = single.input_array
        wanted.append(single.run())
    got = engine.run()
    bound = bind_outputs(model.bundle.spec.output, single.outputs)
    for output in bound:
        whole = got[output.position]
        if whole.ndim == 0 or whole.shape[0] != size:
            raise BundleError(
                f"the output {output.info.name!r} of {size} frames has the shape {whole.shape}",
                cure="export the model with an open first axis in its outputs too",
            )
        for row in range(size):
            alone, together = output.real(wanted[row][output.position]), output.real(whole[row : row + 1])
            room = max(RELATIVE_TOLERANCE * float(np.ptp(alone)), 2 * output.step, 1e-5)
            apart = float(np.max(np.abs(alone - together), initial=0.0))
            if not apart <= room:
                raise BundleError(
                    f"a frame's {output.info.name!r} depends on its neighbours: {apart:.3g} apart, "
                    f"{room:.3g} is rounding"
                )


def share_of_alone(single: Engine, batch: Engine) -> float:
    """A frame's time in a batch over its time alone; the quickest of a few runs of each, in turn."""
    alone_ns = together_ns = math.inf
    for _ in range(TIMED_RUNS):
        alone_ns = min(alone_ns, _run_ns(single))
        together_ns = min(together_ns, _run_ns(batch))
    return together_ns / len(batch.input_array) / alone_ns


def _run_ns(engine: Engine) -> int:
    started_ns = time.perf_counter_ns()
    engine.run()
    return time.perf_counter_ns() - started_ns


def fill_with_noise(array: NDArray[Any], *, seed: int) -> None:
    """Values of the input's type that differ with the seed; floats are as large as normalised pixels."""
    generator = np.random.default_rng(seed)
    if array.dtype.kind == "f":
        array[...] = generator.uniform(-1, 1, array.shape)
    else:
        limits = np.iinfo(array.dtype)
        array[...] = generator.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)


def _ranker(model: Model) -> Classifier | None:
    """Reads every class of a classification."""
    spec = model.bundle.spec
    if spec.task is not Task.CLASSIFY:
        return None
    classes = len(model.bundle.labels) or max(model.engine.outputs[0].shape[-1], 1)
    every = msgspec.structs.replace(spec.output, top_k=classes)
    return Classifier(every, ClassNames(model.bundle.labels, spec.output.labels), model.engine.outputs)


def _take_tensor(packed: memoryview, row: NDArray[Any]) -> None:
    if len(packed) != row.nbytes:
        raise FrameError(
            f"a tensor of {len(packed):,} bytes is no input of this model: it has {row.nbytes:,}",
            kind="format",
        )
    row.reshape(-1).view(np.uint8)[:] = np.frombuffer(packed, np.uint8)


def _ms(elapsed_ns: int) -> float:
    return elapsed_ns // 1000 / 1000


def _silent(line: str) -> None:
    """What was said of the first engine holds for the others."""
