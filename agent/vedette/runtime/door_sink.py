"""What becomes of the HTTP door's frames, and what the other cameras saw, on its way to the door's process.

Belongs to the results thread, which never waits for the door. An outcome that the door has no room for waits
here, in a bound of bytes; what is only for looking at is dropped instead.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from vedette.api.door_messages import DOOR, Answers, Seen
from vedette.errors import BadInputError
from vedette.frame.channel import PeerGoneError
from vedette.wire.causes import DropCause
from vedette.wire.messages import Failure, ModelRef, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.clock import Clock
    from vedette.frame.channel import Channel

MAX_WAITING_BYTES = 8 << 20
SEEN_EVERY_S = 0.1
MAX_SEEN = 256
NO_MODEL = ModelRef("", "", "")
_WORDS = {
    DropCause.NO_WORKER: "no engine worker was ready for it",
    DropCause.SHUTDOWN: "the agent is ending",
}


class DoorSink:
    """Hands outcomes to whichever process is the door; those of nobody's frames reach nobody."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._encoder = msgspec.msgpack.Encoder()
        self._channel: Channel[None] | None = None
        self._since_seq = 0
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._seen: deque[Result] = deque(maxlen=MAX_SEEN)
        self._seen_ns = 0

    def connect(self, channel: Channel[None], since_seq: int) -> None:
        """A new process is the door; frames up to `since_seq` were those of one before it."""
        self.close()
        self._channel, self._since_seq = channel, since_seq

    def close(self) -> None:
        """Nobody is the door any more; what waited for it is lost with those who asked."""
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._waiting.clear()
        self._waiting_bytes = 0
        self._seen.clear()

    # Outcomes of its own frames ---------------------------------------------------------------------------

    def deliver(self, result: Result) -> bool:
        """Hand an answer or a failure over; False when whoever asked is gone, or the door takes nothing."""
        if self._channel is None or result.seq <= self._since_seq:
            return False
        # The worker's own message was larger, and it fitted.
        return self._post(self._encoder.encode(Answers((result,))))

    def dropped(self, first_seq: int, last_seq: int, cause: DropCause) -> None:
        """Say that these frames will have no answer."""
        now_ns = self._clock.monotonic_ns()
        for seq in range(max(first_seq, self._since_seq + 1), last_seq + 1):
            failure = Failure(cause.value, _WORDS.get(cause, ""))
            self.deliver(Result(1, DOOR, seq, now_ns, NO_MODEL, "", failed=failure))

    def _post(self, payload: bytes) -> bool:
        if self._waiting_bytes + len(payload) > MAX_WAITING_BYTES:
            return False
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        self.flush()
        return self._channel is not None

    @property
    def blocked_fd(self) -> int:
        """The descriptor that will say when the door takes more; -1 while nothing waits."""
        return self._channel.fileno() if self._waiting and self._channel is not None else -1

    def flush(self) -> None:
        """Send what waits, as far as the door takes it."""
        while self._waiting and self._channel is not None:
            try:
                if not self._channel.send_bytes(self._waiting[0]):
                    return
            except PeerGoneError:
                self.close()
                return
            self._waiting_bytes -= len(self._waiting.popleft())

    # What the others saw ----------------------------------------------------------------------------------

    def add(self, result: Result) -> None:
        """A result of any camera that was accounted for."""
        if self._channel is not None and result.camera != DOOR:
            self._seen.append(msgspec.structs.replace(result, tensors=UNSET) if result.tensors else result)

    def show(self) -> None:
        """Tell the pages what was seen since, now and then; the newest of it, where not all has room."""
        if not self._seen or self._channel is None or self._waiting:
            return
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._seen_ns < SEEN_EVERY_S * 1e9:
            return
        self._seen_ns = now_ns
        results = list(self._seen)
        self._seen.clear()
        try:
            while results and not self._fits(results):
                results = results[(len(results) + 1) // 2 :]
        except PeerGoneError:
            self.close()

    def _fits(self, results: Sequence[Result]) -> bool:
        """Send them; False when they are too much for one message, True also when they were dropped."""
        if self._channel is None:
            return True
        try:
            self._channel.send(Seen(tuple(results)))
        except BadInputError:
            return False
        return True
