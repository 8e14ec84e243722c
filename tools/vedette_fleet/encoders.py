"""The encoders of real releases, behind the port of `release_files`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette_fleet.delta import encode_delta, encode_full

if TYPE_CHECKING:
    from vedette.wire.release import Codec


class SmallestEncoder:
    """Whatever codec gives the fewest bytes."""

    def full(self, new: bytes) -> tuple[Codec, bytes]:
        """A blob that stands alone."""
        return encode_full(new)

    def delta(self, old: bytes, new: bytes) -> tuple[Codec, bytes]:
        """The smallest blob that makes `new` of `old`."""
        return encode_delta(old, new)
