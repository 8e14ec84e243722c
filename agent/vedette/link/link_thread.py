"""The thread `link`: drives the link, and dies loudly."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from vedette.link.device_link import STOP_WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.link.device_link import DeviceLink

LONGEST_TURN_S = 1.0


class LinkThread(threading.Thread):
    """Runs a link until `stop`; `crash` is what ended it otherwise, and `ended` is called then."""

    def __init__(self, link: DeviceLink, *, ended: Callable[[], None] = lambda: None) -> None:
        super().__init__(name="link", daemon=True)
        self.link = link
        self.crash: BaseException | None = None
        self._ended = ended
        self._stopping = threading.Event()

    def run(self) -> None:
        """Drive it; in the end it says goodbye."""
        try:
            self.link.open()
            while not self._stopping.is_set():
                self.link.turn(LONGEST_TURN_S)
            self.link.close()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the supervisor must hear of it
            self.crash = error
        finally:
            self._ended()

    def stop(self) -> bool:
        """End it after a goodbye; False when that took too long, and it dies with the process."""
        self._stopping.set()
        self.link.wake()
        if self.ident is not None:
            self.join(2.5 * STOP_WAIT_S)
        return not self.is_alive()
