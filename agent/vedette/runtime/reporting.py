"""The thread `report`: tells the fleet how this box does, and what happened on it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.clock import Clock
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.status import StatusDesk

LONGEST_WAIT_S = 0.5
STOP_WAIT_S = 1.0


class Duty(Protocol):
    """Something that is looked after on this thread."""

    def turn(self, now_ns: int) -> None:
        """Do what is due, at a monotonic time; whatever fails is tried again in a later turn."""
        ...

    def last_look(self, daemon: Daemon, now_ns: int) -> None:
        """The agent ends: see what the last turn will need; on the supervisor's thread, when it still can."""
        ...

    def finish(self, now_ns: int) -> None:
        """The last turn; it must not take long."""
        ...


class ReportThread(threading.Thread):
    """Gives each duty its turn until `stop`; `crash` is what ended it otherwise; `ended` is called then."""

    def __init__(
        self,
        duties: Sequence[Duty],
        *,
        daemon: Daemon,
        desk: StatusDesk,
        clock: Clock,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name="report", daemon=True)
        self.crash: BaseException | None = None
        self._duties = duties
        self._agent = daemon
        self._desk = desk
        self._clock = clock
        self._ended = ended
        self._stopping = threading.Event()
        self._awake = threading.Event()

    def run(self) -> None:
        """Take turns; an error here is our bug and ends the agent."""
        try:
            while not self._stopping.is_set():
                self._awake.clear()
                for duty in self._duties:
                    duty.turn(self._clock.monotonic_ns())
                self._awake.wait(LONGEST_WAIT_S)
            for duty in self._duties:
                duty.finish(self._clock.monotonic_ns())
        except BaseException as error:  # noqa: BLE001 - whatever it was, the supervisor must hear of it
            self.crash = error
        finally:
            self._ended()

    def wake(self) -> None:
        """Take a turn now; any thread."""
        self._awake.set()

    def stop(self) -> bool:
        """End it after a last turn; on the supervisor's thread. False when that did not end in time."""
        if self.ident is None:
            return True
        if self.is_alive():
            for duty in self._duties:
                duty.last_look(self._agent, self._clock.monotonic_ns())
        self._desk.close()  # this very thread answers there, and a turn under way must not wait for it
        self._stopping.set()
        self._awake.set()
        self.join(STOP_WAIT_S)
        return not self.is_alive()
