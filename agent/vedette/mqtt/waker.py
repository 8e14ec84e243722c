"""A descriptor that any thread can make readable, to end another thread's wait for the network."""

from __future__ import annotations

import contextlib
import select
import socket


class Waker:
    """A pair of sockets; `wake` is safe from any thread, also after `close`."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.settimeout(0.0)
        self._writer.settimeout(0.0)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Make it readable; waking twice is waking once."""
        with contextlib.suppress(OSError):  # full: it is readable already; closed: nobody waits any more
            self._writer.send(b"\0")

    def drain(self) -> None:
        """Make it unreadable again."""
        with contextlib.suppress(OSError):
            while self._reader.recv(4096):
                pass

    def wait(self, timeout_s: float) -> bool:
        """Wait for a wake, and take it; False when none came in time."""
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        if not poll.poll(max(0.0, timeout_s) * 1e3):
            return False
        self.drain()
        return True

    def close(self) -> None:
        """Give both ends back."""
        self._reader.close()
        self._writer.close()
