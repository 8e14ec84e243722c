"""A question with at most one more try, and only where the answer can still be there in time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from vedette.escalate.port import CloudError
from vedette.escalate.status import may_ask_again

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.clock import Clock
    from vedette.escalate.port import CloudAnswer, CloudClient, Question

WINDOW = 64
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 0.4


class RoundTrips:
    """How long the last answers took."""

    def __init__(self) -> None:
        self._order: deque[float] = deque(maxlen=WINDOW)

    def add(self, took_s: float) -> None:
        """An answer came."""
        self._order.append(took_s)

    def quantile(self, share: float) -> float:
        """Seconds; 0 before the first answer."""
        ordered = sorted(self._order)  # in one step: other threads add to it meanwhile
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


class Asking:
    """Asks by a client; `sleep` waits, `draw` gives a random number in [0, 1). Several threads may ask."""

    def __init__(
        self,
        client: CloudClient,
        clock: Clock,
        *,
        sleep: Callable[[float], None],
        draw: Callable[[], float],
    ) -> None:
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._draw = draw
        self.trips = RoundTrips()

    def ask(self, question: Question, deadline_s: float) -> CloudAnswer:
        """Ask; once more where that makes sense and the usual answer would still come in time.

        Raises:
            CloudError: Why there is no usable answer; of two tries the second one's.
        """
        try:
            return self._once(question, deadline_s)
        except CloudError as error:
            pause_s = error.retry_after_s
            if pause_s is None:
                pause_s = PAUSE_MIN_S + (PAUSE_MAX_S - PAUSE_MIN_S) * self._draw()
            left_s = deadline_s - self._clock.monotonic_ns() / 1e9
            in_time = left_s > pause_s + self.trips.quantile(0.9)
            if not in_time or not may_ask_again(error.fault, final=error.final):
                raise
        self._sleep(pause_s)
        return self._once(question, deadline_s)

    def _once(self, question: Question, deadline_s: float) -> CloudAnswer:
        answer = self._client.ask(question, deadline_s)
        self.trips.add(answer.took_s)
        return answer
