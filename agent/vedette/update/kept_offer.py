"""The offer of the update under way, on disk: after a restart nobody need be asked again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from vedette import fsops
from vedette.errors import storage_fault
from vedette.fsops import Point
from vedette.trust.offer import Offer

if TYPE_CHECKING:
    from pathlib import Path

_DIGEST_CHARS = 64


class KeptOffer:
    """One file: the SHA-256 of what follows, then the offer as JSON.

    It was verified when it came; from then on the digest guards it against the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, offer: Offer) -> None:
        """Keep an offer in place of the one before; durable when this returns.

        Raises:
            StorageError: The disk refuses.
        """
        payload = msgspec.json.encode(offer)
        digest = hashlib.sha256(payload).hexdigest().encode("ascii")
        try:
            fsops.write_durable(self._path, digest + b"\n" + payload, Point.TRUST)
        except OSError as error:
            raise storage_fault(error, f"{self._path} cannot be written") from error

    def read(self) -> Offer | None:
        """The offer; None when there is none, or it is damaged."""
        try:
            content = self._path.read_bytes()
        except OSError:
            return None
        digest, payload = content[:_DIGEST_CHARS], content[_DIGEST_CHARS + 1 :]
        if hashlib.sha256(payload).hexdigest().encode("ascii") != digest:
            return None
        try:
            return msgspec.json.decode(payload, type=Offer)
        except msgspec.DecodeError:  # of another agent's version
            return None
