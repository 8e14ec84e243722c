"""systemd's notification socket; nothing happens where nobody listens.

The protocol is a datagram of `NAME=value` lines to the socket in $NOTIFY_SOCKET (sd_notify(3)).
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_STATUS_CHARS = 500


class ServiceManager:
    """Whoever started us as a service. One thread owns it; a message that has no room now is not sent."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Find the socket, and how often the watchdog wants to hear of us."""
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_ns = _watchdog_ns(environ)
        self._socket: socket.socket | None = None
        if self._address:
            with contextlib.suppress(OSError):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._socket.settimeout(0.0)

    @property
    def listens(self) -> bool:
        """Somebody wants to be told."""
        return self._socket is not None

    def tell(self, lines: Sequence[str]) -> bool:
        """Send lines together; False where they could not be sent."""
        if self._socket is None or not lines:
            return False
        clean = (line.replace("\n", " ")[:MAX_STATUS_CHARS] for line in lines)
        try:
            self._socket.sendto("\n".join(clean).encode(), self._address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _address(name: str) -> str:
    """A path, or a name in the abstract namespace, which is written with `@`."""
    if name.startswith("@"):
        return f"\0{name[1:]}"
    return name if name.startswith("/") else ""


def _watchdog_ns(environ: Mapping[str, str]) -> int:
    """How long it may hear nothing of this process; 0: there is no watchdog, or it is another's."""
    whose = environ.get("WATCHDOG_PID", "")
    if whose and whose != str(os.getpid()):
        return 0
    limit = environ.get("WATCHDOG_USEC", "")
    return int(limit) * 1000 if limit.isdecimal() else 0
