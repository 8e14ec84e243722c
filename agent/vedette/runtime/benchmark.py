"""What the whole path costs over the bare engine call: same model, same threads, one run, interleaved.

Floor: what a straight script does in one process for one frame, OpenCV resize and colour swap, NumPy
normalisation into the tensor, engine call. Path: a producer copies the frame into the ring of a real worker
process and waits for the decoded result. One frame is under way at a time, so neither queueing nor batching
can hide anything. Rounds alternate, because the machine is shared and its speed drifts.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from typing import TYPE_CHECKING, Any

import cv2
import msgspec
import numpy as np

from vedette.clock import SystemClock
from vedette.engine.messages import Answered, Attach
from vedette.engine.model import load_model
from vedette.errors import InternalError, UnavailableError, rebuild_error
from vedette.frame.layout import RingGeometry
from vedette.frame.linger import Linger
from vedette.frame.producer import RingProducer
from vedette.frame.ring import LIVE_SEAT, Ring, create_ring
from vedette.runtime.worker_process import WorkerProcess, WorkerState
from vedette.vision.picture import picture_from_buffer
from vedette.wire.bundle import Colour, Interpolation, TensorLayout
from vedette.wire.messages import Failure
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from vedette.engine.messages import FromWorkerResults, WorkerSpec
    from vedette.engine.model import Model

CAMERA = "bench"
ANSWER_TIMEOUT_S = 30.0
WARMUP_FRAMES = 30
# A caller that waits for answers of a small model looks for them as long as such an answer takes.
LINGER_NS = 500_000
_SAMPLING = {
    Interpolation.LINEAR: cv2.INTER_LINEAR,
    Interpolation.AREA: cv2.INTER_AREA,
    Interpolation.NEAREST: cv2.INTER_NEAREST,
}


class Percentiles(msgspec.Struct, frozen=True):
    """Microseconds."""

    p50: float
    p95: float
    p99: float


class BenchReport(msgspec.Struct, frozen=True):
    """`overhead_us` is of path frames less the floor's median in the same round; `ratio` is of the medians.

    `own_floor_us` is the agent's own preprocessing and the engine call in one process: what is left of the
    overhead against it is transport, answer and accounting alone.
    """

    bundle: str
    engine: str
    accelerator: str
    threads: int
    frame: str
    frames: int
    floor_us: Percentiles
    path_us: Percentiles
    overhead_us: Percentiles
    ratio: float
    own_floor_us: Percentiles
    own_ratio: float


class PathClient:
    """A producer and reader around a real worker process."""

    def __init__(
        self,
        spec: WorkerSpec,
        frame: NDArray[np.uint8],
        say: Callable[[str], None],
        *,
        newest_wins: bool = True,
    ) -> None:
        height, width = frame.shape[:2]
        self.format = describe(width, height, PixelFormat.BGR24)
        self._frame = np.ascontiguousarray(frame).data.cast("B")
        self._clock = SystemClock()
        self._linger = Linger(usable_cpus=len(os.sched_getaffinity(0)), most_ns=LINGER_NS)
        self.worker = WorkerProcess(spec, self._clock, load_timeout_s=600.0, hang_timeout_s=30.0, say=say)
        geometry = RingGeometry(4, self.format.frame_bytes, newest_wins)
        self._ring = Ring(create_ring(geometry, name=CAMERA))
        self._producer = RingProducer(self._ring, self._clock)
        self._slot = self._next_slot()
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        while self.worker.state is not WorkerState.READY:
            self.worker.listen()
            status = self.worker.child.exited()
            if status is not None:
                self.worker.listen()
                fatal = self.worker.fatal
                if fatal is not None:
                    raise rebuild_error(fatal.exit_code, fatal.cause, fatal.cure)
                raise UnavailableError(f"the engine worker died: {self.worker.obituary(status)[1]}")
            self.worker.check()
            time.sleep(0.01)
        self.worker.attach(Attach(CAMERA, LIVE_SEAT), self._ring)

    def _next_slot(self) -> memoryview:
        memory = self._producer.try_acquire(self.format)
        if memory is None:
            raise InternalError("no free slot although one frame at a time is under way")
        return memory

    def __call__(self) -> Answered:
        """One frame there and its answer back.

        Raises:
            UnavailableError: The frame was not answered.
        """
        self._slot[:] = self._frame
        self._producer.publish(self._clock.monotonic_ns())
        self._slot = self._next_slot()  # while the worker works, as a source does while it waits for a frame
        received = self._answer()
        if received is None or not isinstance(received[0], Answered):
            raise UnavailableError("the worker gave no answer")
        answered = received[0]
        if isinstance(answered.result.failed, Failure):
            raise UnavailableError(f"the frame failed: {answered.result.failed.detail}")
        return answered

    def _answer(self) -> tuple[FromWorkerResults, list[int]] | None:
        """Look for a little while if answers come that quickly, else sleep."""
        results, now_ns = self.worker.results, time.monotonic_ns
        began_ns = now_ns()
        if self._linger.budget_ns:
            received = None
            while received is None and now_ns() - began_ns < self._linger.budget_ns:
                received = results.receive()
            self._linger.looked(found=received is not None)
            if received is not None:
                return received
        received = results.receive(ANSWER_TIMEOUT_S)
        self._linger.slept(now_ns() - began_ns)
        return received

    def close(self) -> None:
        """Stop the worker and unmap the ring."""
        self.worker.stop()
        self.worker.child.wait(5.0)
        self.worker.close()
        self.worker.results.close()
        self._slot.release()
        self._ring.close()
        self._ring.handles.close()


def straight_script(model: Model, frame: NDArray[np.uint8]) -> Callable[[], Any]:
    """The floor: what somebody writes who has one picture, OpenCV and the engine."""
    spec, tensor = model.bundle.spec.input, model.engine.inputs[0]
    size = (spec.size[0], spec.size[1])
    target = model.engine.input_array
    offset, scale = _affine(model)
    sampling = _SAMPLING[spec.interpolation]

    def once() -> Any:  # noqa: ANN401 - raw engine outputs
        small = cv2.resize(frame, size, interpolation=sampling)
        if spec.colour is Colour.RGB:
            small = cv2.cvtColor(small, cv2.COLOR_BGR2RGB)
        elif spec.colour is Colour.GRAY:
            small = cv2.cvtColor(small, cv2.COLOR_BGR2GRAY)[:, :, None]
        if tensor.scale and offset == 0.0 and abs(scale / tensor.scale - 1.0) < 0.01:
            stored: Any = small.astype(np.int16) + tensor.zero_point
        else:
            real = (small.astype(np.float32) - offset) * np.float32(scale)
            stored = np.rint(real / tensor.scale) + tensor.zero_point if tensor.scale else real
        if spec.layout is TensorLayout.NCHW:
            stored = stored.transpose(2, 0, 1)
        target[0] = stored
        return model.engine.run()

    return once


def _affine(model: Model) -> tuple[Any, Any]:
    """(offset, scale) so that the real value of a pixel is (pixel - offset) * scale."""
    spec = model.bundle.spec.input
    if spec.range is not None:
        low, high = spec.range
        scale = (high - low) / 255.0
        return -low / scale, scale
    if spec.mean is not None and spec.std is not None:
        if len(set(spec.mean)) == 1 and len(set(spec.std)) == 1:
            return spec.mean[0], 1.0 / spec.std[0]
        return np.array(spec.mean, np.float32), 1.0 / np.array(spec.std, np.float32)
    return 0.0, 1.0


def own_floor(model: Model, frame: NDArray[np.uint8]) -> Callable[[], Any]:
    """The agent's own preprocessing and the engine call, in one process."""
    height, width = frame.shape[:2]
    frame_format = describe(width, height, PixelFormat.BGR24)
    picture = picture_from_buffer(frame.data.cast("B"), frame_format)

    def once() -> Any:  # noqa: ANN401 - raw engine outputs
        model.preprocessor.prepare(picture, model.engine.input_array)
        return model.engine.run()

    return once


