"""Workers that are let go: they finish the frame in hand and end, or are killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette.runtime.results import Retired
from vedette.wire.messages import ModelRef

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.runtime.results import ResultsThread
    from vedette.runtime.worker_process import WorkerProcess

LEAVE_S = 3.0


class _Leaving(NamedTuple):
    worker: WorkerProcess
    kill_at_ns: int


class Departures:
    """Workers without a camera, on their way out. All calls come from the supervisor's thread."""

    def __init__(self, clock: Clock, results: ResultsThread) -> None:
        self._clock = clock
        self._results = results
        self._leaving: list[_Leaving] = []

    @property
    def workers(self) -> list[WorkerProcess]:
        """Those that have not ended yet."""
        return [leaving.worker for leaving in self._leaving]

    def let_go(self, *workers: WorkerProcess | None) -> None:
        """Tell them to end."""
        kill_at_ns = self._clock.monotonic_ns() + round(LEAVE_S * 1e9)
        for worker in workers:
            if worker is not None:
                worker.stop()
                self._leaving.append(_Leaving(worker, kill_at_ns))

    def check(self) -> None:
        """Kill those that take too long."""
        now_ns = self._clock.monotonic_ns()
        for leaving in self._leaving:
            if now_ns > leaving.kill_at_ns:
                leaving.worker.give_up_stopping()

    def buried(self, worker: WorkerProcess, status: int) -> None:
        """One has ended."""
        self._leaving = [leaving for leaving in self._leaving if leaving.worker is not worker]
        retire_unseen(self._results, worker, status)


def retire_unseen(results: ResultsThread, worker: WorkerProcess, status: int) -> None:
    """Bury a worker that holds no live seat: what it sent is read, and no frame is owed an answer."""
    cause, detail = worker.obituary(status)
    model = ModelRef("", "", "") if worker.ready is None else worker.ready.model
    results.retire_worker(Retired(worker.results, [], cause, detail, model, "", worker.held))
    worker.close()
