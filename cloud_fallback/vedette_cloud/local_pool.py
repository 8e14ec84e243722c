"""Processes of this machine that run the model, and the queue before them.

A process that dies costs its batch; who waits in the queue is answered by the next one. After a death there
is a pause with full jitter, longer after each that follows soon.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vedette.api.deadline import Deadline
from vedette.api.messages import ModelDescription
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.errors import VedetteError
from vedette_cloud.batching import Batcher, QueueFullError
from vedette_cloud.messages import Question
from vedette_cloud.model_process import ModelProcess, ProcessLostError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.request_frames import RequestFrame
    from vedette.clock import Clock
    from vedette_cloud.batching import BatchLimits
    from vedette_cloud.messages import Answer, ChildSpec, Loaded
    from vedette_cloud.metrics import PoolMeter

# Nobody who waits for something does so for longer without looking.
LOOK_EVERY_S = 1.0
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
# A process that ran for so long was not sick from the start.
HEALTHY_S = 60.0


class _Waiting(NamedTuple):
    question: Question
    frame: memoryview
    outcome: asyncio.Future[Answer]


class LocalPool:
    """Implements `port.ModelPool` with `processes` of this machine."""

    def __init__(
        self,
        spec: ChildSpec,
        limits: BatchLimits,
        *,
        processes: int,
        run_timeout_s: float,
        clock: Clock,
        meter: PoolMeter,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._batcher: Batcher[_Waiting] = Batcher(limits)
        self._run_timeout_s = run_timeout_s
        self._clock = clock
        self._meter = meter
        self._say = say
        self._processes: list[ModelProcess | None] = [None] * processes
        self._description = ModelDescription(ready=False, reason="the model is being loaded")
        self._reason = "the model is being loaded"
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Loaded:
        """Load the model in every process.

        Raises:
            VedetteError: The first process cannot serve it.
        """
        first = ModelProcess(self._spec, self._say)
        loaded = await first.start()
        self._description = loaded.description
        self._batcher.fit(loaded.sizes[-1])
        self._processes[0] = first
        self._tasks = [asyncio.create_task(self._serve(seat)) for seat in range(len(self._processes))]
        return loaded

    async def close(self) -> None:
        """End all processes; who waits is told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for process in self._processes:
            if process is not None:
                await process.stop()

    @property
    def pids(self) -> list[int]:
        """Of the processes that answer now."""
        return [one.pid for one in self._processes if one is not None and one.pid is not None]

    def description(self) -> ModelDescription:
        """See `port.ModelPool`."""
        if any(process is not None for process in self._processes):
            return self._description
        return msgspec.structs.replace(self._description, ready=False, reason=self._reason)

    async def ask(
        self, frame: RequestFrame, *, captured_ns: int, deadline_ns: int, ranking: bool = False
    ) -> Answer:
        """See `port.ModelPool`."""
        now_ns = self._clock.monotonic_ns()
        waiting = _Waiting(
            Question(frame.format, captured_ns, now_ns, ranking),
            _joined(frame.pieces),
            asyncio.get_running_loop().create_future(),
        )
        try:
            ticket = self._batcher.offer(
                waiting, size_bytes=len(waiting.frame), now_ns=now_ns, deadline_ns=deadline_ns
            )
        except QueueFullError as error:
            raise not_now(
                f"the queue is full: {error}", retry_after_s=max(1.0, error.retry_after_s)
            ) from error
        self._meter.waiting(self._batcher.waiting)
        self._wake.set()
        late = RequestRefusedError(504, "the model gave no answer in time", retry_after_s=1.0)
        try:
            with Deadline((deadline_ns - now_ns) / 1e9, late):
                return await waiting.outcome
        finally:
            self._batcher.discard(ticket)
            self._meter.waiting(self._batcher.waiting)

    async def _serve(self, seat: int) -> None:
        """Keep one process alive and busy, for as long as the server runs."""
        deaths = 0
        while True:
            started_s = asyncio.get_running_loop().time()
            try:
                process = self._processes[seat]
                if process is None:
                    process = ModelProcess(self._spec, self._say)
                    await process.start()
                    self._processes[seat] = process
                await self._feed(process)
            except VedetteError as error:
                self._processes[seat] = None
                self._reason = f"the model's process is being started again: {error.cause}"
                self._meter.restarted()
                healthy = asyncio.get_running_loop().time() - started_s > HEALTHY_S
                deaths = 1 if healthy else deaths + 1
                pause_s = random.uniform(0, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**deaths))  # noqa: S311 - jitter
                self._say(f"{error.cause}; a new one in {pause_s:.1f} s")
                await asyncio.sleep(pause_s)

    async def _feed(self, process: ModelProcess) -> None:
        """Give a process one batch after the other.

        Raises:
            ProcessLostError: It died; its batch was told so.
        """
        while True:
            batch = await self._next_batch(process)
            try:
                answers, run_ns = await process.answer(
                    [one.question for one in batch], [one.frame for one in batch], self._run_timeout_s
                )
            except ProcessLostError as error:
                for one in batch:
                    if not one.outcome.done():
                        one.outcome.set_exception(not_now(f"the request was lost: {error.cause}"))
                raise
            except asyncio.CancelledError:
                for one in batch:
                    if not one.outcome.done():
                        one.outcome.set_exception(not_now("the server is ending"))
                raise
            self._batcher.ran(run_ns)
            self._meter.ran(len(batch), run_ns)
            for one, answer in zip(batch, answers, strict=True):
                if not one.outcome.done():
                    one.outcome.set_result(answer)

    async def _next_batch(self, process: ModelProcess) -> tuple[_Waiting, ...]:
        while True:
            now_ns = self._clock.monotonic_ns()
            taken = self._batcher.take(now_ns)  # those that expired are told by their own deadline
            if taken.batch:
                return taken.batch
            if process.ended:
                raise await process.found_ended()
            due_ns = self._batcher.due_ns()
            wait_s = LOOK_EVERY_S if due_ns is None else min(LOOK_EVERY_S, max(0, due_ns - now_ns) / 1e9)
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), wait_s)
            except asyncio.TimeoutError:
                continue


def _joined(pieces: tuple[memoryview, ...]) -> memoryview:
    return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
