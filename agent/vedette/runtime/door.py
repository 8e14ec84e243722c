"""What the daemon does for the HTTP door beyond what it does for every camera."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.api.door_messages import DOOR, Unview, View
from vedette.runtime.generation import Phase
from vedette.wire.causes import DropCause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vedette.clock import Clock
    from vedette.frame.ring import Ring
    from vedette.runtime.camera import Camera
    from vedette.runtime.child import Child
    from vedette.runtime.generation import Generation
    from vedette.runtime.results import ResultsThread
    from vedette.runtime.worker_process import WorkerProcess

# A worker that is replaced is back before a caller minds; after this long he is told to come again.
NO_WORKER_AFTER_S = 2.0


class Door:
    """The door's answers, its views of the other cameras. All calls come from the supervisor's thread."""

    def __init__(self, camera: Camera, *, clock: Clock, results: ResultsThread) -> None:
        self._camera = camera
        self._clock = clock
        self._results = results
        self._connected: Child | None = None
        self._telling: WorkerProcess | None = None
        self._shown: dict[str, Ring] = {}
        self._served_ns = clock.monotonic_ns()

    def tick(self, cameras: Iterable[Camera], generation: Generation) -> None:
        """Connect a new process, show it what there is to see, and let nobody wait in vain."""
        self._connect()
        if self._connected is not None:
            self._show(cameras)
            self._let_tell(generation)
        self._pass_over(generation)

    def _connect(self) -> None:
        camera = self._camera
        if camera.child is self._connected:
            return
        self._shown.clear()
        self._connected = self._telling = None
        if camera.child is None or camera.control is None:
            return
        try:
            channel = camera.control.for_sending()
        except OSError:  # no descriptor is left: the next tick tries again
            return
        self._results.connect_door(channel, camera.head_at_start)
        self._connected = camera.child

    def _let_tell(self, generation: Generation) -> None:
        """Have the worker that answers tell the door itself: one process less to wake for each request."""
        worker, control = generation.worker, self._camera.control
        if worker is self._telling or worker is None or control is None or DOOR not in worker.seats:
            return
        if worker.let_tell(DOOR, control.fileno(), self._camera.head_at_start):
            self._telling = worker

    def _show(self, cameras: Iterable[Camera]) -> None:
        """Hand over rings that are new, and take back those that are gone."""
        for camera in cameras:
            if camera is self._camera:
                continue
            shown = self._shown.get(camera.name)
            if camera.ring is not None and camera.ring is not shown:
                if self._camera.tell(View(camera.name), camera.ring.handles.fds):
                    self._shown[camera.name] = camera.ring
            elif camera.ring is None and shown is not None and self._camera.tell(Unview(camera.name)):
                del self._shown[camera.name]

    def _pass_over(self, generation: Generation) -> None:
        """While no worker is to be had, a request fails now and not when its time is over."""
        now_ns = self._clock.monotonic_ns()
        ring, worker = self._camera.ring, generation.worker
        changing = generation.paused or generation.phase is Phase.ACCOUNTING
        if generation.serving or changing or (worker is not None and DOOR in worker.seats):
            self._served_ns = now_ns
            return
        if ring is None or now_ns - self._served_ns < NO_WORKER_AFTER_S * 1e9:
            return
        head = ring.head
        if head > ring.taken:
            ring.pass_over(head)
            self._results.skip_to(DOOR, head, DropCause.NO_WORKER)
