"""What trust hands out, and where it reads. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from vedette.wire.release import ReleaseManifest
from vedette.wire.rollout import Rollout

if TYPE_CHECKING:
    from collections.abc import Iterator


class Offer(msgspec.Struct, frozen=True):
    """What both roles agree on for this device: the newest rollout that concerns it, and its release.

    `counter` is the rollout document's; `manifest_sha256` the digest both roles named. Counters of another
    `epoch` cannot be compared: the keys that could have inflated them were replaced.
    """

    counter: int
    rollout: Rollout
    manifest: ReleaseManifest
    manifest_sha256: str
    epoch: int = 0


class MetadataSource(Protocol):
    """The part of a fetcher that trust needs; paths are relative to the repository's folder."""

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """Pieces of a small file: `metadata/3.root.json`, `metadata/5.models-acme.json`, `targets/…`.

        It may stop once more than `max_bytes` came; the caller counts.

        Raises:
            NotFoundError: It does not exist (HTTP 404 or 403).
            UnavailableError: Anything else.
        """
        ...
