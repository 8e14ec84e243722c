"""Looks at the data plane on the supervisor's thread, and carries what happened to the one that tells it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from vedette.errors import StorageError
from vedette.runtime.events import CameraLook, Changes, DaemonLook, EventRate, Happening
from vedette.runtime.log import Level, LogLine
from vedette.source.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.link.port import Link
    from vedette.runtime.daemon import Daemon

LOOK_EVERY_S = 0.25
# Each is below a kilobyte or two; beyond that the oldest go, and an event of their own counts them.
MAX_QUEUED = 256
_MAX_FAULT_CHARS = 500


def look_at(daemon: Daemon) -> DaemonLook:
    """The data plane now; on the supervisor's thread."""
    generation, results = daemon.generation, daemon.results
    ready = generation.ready if generation.serving else None
    return DaemonLook(
        cameras={
            camera.name: CameraLook(
                camera.state.value,
                _short(camera.fault if camera.error is None else camera.error.cause),
            )
            for camera in daemon.cameras
        },
        worker_restarts=generation.restarts.total,
        worker_fault=_short(generation.fault),
        model=None if ready is None else ready.model,
        engine=None if ready is None else ready.accelerator,
        results_fault="" if results.sink_error is None else _short(results.sink_error.cause),
        undelivered=results.undelivered,
    )


def _short(text: str) -> str:
    return redact_url(text)[:_MAX_FAULT_CHARS]


class Observer:
    """`look` is the supervisor's; `tell` and `finish` are the thread's that reports."""

    def __init__(self, link: Link, *, wake: Callable[[], None], say: Callable[[str], None]) -> None:
        self._link = link
        self._wake = wake
        self._say = say
        self._changes = Changes()
        self._look_ns = 0
        self._queue: deque[Happening] = deque()
        self._rate = EventRate()
        self._untold: deque[Happening] = deque()
        self._dropped = 0
        self._fault = ""

    def tick(self, daemon: Daemon, now_ns: int) -> None:
        """Look now and then."""
        if now_ns - self._look_ns >= LOOK_EVERY_S * 1e9:
            self._look_ns = now_ns
            self.look(daemon)

    def look(self, daemon: Daemon) -> None:
        """See what happened since the last look."""
        for happening in self._changes.since_last(look_at(daemon)):
            self.happened(happening)

    def happened(self, happening: Happening) -> None:
        """Something to tell, seen by somebody else; any thread."""
        self._queue.append(happening)
        self._shed(self._queue)
        self._wake()

    def _shed(self, waiting: deque[Happening]) -> None:
        while len(waiting) > MAX_QUEUED:
            waiting.popleft()
            self._dropped += 1

    def tell(self, now_ns: int) -> None:
        """Put what may be told into the link's outbox; a disk that refuses is tried again."""
        while self._queue:
            told = self._rate.offer(self._queue.popleft(), now_ns)
            if told is not None:
                self._untold.append(told)
        self._untold.extend(self._rate.due(now_ns))
        self._shed(self._untold)
        self._drain()
        if self._dropped and not self._untold:
            dropped, self._dropped = self._dropped, 0
            self._untold.append(Happening("events_dropped", "", {"count": dropped}))
            self._drain()

    def finish(self, now_ns: int) -> None:
        """The last turn: nothing is held back any more."""
        self.tell(now_ns)
        self._untold.extend(self._rate.all_held())
        self._drain()

    def _drain(self) -> None:
        while self._untold:
            happening = self._untold[0]
            try:
                self._link.event(happening.kind, happening.data, keep=happening.keep)
            except StorageError as error:
                if self._fault != error.cause:
                    self._say(LogLine(Level.WARNING, f"events cannot be kept: {error.cause}"))
                self._fault = error.cause
                return
            self._fault = ""
            self._untold.popleft()
            self._say(LogLine(Level.DEBUG, f"event: {happening.kind} {happening.subject}".rstrip()))
