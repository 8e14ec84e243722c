"""Inference requests in binary form on the short way: from the socket into the frame ring, without ASGI.

A body's tensor is received into the slot that the engine will read, once the JSON before it has said what it
is; the answer is written as soon as the daemon tells it. Everything unusual, and every error that is known
before the body, takes the long way through the same `InferenceService`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette.api.body import Body
from vedette.api.frame_desk import ClientGoneError
from vedette.api.http_answer import error_answer, refusal_answer
from vedette.api.inference import check_type
from vedette.api.oip import LENGTH_HEADER
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.api.request_head import END, PREFIX
from vedette.errors import VedetteError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from vedette.api.admission import Admission
    from vedette.api.burst_reader import BurstReader
    from vedette.api.frame_desk import FrameDesk, Loan
    from vedette.api.guard import Guard
    from vedette.api.http_answer import HttpAnswer
    from vedette.api.inference import Asked, InferenceService
    from vedette.api.request_head import HeadReader, RequestHead
    from vedette.api.traffic import Traffic
    from vedette.clock import Clock
    from vedette.wire.messages import Result
    from vedette.wire.pixels import FrameFormat

    Reply = Callable[[HttpAnswer], None]

MAX_JSON_BYTES = 64 << 10
MAX_OPENINGS = 64
_ENDING = "/infer"


class QuickParts(NamedTuple):
    """What the short way shares with the long one."""

    service: InferenceService
    desk: FrameDesk
    admission: Admission
    guard: Guard
    traffic: Traffic
    burst: BurstReader
    clock: Clock
    request_timeout_s: float
    body_pause_s: float
    max_body_bytes: int


class Opening(NamedTuple):
    """What a head says: of which model and how much is asked."""

    name: str
    version: str
    header_length: str
    json_bytes: int
    body_bytes: int


class QuickInference:
    """Takes the requests that it can; one event loop owns it."""

    def __init__(self, parts: QuickParts, heads: HeadReader, loop: asyncio.AbstractEventLoop) -> None:
        self.parts = parts
        self.loop = loop
        self._heads = heads
        self._openings: dict[bytes, Opening] = {}

    def begin(self, data: bytes, reply: Reply) -> tuple[Exchange, int] | None:
        """An exchange that takes the body of the request that `data` begins, and the size of its head.

        Returns:
            None for what takes the long way.
        """
        if not data.startswith(PREFIX):
            return None
        packed = data[: data.find(END) + len(END)]
        opening = self._openings.get(packed) or self._open(packed)
        if opening is None:
            return None
        asked = self.parts.service.asked_now(opening.name, opening.version, opening.header_length)
        if asked is None or not self.parts.admission.try_take(opening.json_bytes):
            return None
        return Exchange(self, asked, opening, reply), len(packed)

    def _open(self, packed: bytes) -> Opening | None:
        """Read a head, and remember it: a client sends the same one again and again."""
        head = self._heads.read(packed)
        if head is None:
            return None
        try:
            self.parts.guard.check(head.raw_headers)
            check_type(head.headers)
        except RequestRefusedError:
            return None
        opening = self._opening_of(head)
        if opening is not None:
            if len(self._openings) >= MAX_OPENINGS:
                self._openings.clear()
            self._openings[packed] = opening
        return opening

    def _opening_of(self, head: RequestHead) -> Opening | None:
        names = _model_of(head.path)
        header_length = head.headers.get(LENGTH_HEADER, "")
        json_bytes = _size(header_length)
        if names is None or not 0 < json_bytes <= MAX_JSON_BYTES:
            return None
        if not json_bytes < head.body_bytes <= self.parts.max_body_bytes:
            return None
        return Opening(*names, header_length, json_bytes, head.body_bytes)


class Exchange:
    """One request: `buffer` and `received` take its body in, `reply` is called once, never after `abort`."""

    def __init__(self, quick: QuickInference, asked: Asked, opening: Opening, reply: Reply) -> None:
        self._quick = quick
        self._asked = asked
        self._reply: Reply | None = reply
        self._json = bytearray(opening.json_bytes)
        self._held_bytes = opening.json_bytes
        self._tensor_bytes = opening.body_bytes - opening.json_bytes
        self._memory = memoryview(self._json)
        self._at = 0
        self._body = Body()
        self._loan: Loan | None = None
        self._format: FrameFormat | None = None
        self._seq = 0
        self._refusal: RequestRefusedError | None = None
        self._task: asyncio.Task[None] | None = None
        self.wants_body = True
        self._came = self._came_before = 0
        self._late_at_s = quick.loop.time() + quick.parts.request_timeout_s
        self._timer = self._look_again()

    # The body ---------------------------------------------------------------------------------------------

    def feed(self, data: memoryview) -> int:
        """Take in what came with the head; how much of it belongs to the body."""
        used = 0
        while self.wants_body and used < len(data):
            target = self.buffer()
            size = min(len(target), len(data) - used)
            target[:size] = data[used : used + size]
            used += size
            self.received(size)
        return used

    def buffer(self) -> memoryview:
        """Where the next bytes go; never more than the body still has."""
        return self._memory[self._at :]

    def received(self, size_bytes: int) -> None:
        """So many bytes were put there."""
        self._at += size_bytes
        self._came += size_bytes
        if self._at < len(self._memory):
            return
        if self._json:
            self._read_json()
        else:
            self._body_is_here()

    def read_on(self, fd: int, *, expected: bool) -> None:
        """Take in what comes at once, from the connection's socket."""
        self._quick.parts.burst.read(fd, self, expected=expected)

    def _read_json(self) -> None:
        """Find room for what follows: a slot where the JSON says that it is a frame as it is."""
        parts = self._quick.parts
        json, self._json, self._at = bytes(self._json), bytearray(), 0
        self._loan = parts.desk.lend(self._tensor_bytes)
        if self._loan is not None:
            self._memory = self._loan.slot.memory[: self._tensor_bytes]
            try:
                self._format = self._asked.frame_format(json, self._memory)
            except RequestRefusedError as refusal:
                self._refusal = refusal
            if self._format is not None and self._format.frame_bytes == self._tensor_bytes:
                return
            parts.desk.take_back(self._loan)
            self._loan = None
        if not parts.admission.try_take(self._tensor_bytes):
            self._answer(refusal_answer(not_now("too many bodies are waiting", cure="send fewer at once")))
            return
        self._held_bytes += self._tensor_bytes
        self._memory = memoryview(bytearray(self._tensor_bytes))
        self._body = Body((json, self._memory))

    def _body_is_here(self) -> None:
        self.wants_body = False
        self._timer.cancel()
        parts = self._quick.parts
        captured_ns = parts.clock.monotonic_ns()
        deadline_ns = captured_ns + round(parts.request_timeout_s * 1e9)
        if self._refusal is not None:
            self._answer(refusal_answer(self._refusal))
        elif self._loan is None:
            self._task = self._quick.loop.create_task(self._the_long_way(captured_ns))
        elif self._format is not None:
            loan, self._loan = self._loan, None
            try:
                self._seq = parts.desk.publish(
                    loan,
                    self._format,
                    captured_ns=captured_ns,
                    deadline_ns=deadline_ns,
                    tell=self._told,
                )
            except RequestRefusedError as refusal:
                self._answer(refusal_answer(refusal))

    def _look_again(self) -> asyncio.TimerHandle:
        """Look at the latest when a body may have been stuck for too long."""
        left_s = self._late_at_s - self._quick.loop.time()
        return self._quick.loop.call_later(min(left_s, self._quick.parts.body_pause_s), self._look_at_body)

    def _look_at_body(self) -> None:
        parts = self._quick.parts
        if self._quick.loop.time() >= self._late_at_s:
            limit_s = parts.request_timeout_s
            self._answer(error_answer(408, f"the body did not come within {limit_s:g} s"))
        elif self._came == self._came_before:
            self._answer(error_answer(408, f"nothing of the body came for {parts.body_pause_s:g} s"))
        else:
            self._came_before = self._came
            self._timer = self._look_again()

    # The answer -------------------------------------------------------------------------------------------

    def _told(self, what: Result | RequestRefusedError) -> None:
        self._seq = 0
        self._answer(self._answer_of(what))

    def _answer_of(self, what: Result | RequestRefusedError) -> HttpAnswer:
        if isinstance(what, RequestRefusedError):
            return refusal_answer(what)
        try:
            return self._asked.answer(what)
        except Exception as error:  # noqa: BLE001 - no client is left without an answer
            return self._error_of(error)

    def _error_of(self, error: Exception) -> HttpAnswer:
        """An answer in any case; our own bug is told to the event loop, too, which logs it."""
        if isinstance(error, RequestRefusedError):
            return refusal_answer(error)
        if isinstance(error, VedetteError):
            return error_answer(500, error.diagnostics())
        self._quick.loop.call_exception_handler({"message": "a request failed", "exception": error})
        return error_answer(500, "an error of the agent's own; see its log")

    async def _the_long_way(self, captured_ns: int) -> None:
        """A picture file, or no slot was free: through memory, and behind those that wait."""
        try:
            answer = self._answer_of(await self._asked.submit(self._body, captured_ns, self._is_gone))
        except ClientGoneError:
            return
        except Exception as error:  # noqa: BLE001 - no client is left without an answer
            answer = self._error_of(error)
        self._answer(answer)

    async def _is_gone(self) -> bool:
        return self._reply is None

    def _answer(self, answer: HttpAnswer) -> None:
        reply = self._end()
        if reply is not None:
            self._quick.parts.traffic.inferred(answer.status)
            reply(answer)

    def abort(self) -> None:
        """The client is gone."""
        if self._end() is not None and self._task is not None:
            self._task.cancel()

    def _end(self) -> Reply | None:
        """Give everything back; whom to tell, once."""
        reply, self._reply = self._reply, None
        if reply is None:
            return None
        parts = self._quick.parts
        self.wants_body = False
        self._timer.cancel()
        if self._loan is not None:
            parts.desk.take_back(self._loan)
            self._loan = None
        if self._seq:
            parts.desk.forget(self._seq)
        parts.admission.give_back(self._held_bytes)
        return reply


def _model_of(path: str) -> tuple[str, str] | None:
    """Name and version of `/v2/models/NAME[/versions/VERSION]/infer`."""
    parts = path.removeprefix("/v2/models/").removesuffix(_ENDING).split("/")
    if not path.endswith(_ENDING):
        return None
    if len(parts) == 3 and parts[1] == "versions" and parts[0] and parts[2]:
        return parts[0], parts[2]
    return (parts[0], "") if len(parts) == 1 and parts[0] else None


def _size(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
