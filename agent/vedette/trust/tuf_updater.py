"""python-tuf's client, hardened against power cuts, lost caches and wrong clocks.

What it does not do by itself (measured on 7.0.1): it renames without a sync, forgets its rollback protection
with its cache, believes a clock at 1970, and walks whatever delegations it finds. Here its cache is written
durably, each version is held against the marks, time has a floor, and only two roles are ever looked into.
The methods overridden are private to python-tuf: `REQUIRED` names them, a version without one is refused.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from tuf.api import exceptions
from tuf.ngclient import FetcherInterface, Updater, UpdaterConfig

from vedette import fsops
from vedette.errors import InternalError, NotFoundError
from vedette.trust.marks import check_role, check_root, check_snapshot, under_keys
from vedette.trust.time_floor import parse_issued

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuf.api.metadata import MetaFile, TargetFile

    from vedette.trust.marks import Marks
    from vedette.trust.offer import MetadataSource

METADATA_FOLDER = "metadata"
MAX_ROLE_BYTES = 5_000_000
REQUIRED = (
    "_load_root",
    "_load_timestamp",
    "_load_snapshot",
    "_load_targets",
    "_persist_file",
    "_persist_metadata",
    "_persist_root",
    "_update_root_symlink",
)
_CONFIG = UpdaterConfig(
    max_root_rotations=256,
    max_delegations=1,
    root_max_length=512_000,
    timestamp_max_length=16_384,
    snapshot_max_length=2_000_000,
    targets_max_length=MAX_ROLE_BYTES,
)


class _SourceFetcher(FetcherInterface):
    """Our fetch port as python-tuf wants it; "not found" becomes the 404 that ends its walk over roots."""

    def __init__(self, source: MetadataSource) -> None:
        self._source = source

    def _fetch(self, url: str) -> Iterator[bytes]:
        return self._source.metadata(unquote(url), MAX_ROLE_BYTES)

    def download_bytes(self, url: str, max_length: int) -> bytes:
        """The whole file, in memory and bounded.

        Raises:
            DownloadLengthMismatchError: More came than may.
            DownloadHTTPError: 404, it is not there.
            UnavailableError: As the source raised it.
        """
        content = bytearray()
        path = unquote(url)
        try:
            for piece in self._source.metadata(path, max_length):
                content += piece
                if len(content) > max_length:
                    raise exceptions.DownloadLengthMismatchError(
                        f"{path} goes on after the {max_length} bytes it may have"
                    )
        except NotFoundError as error:
            raise exceptions.DownloadHTTPError(error.cause, 404) from error
        return bytes(content)


class HardenedUpdater(Updater):
    """One refresh of one repository against marks; use once.

    `reference_utc_s` gives the time that expiry is judged by, from the marks that count under the root found.
    `accept_older`: an older timestamp gives way to the cached one, for a stick that lay around.
    """

    def __init__(
        self,
        source: MetadataSource,
        cache: Path,
        bootstrap: bytes,
        *,
        marks: Marks,
        reference_utc_s: Callable[[Marks], float],
        accept_older: bool = False,
    ) -> None:
        missing = [name for name in REQUIRED if not hasattr(Updater, name)]
        if missing:
            raise InternalError(
                f"this python-tuf has no {', '.join(missing)}; its checks cannot be hardened",
                cure="install tuf 7.0",
            )
        self.marks = marks
        self.issued_utc_s: int | None = None
        self._cache = cache
        self._accept_older = accept_older
        self._reference_utc_s = reference_utc_s
        super().__init__(
            str(cache), METADATA_FOLDER, fetcher=_SourceFetcher(source), config=_CONFIG, bootstrap=bootstrap
        )

    @property
    def root_version(self) -> int:
        """Version of the root that everything was verified under."""
        return self._trusted_set.root.version

    def versions(self) -> dict[str, int]:
        """Timestamp, snapshot and every targets role that the snapshot lists."""
        listed = {name: meta.version for name, meta in self._listed().items()}
        return {
            **listed,
            "timestamp": self._trusted_set.timestamp.version,
            "snapshot": self._trusted_set.snapshot.version,
        }

    def find_target(self, role: str, path: str) -> TargetFile | None:
        """A target, from the one role that may name it and that the top level delegates to itself.

        No other role is asked and no delegation is followed further. None when the role is not delegated, may
        not name the path, or does not.

        Raises:
            RepositoryError: The role's metadata was refused.
        """
        delegations = self._trusted_set.targets.delegations
        delegated = None if delegations is None or delegations.roles is None else delegations.roles.get(role)
        if delegated is None or not delegated.is_delegated_path(path):
            return None
        return self._load_targets(role, "targets").targets.get(path)

    def _load_root(self) -> None:
        super()._load_root()
        root = self._trusted_set.root
        check_root(self.marks, root.version)
        roles = (root.roles["timestamp"], root.roles["snapshot"])
        keyids = tuple(sorted({keyid for role in roles for keyid in role.keyids}))
        before, self.marks = self.marks, under_keys(self.marks, keyids)
        if self.marks.epoch != before.epoch:
            for name in ("timestamp.json", "snapshot.json"):
                if (self._cache / name).exists():
                    fsops.unlink(self._cache / name, fsops.Point.TRUST)
        # Judged after the reset: a floor that the old keys pushed into the future must not outlive them.
        self._trusted_set.reference_time = datetime.fromtimestamp(
            self._reference_utc_s(self.marks), timezone.utc
        )

    def _load_timestamp(self) -> None:
        try:
            super()._load_timestamp()
        except exceptions.BadVersionNumberError:
            if not self._accept_older:
                raise
        timestamp = self._trusted_set.timestamp
        if timestamp.is_expired(self._trusted_set.reference_time):
            raise exceptions.ExpiredMetadataError(f"timestamp version {timestamp.version} is expired")
        check_role(self.marks, "timestamp", timestamp.version)
        check_role(self.marks, "snapshot", timestamp.snapshot_meta.version)
        self.issued_utc_s = parse_issued(
            timestamp.unrecognized_fields.get("issued"), expires=timestamp.expires
        )
        if self.issued_utc_s is not None:
            signed_at = datetime.fromtimestamp(self.issued_utc_s, timezone.utc)
            self._trusted_set.reference_time = max(self._trusted_set.reference_time, signed_at)

    def _load_snapshot(self) -> None:
        super()._load_snapshot()
        check_role(self.marks, "snapshot", self._trusted_set.snapshot.version)
        check_snapshot(self.marks, {name: meta.version for name, meta in self._listed().items()})

    def _listed(self) -> dict[str, MetaFile]:
        return {name.removesuffix(".json"): meta for name, meta in self._trusted_set.snapshot.meta.items()}

    def _persist_metadata(self, rolename: str, data: bytes) -> None:
        # Held against the marks before it is kept, or a refused replay would stand in the cache.
        check_role(self.marks, rolename, self._trusted_set[rolename].version)
        super()._persist_metadata(rolename, data)

    def _persist_root(self, version: int, data: bytes) -> None:
        folder = self._cache / "root_history"
        if not folder.is_dir():
            fsops.make_folder(folder, fsops.Point.TRUST)
        self._persist_file(str(folder / f"{version}.root.json"), data)

    def _persist_file(self, filename: str, data: bytes) -> None:
        path = Path(filename)
        with contextlib.suppress(OSError):  # not there, or unreadable and so replaced
            if path.read_bytes() == data:
                return
        fsops.write_durable(path, data, fsops.Point.TRUST)

    def _update_root_symlink(self) -> None:
        """Nothing: the link is not atomic, and nobody reads it when the first root comes with the package."""
