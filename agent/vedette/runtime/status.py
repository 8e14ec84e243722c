"""How the daemon is doing, for whoever asks on the control socket."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import vedette
from vedette.api.messages import AgentStatus, CameraStatus
from vedette.errors import UnavailableError
from vedette.runtime.escalation_status import describe_escalation
from vedette.runtime.results import ReuseCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.runtime.camera import Camera
    from vedette.runtime.daemon import Daemon
    from vedette.telemetry.ledger import CameraCounts

T = TypeVar("T")

ANSWER_WITHIN_S = 5.0
RATE_EVERY_S = 5.0
RATE_MARKS = 7  # half a minute
MAX_ASKED = 8


class StatusDesk:
    """Takes the question on any thread and answers on the supervisor's, which alone may look at rings."""

    def __init__(self, clock: Clock, *, device: str) -> None:
        self._clock = clock
        self._device = device
        self._lock = threading.Lock()
        self._asked: list[_Question[Any]] = []
        self._closed = False
        self._marks: deque[tuple[int, dict[str, int]]] = deque(maxlen=RATE_MARKS)

    def ask(self, daemon: Daemon, *, within_s: float = ANSWER_WITHIN_S) -> AgentStatus:
        """The status as of now.

        Raises:
            UnavailableError: The supervisor did not come to it in time, as while it ends.
        """
        return self.look(daemon, self.describe, within_s=within_s)

    def look(
        self, daemon: Daemon, view: Callable[[Daemon, int], T], *, within_s: float = ANSWER_WITHIN_S
    ) -> T:
        """What `view` makes of the daemon on the supervisor's thread, and of the monotonic time.

        Raises:
            UnavailableError: The supervisor did not come to it in time, as while it ends.
        """
        question = _Question(view)
        with self._lock:
            if self._closed:
                raise UnavailableError("the agent is ending")
            if len(self._asked) >= MAX_ASKED:
                raise UnavailableError("too many ask for the status at once", cure="ask again in a second")
            self._asked.append(question)
        daemon.wake()
        if not question.answered.wait(within_s) or question.answer is None:
            raise UnavailableError(f"the agent gave no status within {within_s:g} s; it may be ending")
        return question.answer

    def tick(self, daemon: Daemon) -> None:
        """Answer who asked; note counts for the rates."""
        now_ns = self._clock.monotonic_ns()
        if not self._marks or now_ns - self._marks[-1][0] >= RATE_EVERY_S * 1e9:
            counts = daemon.ledger.snapshot().cameras
            self._marks.append((now_ns, {name: count.ok for name, count in counts.items()}))
        if not self._asked:
            return
        with self._lock:
            asked, self._asked = self._asked, []
        for question in asked:
            question.answer = question.view(daemon, now_ns)
            question.answered.set()

    def close(self) -> None:
        """The supervisor answers no more: whoever waits is told so now, and whoever asks later at once."""
        with self._lock:
            self._closed = True
            asked, self._asked = self._asked, []
        for question in asked:
            question.answered.set()

    def describe(self, daemon: Daemon, now_ns: int) -> AgentStatus:
        """The status; on the supervisor's thread."""
        in_flight = daemon.observe_rings()
        counts = daemon.ledger.snapshot().cameras
        generation = daemon.generation
        ready = generation.ready if generation.serving else None
        return AgentStatus(
            agent=vedette.__version__,
            device=self._device,
            uptime_s=(now_ns - daemon.started_ns) / 1e9,
            model=None if ready is None else ready.model,
            engine=None if ready is None else ready.accelerator,
            worker_restarts=generation.restarts.total,
            cameras=tuple(
                self._camera(
                    camera,
                    counts[camera.name],
                    in_flight.get(camera.name, 0),
                    daemon.results.reuse.get(camera.name, ReuseCounts()),
                    now_ns,
                )
                for camera in daemon.cameras
            ),
            escalation=describe_escalation(daemon),
        )

    def _camera(
        self, camera: Camera, counts: CameraCounts, in_flight: int, reuse: ReuseCounts, now_ns: int
    ) -> CameraStatus:
        then_ns, ok = self._marks[0] if self._marks else (now_ns, {})
        elapsed_s = (now_ns - then_ns) / 1e9
        return CameraStatus(
            camera=camera.name,
            state=camera.state.value,
            live=camera.live,
            fps=(counts.ok - ok.get(camera.name, 0)) / elapsed_s if elapsed_s > 0 else 0.0,
            frames_in=counts.frames_in,
            ok=counts.ok,
            dropped=counts.dropped,
            failed=counts.failed,
            in_flight=in_flight,
            source_restarts=camera.restarts.total,
            reused=reuse.again,
            checks=reuse.checks,
            checks_wrong=reuse.wrong,
        )


class _Question(Generic[T]):
    """Somebody waits for it."""

    def __init__(self, view: Callable[[Daemon, int], T]) -> None:
        self.view = view
        self.answered = threading.Event()
        self.answer: T | None = None
