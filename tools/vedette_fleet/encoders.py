"""The encoders of real releases, behind the port of `release_files`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette_fleet.delta import encode_delta, encode_full
from vedette_fleet.delta.tensor_delta import UnsuitableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.wire.release import Codec


class SmallestEncoder:
    """Whatever codec gives the fewest bytes; `say` is told what could not be tried."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def full(self, new: bytes) -> tuple[Codec, bytes]:
        """A blob that stands alone."""
        return encode_full(new)

    def delta(self, old: bytes, new: bytes) -> tuple[Codec, bytes] | None:
        """The smallest blob that makes `new` of `old`; None when no codec can within a device's memory."""
        try:
            return encode_delta(old, new, say=self._say)
        except UnsuitableError as error:
            self._say(f"no delta: {error.cause}")
            return None
