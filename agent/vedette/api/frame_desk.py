"""The door's ring: requests go in as frames, and outcomes come back by their sequence number.

One event loop owns it. A request waits for a free slot behind those that came before it, or is lent one that
its body is read into while nobody waits; what became of it is told once, and to nobody when the client has
gone or its time was over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from vedette.api.body import copy_pieces
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.frame.producer import RingProducer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from vedette.api.request_frames import RequestFrame
    from vedette.clock import Clock
    from vedette.frame.producer import SlotLoan
    from vedette.frame.ring import Ring
    from vedette.wire.messages import Result
    from vedette.wire.pixels import FrameFormat

    Tell = Callable[["Result | RequestRefusedError"], None]

# How often a request that waits for a slot looks whether its client is still there.
LOOK_EVERY_S = 0.25


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class Loan(NamedTuple):
    """A slot of a ring, to be filled."""

    producer: RingProducer
    slot: SlotLoan


class _Waiting(NamedTuple):
    tell: Tell
    timer: asyncio.TimerHandle


class FrameDesk:
    """Puts frames into the ring and hands outcomes out; `closed` says why it takes none, where it knows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ring: Ring | None = None
        self._producer: RingProducer | None = None
        self._space = asyncio.Event()
        self._turn = asyncio.Lock()
        self._pending: dict[int, _Waiting] = {}
        self.closed = ""
        self.waiting = 0
        self.unclaimed = 0

    @property
    def lent(self) -> bool:
        """There is a ring to put frames into."""
        return self._producer is not None

    def check_lent(self) -> None:
        """Refuse what there is no ring for.

        Raises:
            RequestRefusedError: 503.
        """
        if self._producer is None:
            raise not_now(self.closed or "no model takes frames yet", cure="see /readyz")

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
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def tell(what: Result | RequestRefusedError) -> None:
            if isinstance(what, RequestRefusedError):
                outcome.set_exception(what)
            else:
                outcome.set_result(what)

        seq = await self._publish(frame, captured_ns, deadline_ns, gone, tell)
        try:
            return await outcome
        finally:  # also when the client's task was cancelled: the slot is given back by the worker
            self.forget(seq)

    def lend(self, size_bytes: int) -> Loan | None:
        """A slot for a body that comes bit by bit; None: not now, or it has no room for so many bytes.

        Slow bodies never have more than half of the slots, and nobody who waits is overtaken.
        """
        producer = self._producer
        if producer is None or self._turn.locked() or not producer.fits(size_bytes):
            return None
        if self._ring is None or producer.lent >= self._ring.geometry.slots // 2:
            return None
        slot = producer.lend()
        return None if slot is None else Loan(producer, slot)

    def take_back(self, loan: Loan) -> None:
        """The body did not come, or was no frame."""
        loan.producer.take_back(loan.slot)
        self._space.set()

    def publish(
        self, loan: Loan, frame_format: FrameFormat, *, captured_ns: int, deadline_ns: int, tell: Tell
    ) -> int:
        """Hand a filled slot in; what becomes of it is told once.

        Returns:
            Its number, for `forget`.

        Raises:
            RequestRefusedError: 503: the ring was replaced or taken away meanwhile.
        """
        if loan.producer is not self._producer:
            loan.producer.take_back(loan.slot)
            raise not_now(self.closed or "the ring of frames was replaced meanwhile")
        seq = loan.producer.publish_loan(loan.slot, frame_format, captured_ns)
        self._expect(seq, deadline_ns, tell)
        return seq

    def forget(self, seq: int) -> None:
        """Nobody waits for this frame any more."""
        waiting = self._pending.pop(seq, None)
        if waiting is not None:
            waiting.timer.cancel()

    def answered(self, results: Sequence[Result]) -> None:
        """Outcomes from the daemon; one that nobody waits for is counted and forgotten."""
        for result in results:
            waiting = self._pending.pop(result.seq, None)
            if waiting is None:
                self.unclaimed += 1
            else:
                waiting.timer.cancel()
                waiting.tell(result)

    def close(self, why: str) -> None:
        """Take no further frame; who waits is told."""
        self.closed = why
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            waiting.timer.cancel()
            waiting.tell(not_now(why))
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
        self,
        frame: RequestFrame,
        captured_ns: int,
        deadline_ns: int,
        gone: Callable[[], Awaitable[bool]],
        tell: Tell,
    ) -> int:
        self.waiting += 1
        try:
            queued = self._turn.locked()
            async with self._turn:
                if queued and await gone():
                    raise ClientGoneError
                producer, memory = await self._slot(frame, deadline_ns, gone)
                copy_pieces(frame.pieces, memory)
                seq = producer.publish(captured_ns)
                self._expect(seq, deadline_ns, tell)
                return seq
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
        self.check_lent()
        producer = self._producer
        if producer is None or not producer.fits(frame.format.frame_bytes):
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

    def _expect(self, seq: int, deadline_ns: int, tell: Tell) -> None:
        left_s = max(0.0, (deadline_ns - self._clock.monotonic_ns()) / 1e9)
        timer = asyncio.get_running_loop().call_later(left_s, self._expire, seq)
        self._pending[seq] = _Waiting(tell, timer)

    def _expire(self, seq: int) -> None:
        waiting = self._pending.pop(seq, None)
        if waiting is not None:
            waiting.tell(RequestRefusedError(504, "the model gave no answer in time", retry_after_s=1.0))
