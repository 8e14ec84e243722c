"""How many bytes of request bodies may be in memory at once. Pure."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from vedette.api.refusal import not_now

if TYPE_CHECKING:
    from collections.abc import Iterator


class Admission:
    """A bound in bytes over all requests; who does not get in is told so at once."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self.held_bytes = 0

    @contextlib.contextmanager
    def room(self) -> Iterator[Share]:
        """A share that may grow, and is given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            self.give_back(share.held_bytes)

    def take(self, size_bytes: int) -> None:
        """Count bytes in.

        Raises:
            RequestRefusedError: 503: they do not fit just now.
        """
        if not self.try_take(size_bytes):
            raise not_now(
                f"requests with {self.held_bytes} bytes are waiting, {self._capacity_bytes} is the most",
                cure="send fewer at once",
            )

    def try_take(self, size_bytes: int) -> bool:
        """Count bytes in, if they fit just now."""
        if self.held_bytes + size_bytes > self._capacity_bytes:
            return False
        self.held_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """What was taken is free again."""
        self.held_bytes -= size_bytes


class Share:
    """What one request holds."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.held_bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        """Hold so many bytes from now on; a share never shrinks.

        Raises:
            RequestRefusedError: 503: they do not fit just now.
        """
        more_bytes = size_bytes - self.held_bytes
        if more_bytes > 0:
            self._admission.take(more_bytes)
            self.held_bytes = size_bytes
