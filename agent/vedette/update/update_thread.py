"""The thread `update`: drives the driver, sleeps in between, and dies loudly."""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update.driver import UpdateDriver
    from vedette.update.jobs import Wait

LONGEST_SLEEP_S = 60.0
STOP_WAIT_S = 1.0  # the whole daemon promises to end within three seconds


class UpdateThread(threading.Thread):
    """Runs a driver until `stop`; `crash` is what ended it otherwise, and `ended` is called then."""

    def __init__(self, driver: UpdateDriver, *, ended: Callable[[], None] = lambda: None) -> None:
        super().__init__(name="update", daemon=True)
        self.driver = driver
        self.crash: BaseException | None = None
        self._ended = ended
        self._stopping = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        driver.mailbox.wake = self._poke

    def run(self) -> None:
        """Drive; the driver's children die with this thread, so it lives as long as the agent."""
        try:
            self.driver.start()
            while not self._stopping.is_set():
                self._sleep(self.driver.run_once())
        except BaseException as error:  # noqa: BLE001 - whatever it was, the supervisor must hear of it
            self.crash = error
        finally:
            self.driver.close()
            self._ended()

    def stop(self) -> bool:
        """End it; False when it did not in time, as while a disk is slow: it dies with the process."""
        self._stopping.set()
        self.driver.leave()
        self._poke()
        if self.ident is not None:
            self.join(STOP_WAIT_S)
        return not self.is_alive()

    def _poke(self) -> None:
        os.eventfd_write(self._wake, 1)

    def _sleep(self, wait: Wait) -> None:
        if wait.seconds <= 0:
            return
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if wait.fd is not None:
            poll.register(wait.fd, select.POLLIN)
        ready = poll.poll(min(wait.seconds, LONGEST_SLEEP_S) * 1000)
        if any(fd == self._wake for fd, _ in ready):
            os.eventfd_read(self._wake)
