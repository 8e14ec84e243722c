"""The child process that loads a candidate and tries it, and the messages between it and the driver.

`limited_child` runs `work`. What it finds is told; what kills it is told by its death.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vedette.bundle.folder import load_bundle
from vedette.engine.failures import is_allocation_failure
from vedette.engine.messages import WorkerSpec
from vedette.engine.model import load_model
from vedette.engine.priority import cpu_wait_ns
from vedette.errors import OutOfMemoryError, SelfTestError, VedetteError
from vedette.update.causes import Cause
from vedette.vision.picture import picture_from_buffer
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.engine.model import Model


class Trial(msgspec.Struct, frozen=True):
    """What to load, and how often to run it for the time that it takes."""

    worker: WorkerSpec
    runs: int


class Step(msgspec.Struct, frozen=True, tag=True):
    """What it is about to do."""

    line: str


class Loaded(msgspec.Struct, frozen=True, tag=True):
    """It loads and gives its golden answers.

    `run_ms` is the median of a whole answer, without the time in which others had the processor; `peak_mb`
    the most memory that was in use.
    """

    name: str
    version: str
    sha256: str
    accelerator: str
    golden_cases: int
    run_ms: float
    peak_mb: int


class Unfit(msgspec.Struct, frozen=True, tag=True):
    """It does not."""

    cause: Cause
    detail: str


def work(spec: bytes, tell: Callable[[bytes], None]) -> None:
    """Try the bundle of a JSON Trial."""
    trial = msgspec.json.decode(spec, type=Trial)

    def progress(line: str) -> None:
        tell(msgspec.json.encode(Step(line)))

    tell(msgspec.json.encode(_try(trial, progress)))


def _try(trial: Trial, progress: Callable[[str], None]) -> Loaded | Unfit:
    try:
        load_bundle(Path(trial.worker.bundle))
        model = load_model(trial.worker, progress)
        progress("measuring")
        run_ms = _median_ms(model, trial.runs)
    except SelfTestError as error:
        return Unfit(Cause.PREFLIGHT_GOLDEN, error.cause)
    except (OutOfMemoryError, MemoryError) as error:
        return Unfit(Cause.OOM, str(error) or "memory ran out")
    except VedetteError as error:
        cause = Cause.OOM if is_allocation_failure(error) else Cause.LOAD_FAIL
        return Unfit(cause, error.cause)
    ref, report = model.ref, model.engine.report
    return Loaded(
        ref.name,
        ref.version,
        ref.sha256,
        report.effective,
        model.self_test.cases,
        run_ms,
        _peak_mb(),
    )


def _median_ms(model: Model, runs: int) -> float:
    width, height = model.bundle.spec.input.size
    frame_format = describe(width, height, PixelFormat.BGR24)
    picture = picture_from_buffer(memoryview(bytes(frame_format.frame_bytes)), frame_format)
    taken_ms = []
    for _ in range(runs):
        begun_ns, waited_ns = time.monotonic_ns(), cpu_wait_ns()
        model.answer(picture)
        waited_ns = cpu_wait_ns() - waited_ns
        taken_ms.append((time.monotonic_ns() - begun_ns - waited_ns) / 1e6)
    return max(0.0, statistics.median(taken_ms))


def _peak_mb() -> int:
    """The high-water mark of resident memory (proc(5)); 0 where the kernel does not tell."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")), 0)
