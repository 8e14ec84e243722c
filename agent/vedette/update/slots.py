"""Two slots for jobs: what the update does, and what the data plane is to serve. Pure but for the clock."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vedette.update import events as ev
from vedette.update.jobs import NOW, Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock

# A job, or one that has nothing to say at its end.
Pieces = Generator[Wait | ev.Event, None, ev.Event | None]


@dataclass
class _Running:
    """A job and when its next piece is due."""

    pieces: Pieces
    due_ns: int
    fd: int | None = None


class Slots:
    """A new job takes the place of the one in its slot, which is closed."""

    def __init__(self, clock: Clock, emit: Callable[[ev.Event], None]) -> None:
        self._clock = clock
        self._emit = emit
        self._work: _Running | None = None
        self._serve: _Running | None = None

    @property
    def serving(self) -> bool:
        """Whether the data plane is still being brought to serve what it was asked for."""
        return self._serve is not None

    def begin_work(self, pieces: Pieces) -> None:
        """Let the update do this."""
        self.end_work()
        self._work = _Running(pieces, self._clock.monotonic_ns())

    def begin_serving(self, pieces: Pieces) -> None:
        """Let the data plane be brought to this."""
        self.end_serving()
        self._serve = _Running(pieces, self._clock.monotonic_ns())

    def work_due_s(self) -> float | None:
        """In how many seconds the update's job goes on; None without one."""
        if self._work is None:
            return None
        return max(0.0, (self._work.due_ns - self._clock.monotonic_ns()) / 1e9)

    def hurry_work(self) -> None:
        """Do not wait for the moment that the update's job waits for."""
        if self._work is not None and self._work.fd is None:
            self._work.due_ns = self._clock.monotonic_ns()

    def end_work(self) -> None:
        """Stop what the update does."""
        running, self._work = self._work, None
        if running is not None:
            running.pieces.close()

    def end_serving(self) -> None:
        """Stop asking the data plane; what serves goes on."""
        running, self._serve = self._serve, None
        if running is not None:
            running.pieces.close()

    def run_serving(self) -> None:
        """A piece of the serving job, if it is due."""
        running = self._serve
        if running is not None and self._run(running) and self._serve is running:
            self._serve = None

    def run_work(self) -> None:
        """A piece of the update's job, if it is due."""
        running = self._work
        if running is not None and self._run(running) and self._work is running:
            self._work = None

    def _run(self, running: _Running) -> bool:
        """One piece; whether that was the last."""
        if running.fd is None and self._clock.monotonic_ns() < running.due_ns:
            return False
        try:
            said = next(running.pieces)
        except StopIteration as end:
            if end.value is not None:
                self._emit(end.value)
            return True
        wait = NOW
        if isinstance(said, Wait):
            wait = said
        else:
            self._emit(said)
        running.due_ns = self._clock.monotonic_ns() + round(wait.seconds * 1e9)
        running.fd = wait.fd
        return False

    def due_ns(self) -> list[int]:
        """When pieces are due, monotonic."""
        return [running.due_ns for running in (self._work, self._serve) if running is not None]

    def fd(self) -> int | None:
        """A descriptor that a job waits for."""
        running = [running for running in (self._work, self._serve) if running is not None]
        return next((job.fd for job in running if job.fd is not None), None)