def synthetic_frame(width: int, height: int) -> NDArray[np.uint8]:
    """A picture with edges and noise; the same one in every run."""
    rng = np.random.default_rng(7)
    base = rng.integers(0, 255, (max(1, height // 16), max(1, width // 16), 3), dtype=np.uint8)
    picture = cv2.resize(base, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(picture, dtype=np.uint8)


def timed(once: Callable[[], Any], count: int) -> list[int]:
    """Nanoseconds of each of `count` calls, after a short warm-up."""
    for _ in range(WARMUP_FRAMES):
        once()
    taken: list[int] = []
    for _ in range(count):
        start_ns = time.perf_counter_ns()
        once()
        taken.append(time.perf_counter_ns() - start_ns)
    return taken


def percentiles(taken_ns: Sequence[float]) -> Percentiles:
    """p50, p95 and p99 in microseconds."""
    values = np.percentile(np.array(taken_ns) / 1e3, (50, 95, 99))
    return Percentiles(*(round(float(value), 1) for value in values))


def run_benchmark(
    spec: WorkerSpec, *, width: int, height: int, frames: int, rounds: int, say: Callable[[str], None]
) -> BenchReport:
    """Measure floor and path in alternating rounds.

    Raises:
        VedetteError: The bundle cannot be loaded, or a frame got no answer.
    """
    frame = synthetic_frame(width, height)
    model = load_model(spec, say)
    client = PathClient(spec, frame, say)
    try:
        contenders: dict[str, Callable[[], Any]] = {
            "floor": straight_script(model, frame),
            "own": own_floor(model, frame),
            "path": client,
        }
        taken: dict[str, list[int]] = {name: [] for name in contenders}
        overhead: list[float] = []
        gc.collect()
        gc.freeze()
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            latest = {name: timed(once, max(1, frames // rounds)) for name, once in contenders.items()}
            for name, times in latest.items():
                taken[name] += times
            usual_ns = statistics.median(latest["floor"])
            overhead += [time_ns - usual_ns for time_ns in latest["path"]]
    finally:
        client.close()
        model.close()
    floor, own, path = (percentiles(taken[name]) for name in ("floor", "own", "path"))
    report = model.engine.report
    return BenchReport(
        bundle=f"{model.ref.name} {model.ref.version}",
        engine=report.runtime,
        accelerator=report.effective,
        threads=report.threads,
        frame=f"{width}x{height} bgr24",
        frames=len(taken["path"]),
        floor_us=floor,
        path_us=path,
        overhead_us=percentiles(overhead),
        ratio=round(path.p50 / floor.p50, 3),
        own_floor_us=own,
        own_ratio=round(path.p50 / own.p50, 3),
    )
