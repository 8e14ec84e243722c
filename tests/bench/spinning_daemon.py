"""A real daemon with two live cameras, disturbed on a schedule; the child of `tests.bench.cameras`.

`python -m tests.bench.spinning_daemon SCHEDULE` with a Schedule as JSON; it prints a Report as JSON.
The phases alternate: `quiet`; `inside`, a thread of the daemon's own process spins in pure Python and holds
its interpreter lock all the time; `outside`, another process spins, which costs the same CPU and no lock.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec
from tests.bench.quiet import ForeignCpu, wait_for_quiet

from vedette.clock import SystemClock
from vedette.engine.messages import WorkerSpec
from vedette.runtime.daemon import Daemon, Stopping
from vedette.runtime.plan import CameraPlan, RunPlan
from vedette.source.port import SourceSpec
from vedette.wire.messages import LatencyMs, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

CAMERAS = ("left", "right")
PHASES = ("quiet", "inside", "outside")
FIRST_ANSWERS = 60
START_TIMEOUT_S = 60.0
QUIET_TIMEOUT_S = 1.5


class Schedule(msgspec.Struct, frozen=True):
    """`rounds` of all phases, each measured for `phase_s` after `settle_s`."""

    bundle: str
    source: str
    rounds: int
    phase_s: float
    settle_s: float


class Phase(msgspec.Struct, frozen=True):
    """One phase: `total_ms` from capture to answer, `deliver_ms` from answer to the output line."""

    name: str
    round: int
    foreign: float
    total_ms: list[float]
    deliver_ms: list[float]


class Report(msgspec.Struct, frozen=True):
    """All phases, and what the ledger says of the whole run."""

    phases: list[Phase]
    answered: int
    dropped: int
    failed: int


class RecordingSink:
    """Keeps capture time and latencies of every answer."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, float, float]] = []

    def write(self, results: Sequence[Result]) -> None:
        """See Sink."""
        now_ns = time.monotonic_ns()
        for result in results:
            if isinstance(result.latency_ms, LatencyMs):
                total_ms = result.latency_ms.total
                deliver_ms = (now_ns - result.captured_ns) / 1e6 - total_ms
                self.answers.append((result.captured_ns, total_ms, deliver_ms))

    def close(self) -> None:
        """Nothing is open."""


class Spinner(threading.Thread):
    """Burns CPU in pure Python while `on` is set."""

    def __init__(self) -> None:
        super().__init__(name="spinner", daemon=True)
        self.on = threading.Event()

    def run(self) -> None:
        """Spin, or wait."""
        turns = 0
        while True:
            if self.on.wait(1.0):
                while self.on.is_set():
                    turns += 1


class Disturber(threading.Thread):
    """Walks through the phases beside a running daemon, then asks it to end."""

    def __init__(self, schedule: Schedule, sink: RecordingSink, stopping: Stopping) -> None:
        super().__init__(name="disturber", daemon=True)
        self.phases: list[Phase] = []
        self._schedule = schedule
        self._sink = sink
        self._stopping = stopping
        self._spinner = Spinner()

    def run(self) -> None:
        """All rounds."""
        try:
            self._spinner.start()
            deadline_s = time.monotonic() + START_TIMEOUT_S
            while len(self._sink.answers) < FIRST_ANSWERS and time.monotonic() < deadline_s:
                time.sleep(0.05)
            for number in range(self._schedule.rounds):
                for name in PHASES if number % 2 == 0 else PHASES[::-1]:
                    self.phases.append(self._phase(name, number))
        finally:
            self._stopping.ask("measured")

    def _phase(self, name: str, number: int) -> Phase:
        wait_for_quiet(QUIET_TIMEOUT_S)
        outside = None
        if name == "outside":
            outside = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        elif name == "inside":
            self._spinner.on.set()
        try:
            time.sleep(self._schedule.settle_s)
            start_ns = time.monotonic_ns()
            with ForeignCpu() as foreign:
                time.sleep(self._schedule.phase_s)
            end_ns = time.monotonic_ns()
        finally:
            self._spinner.on.clear()
            if outside is not None:
                outside.kill()
                outside.wait(10)
        time.sleep(self._schedule.settle_s)  # the last answers of this phase are still on their way
        seen = [answer for answer in list(self._sink.answers) if start_ns <= answer[0] < end_ns]
        return Phase(
            name, number, foreign.share, [total for _, total, _ in seen], [late for *_, late in seen]
        )


def main() -> None:
    """Run the daemon on this thread, as the command does."""
    schedule = msgspec.json.decode(sys.argv[1], type=Schedule)
    plan = RunPlan(
        worker=WorkerSpec(bundle=schedule.bundle, threads=1),
        cameras=tuple(CameraPlan(SourceSpec(name, schedule.source, live=True)) for name in CAMERAS),
    )
    stopping, sink = Stopping(), RecordingSink()
    daemon = Daemon(plan, sink=sink, clock=SystemClock(), stopping=stopping, say=lambda _: None)
    disturber = Disturber(schedule, sink, stopping)
    disturber.start()
    error = daemon.run()
    if error is not None:
        raise error
    counts = daemon.ledger.snapshot().cameras.values()
    report = Report(
        disturber.phases,
        answered=sum(count.ok for count in counts),
        dropped=sum(sum(count.dropped.values()) for count in counts),
        failed=sum(sum(count.failed.values()) for count in counts),
    )
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    main()
