"""A daemon with real child processes inside the test process, over the stub engine and a small bundle."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tests.stubs.tiny_models import tiny_onnx
from tests.stubs.waiting import until

from vedette.bundle.folder import seal
from vedette.clock import SystemClock
from vedette.engine.messages import WorkerSpec
from vedette.runtime.daemon import Daemon, Stopping
from vedette.runtime.plan import CameraPlan, RestartPolicy, RunPlan
from vedette.source.port import SourceSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from vedette.errors import VedetteError
    from vedette.telemetry.ledger import CameraCounts
    from vedette.wire.messages import Result

REPOSITORY = Path(__file__).resolve().parents[2]
# The engine's own check and one warm-up run come before the first frame.
CALLS_BEFORE_FRAMES = 2
QUICK_RESTARTS = RestartPolicy(budget=50, backoff_min_s=0.01, backoff_max_s=0.05)
STUB = {"onnx": "tests.stubs.engines:open_stub"}
STUB_OPTIONS = {"input": "1x3x8x8:float32", "outputs": "1x4:float32"}


def stub_bundle(root: Path, **changes: Any) -> Path:  # noqa: ANN401 - a YAML value is anything
    """A sealed bundle that the stub engine answers for: four classes, no golden inputs; see `model.yaml`."""
    root.mkdir(parents=True)
    (root / "tiny.onnx").write_bytes(tiny_onnx())
    (root / "labels.txt").write_text("red\ngreen\nblue\ndark\n", encoding="utf-8")
    spec = {
        "schema": 1,
        "name": "tiny",
        "version": "1",
        "task": "classify",
        "engine": "onnx",
        "file": "tiny.onnx",
        "input": {"size": [8, 8], "layout": "nchw", "range": [0, 1]},
        "output": {"layout": "scores", "activation": "given", "labels": {"count": 4}},
        "golden": None,
        **changes,
    }
    (root / "model.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    seal(root)
    return root


def frame_call(frame: int) -> str:
    """The stub engine's call number for the n-th frame of a worker process, counted from 1."""
    return str(CALLS_BEFORE_FRAMES + frame)


def worker(bundle: Path, plugin: str = STUB["onnx"], **options: str) -> WorkerSpec:
    """A worker over the stub engine."""
    return WorkerSpec(
        bundle=str(bundle), options={**STUB_OPTIONS, **options}, plugins={"onnx": plugin}, warmup_runs=1
    )


def camera(name: str, source: str, *, slots: int = 4, max_age_ms: Any = "auto", **spec: Any) -> CameraPlan:  # noqa: ANN401 - fields of SourceSpec
    """A camera; `spec` are fields of SourceSpec."""
    return CameraPlan(SourceSpec(camera=name, input=source, **spec), slots=slots, max_age_ms=max_age_ms)


def plan(worker_spec: WorkerSpec, *cameras: CameraPlan, **changes: Any) -> RunPlan:  # noqa: ANN401 - fields of RunPlan
    """A plan with quick restarts; `changes` are fields of RunPlan."""
    return RunPlan(worker=worker_spec, cameras=cameras, **{"restart": QUICK_RESTARTS, **changes})


class ListResults:
    """A results sink over a list; `gate` can be cleared to play a consumer that does not read."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.gate = threading.Event()
        self.gate.set()

    def write(self, results: Sequence[Result]) -> None:
        """Keep them."""
        assert self.gate.wait(30), "the test never opened the gate"
        self.results.extend(results)

    def close(self) -> None:
        """Nothing is open."""

    def of(self, name: str) -> list[Result]:
        """One camera's results, in the order they came."""
        return [result for result in self.results if result.camera == name]

    def answered(self, name: str) -> int:
        """How many of one camera's frames got an answer."""
        return sum(1 for result in self.of(name) if not result.failed)


class Running:
    """A daemon in a thread: `with Running(plan) as run: …`; leaving stops it and checks the books."""

    def __init__(self, run_plan: RunPlan) -> None:
        self.sink = ListResults()
        # A line that waits for its outcome is overtaken by those that do not.
        self._may_overtake = run_plan.escalation is not None and run_plan.escalation.config.hold
        self.said: list[str] = []
        self.error: VedetteError | None = None
        self.crash: BaseException | None = None
        self.stopping = Stopping()
        self.daemon = Daemon(
            run_plan,
            sink=self.sink,
            clock=SystemClock(),
            stopping=self.stopping,
            say=self.said.append,
        )
        self._thread = threading.Thread(target=self._run, name="daemon")

    def _run(self) -> None:
        try:
            self.error = self.daemon.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.crash = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None:
            self.check()

    def stop(self, *, within_s: float = 60.0) -> None:
        """Ask for the end and wait for it."""
        self.stopping.ask("the test is over")
        self.wait(within_s=within_s)

    def wait(self, *, within_s: float = 60.0) -> None:
        """Wait until the inputs have ended."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), (
            f"the daemon did not end within {within_s:g} s; it said {self.said}"
        )

    def check(self) -> None:
        """Every frame has one outcome, and no frame was answered twice."""
        assert self.crash is None, repr(self.crash)
        assert self.daemon.ledger.imbalance() == {}
        for name, counts in self.daemon.ledger.snapshot().cameras.items():
            assert counts.in_flight == 0
            seqs = self._frames_of(name)
            assert self._may_overtake or seqs == sorted(seqs), f"{name}: results are out of order"
            assert len(seqs) == counts.ok + counts.failed_total

    def _frames_of(self, name: str) -> list[int]:
        """Of each frame the first line; a second one may say only what became of its escalation."""
        lines: dict[int, int] = {}
        for result in self.sink.of(name):
            lines[result.seq] = lines.get(result.seq, 0) + 1
            outcome = result.escalation
            assert lines[result.seq] == 1 or (lines[result.seq] == 2 and outcome and outcome.reason), (
                f"{name}: frame {result.seq} was answered twice"
            )
        return list(lines)

    def counts(self, name: str) -> CameraCounts:
        """A camera's counts now."""
        self.daemon.observe_rings()
        return self.daemon.ledger.snapshot().cameras[name]

    def worker_pid(self) -> int:
        """The pid of the worker that serves; waits until one does."""
        until(lambda: self.daemon.generation.serving, f"a worker serves; said {self.said}")
        process = self.daemon.generation.worker
        assert process is not None
        return process.child.pid

    def source_pid(self, name: str) -> int:
        """The pid of a camera's source child."""
        child = next(camera for camera in self.daemon.cameras if camera.name == name).child
        assert child is not None, f"{name} has no source child"
        return child.pid

    def until_answers(self, name: str, more: int = 1) -> None:
        """Wait until a camera got that many more answers."""
        before = self.sink.answered(name)
        until(
            lambda: self.sink.answered(name) >= before + more,
            f"{more} more answers of {name}; said {self.said}",
        )

    def failures(self, name: str) -> list[tuple[int, str, str]]:
        """(seq, cause, detail) of the frames that failed."""
        return [
            (result.seq, result.failed.cause, result.failed.detail)
            for result in self.sink.of(name)
            if result.failed
        ]
