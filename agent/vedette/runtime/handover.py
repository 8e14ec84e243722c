"""Takes cameras from one worker and gives them to another, each between two frames.

For each camera: the old worker is asked to let go; it does so between two frames and says so after its last
result; the results thread reads the old worker's channel empty; only then the new worker gets the camera and
goes on from the ring's cursor. So results of a camera stay in order, none is lost and none is answered twice.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from vedette.runtime.generation import seat_live

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vedette.runtime.camera import Camera
    from vedette.runtime.results import ResultsThread
    from vedette.runtime.worker_process import WorkerProcess


class Handover:
    """One move. All calls come from the supervisor's thread; it never waits, it looks again at each tick."""

    def __init__(self, results: ResultsThread) -> None:
        self._results = results
        self._asked: set[str] = set()
        self._let_go: set[str] = set()
        self._read: deque[str] = deque(maxlen=4096)  # the results thread appends
        self._arrived = 0
        self._homeless: set[str] = set()

    def ask(self, old: WorkerProcess) -> None:
        """Ask for every camera that it still has."""
        for name in old.seats:
            if name not in self._asked and old.detach(name):
                self._asked.add(name)

    def collect(self, old: WorkerProcess) -> None:
        """Have what was said of cameras that were let go accounted for."""
        for name in self._asked - self._let_go - old.seats.keys():
            self._let_go.add(name)
            self._results.read_out(old.results, partial(self._read.append, name))

    def give(self, new: WorkerProcess, cameras: Mapping[str, Camera]) -> None:
        """Seat the cameras whose results are read out."""
        self._take_read()
        for name in list(self._homeless):
            camera = cameras[name]
            if camera.ring is None or seat_live(new, camera, camera.ring):
                self._homeless.discard(name)

    def settled(self) -> bool:
        """Every camera that was asked for was let go, and its results are accounted for."""
        self._take_read()
        return self._asked == self._let_go and self._arrived == len(self._let_go)

    def done(self, old: WorkerProcess | None) -> bool:
        """Nothing is left with the old worker, nor on the way."""
        return self.settled() and not self._homeless and (old is None or not old.seats)

    def _take_read(self) -> None:
        while self._read:
            self._homeless.add(self._read.popleft())
            self._arrived += 1
