"""The door's ring: requests go in as frames, and outcomes come back by their sequence number.

One event loop owns it. A request waits for a free slot behind those that came before it; what became of it is
told once, and to nobody when the client has gone or its time was over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from vedette.api.body import copy_pieces
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.frame.producer import RingProducer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from vedette.api.request_frames import RequestFrame
    from vedette.clock import Clock
    from vedette.frame.ring import Ring
    from vedette.wire.messages import Result

# How often a request that waits for a slot looks whether its client is still there.
LOOK_EVERY_S = 0.25


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class FrameDesk:
    """Puts frames into the ring and hands outcomes out; `closed` says why it takes none, where it knows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: Ring | None = None
        self._producer: RingProducer | None = None
        self._space = asyncio.Event()
        self._turn = asyncio.Lock()
        self._pending: dict[int, asyncio.Future[Result]] = {}
        self.closed = ""
        self.waiting = 0
        self.unclaimed = 0

    @property
    def lent(self) -> bool:
        """There is a ring to put frames into."""
        return self._producer is not None

    @property
    def slot_bytes(self) -> int:
        """The room for one frame, 0 without a ring."""
        return 0 if self._ring is None else self._ring.geometry.slot_bytes

    @property
    def in_flight(self) -> int:
        """Frames in the ring or at the worker whose outcome somebody waits for."""
        return len(self._pending)

    def adopt(self, ring: Ring) -> None:
        """Use this ring from now on; frames of the one before still get their outcomes."""
        self._leave()
        self._ring, self._producer = ring, RingProducer(ring, self._clock)
        asyncio.get_running_loop().add_reader(ring.handles.space, self._space.set)
        self._space.set()

    def refuse(self, why: str) -> None:
        """There is no memory for a ring; who asks is told so."""
        self.closed = why

    def pulse(self) -> None:
        """Show the daemon that the event loop runs."""
        if self._producer is not None:
            self._producer.pulse()

    async def submit(
        self,
        frame: RequestFrame,
        *,
        captured_ns: int,
        deadline_ns: int,
        gone: Callable[[], Awaitable[bool]],
    ) -> Result:
        """Put a frame into the ring and wait for what becomes of it.

        Args:
            frame: Its format and bytes.
            captured_ns: CLOCK_MONOTONIC when the request's last byte was here.
            deadline_ns: When to give up, on the same clock.
            gone: Whether the client went away.

        Raises:
            RequestRefusedError: 503: no ring, or no slot in time; 504: no answer in time.
            ClientGoneError: Before its frame had a slot.
        """
        outcome = await self._publish(frame, captured_ns, deadline_ns, gone)
        return await outcome

    def answered(self, results: Sequence[Result]) -> None:
        """Outcomes from the daemon; one that nobody waits for is counted and forgotten."""
        for result in results:
            outcome = self._pending.pop(result.seq, None)
            if outcome is None or outcome.done():
                self.unclaimed += 1
            else:
                outcome.set_result(result)

    def close(self, why: str) -> None:
        """Take no further frame; who waits is told."""
        self.closed = why
        pending, self._pending = self._pending, {}
        for outcome in pending.values():
            if not outcome.done():
                outcome.set_exception(not_now(why))
        self._space.set()
        if self._producer is not None:
            self._producer.end()
        self._leave()

    def _leave(self) -> None:
        if self._ring is not None:
            asyncio.get_running_loop().remove_reader(self._ring.handles.space)
            self._ring.close()
            self._ring.handles.close()
        self._ring = self._producer = None

    async def _publish(
        self, frame: RequestFrame, captured_ns: int, deadline_ns: int, gone: Callable[[], Awaitable[bool]]
    ) -> asyncio.Future[Result]:
        self.waiting += 1
        try:
            queued = self._turn.locked()
            async with self._turn:
                if queued and await gone():
                    raise ClientGoneError
                producer, memory = await self._slot(frame, deadline_ns, gone)
                copy_pieces(frame.pieces, memory)
                return self._expect(producer.publish(captured_ns), deadline_ns)
        finally:
            self.waiting -= 1

    async def _slot(
        self, frame: RequestFrame, deadline_ns: int, gone: Callable[[], Awaitable[bool]]
    ) -> tuple[RingProducer, memoryview]:
        """A free slot's memory; it must be filled and published before anything is awaited."""
        while True:
            producer = self._fitting(frame)
            memory = producer.try_acquire(frame.format)
            if memory is not None:
                return producer, memory
            if await gone():
                raise ClientGoneError
            left_s = (deadline_ns - self._clock.monotonic_ns()) / 1e9
            if left_s <= 0:
                raise not_now(
                    f"no slot came free in time; {self.waiting} requests wait for one",
                    cure="send fewer at once",
                )
            await self._wait_for_space(producer, min(left_s, LOOK_EVERY_S))

    def _fitting(self, frame: RequestFrame) -> RingProducer:
        producer = self._producer
        if producer is None:
            raise not_now(self.closed or "no model takes frames yet", cure="see /readyz")
        if not producer.fits(frame.format.frame_bytes):
            raise not_now("the ring of frames was replaced by a smaller one meanwhile")
        return producer

    async def _wait_for_space(self, producer: RingProducer, timeout_s: float) -> None:
        self._space.clear()
        try:
            if producer.about_to_wait():
                await asyncio.wait_for(self._space.wait(), timeout_s)
        except asyncio.TimeoutError:
            return
        finally:
            if producer is self._producer:
                producer.waited()

    def _expect(self, seq: int, deadline_ns: int) -> asyncio.Future[Result]:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        self._pending[seq] = outcome
        left_s = max(0.0, (deadline_ns - self._clock.monotonic_ns()) / 1e9)
        timer = loop.call_later(left_s, self._expire, seq)
        outcome.add_done_callback(lambda _: self._forget(seq, timer))
        return outcome

    def _expire(self, seq: int) -> None:
        outcome = self._pending.get(seq)
        if outcome is not None and not outcome.done():
            outcome.set_exception(
                RequestRefusedError(504, "the model gave no answer in time", retry_after_s=1.0)
            )

    def _forget(self, seq: int, timer: asyncio.TimerHandle) -> None:
        """Also when the client's task was cancelled: the slot is given back by the worker."""
        timer.cancel()
        self._pending.pop(seq, None)
