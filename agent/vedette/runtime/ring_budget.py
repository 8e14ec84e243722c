"""How much memory the frame rings may take together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.errors import ConfigError
from vedette.frame.layout import MAX_RING_BYTES

if TYPE_CHECKING:
    from vedette.frame.layout import RingGeometry


class RingBudget:
    """The memory that all rings together may take.

    What cameras leave may be lent to somebody who can do without: a camera that needs it gets it back.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used: dict[str, int] = {}
        self.lent_bytes = 0

    def reserve(self, camera: str, geometry: RingGeometry) -> None:
        """Set the memory of a camera's ring aside.

        Raises:
            ConfigError: It is over the limit; the message says how much would be needed.
        """
        others = sum(used for name, used in self._used.items() if name != camera)
        needed = geometry.total_bytes
        if needed > MAX_RING_BYTES or others + needed > self._limit_bytes:
            raise ConfigError(
                f"camera {camera}: its frame ring needs {needed:,} bytes ({geometry.slots} slots of "
                f"{geometry.slot_bytes:,}); {max(0, self._limit_bytes - others):,} of the "
                f"{self._limit_bytes:,} bytes for rings are free",
                cure=f"set limits.ring_memory to at least {others + needed}B (pipe: --ring-memory), or use "
                "fewer slots (pipe: --slots)",
            )
        self._used[camera] = needed
        if others + needed + self.lent_bytes > self._limit_bytes:
            self.lent_bytes = 0

    def lend(self, needed_bytes: int) -> bool:
        """Lend memory that no camera uses, in place of what was lent before; False: there is too little."""
        if sum(self._used.values()) + needed_bytes > self._limit_bytes:
            return False
        self.lent_bytes = needed_bytes
        return True

    def take_back(self) -> None:
        """What was lent is free again."""
        self.lent_bytes = 0

    def release(self, camera: str) -> None:
        """Give a camera's memory back."""
        self._used.pop(camera, None)
