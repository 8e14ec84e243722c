"""Names for people in place of digests."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from vedette.bundle import disk
from vedette.bundle.folder import MAX_SPEC_BYTES, SPEC_NAME, parse_spec
from vedette.errors import BundleError
from vedette.update.kept_offer import KeptOffer
from vedette.wire.plane import ModelState

if TYPE_CHECKING:
    from vedette.update.startup import OpenedState
    from vedette.update.status import UpdateStatus


class ReleaseNames:
    """What people call the bundles in a record: name and version; any thread may ask."""

    def __init__(self, opened: OpenedState) -> None:
        self._opened = opened
        self._kept = KeptOffer(opened.state / f"{opened.name}.offer")
        self._known: dict[str, ModelState] = {}

    def of(self, sha256: str) -> str:
        """`person 3`, or the beginning of the digest where nothing here knows it."""
        model = self.model(sha256)
        return f"{model.name} {model.version}" if model.name else f"{sha256[:12]}…"

    def model(self, sha256: str) -> ModelState:
        """A bundle with name and version; both are empty where nothing here knows them."""
        if sha256 not in self._known:
            found = self._find(sha256)
            if found is None:
                return ModelState("", "", sha256)
            self._known[sha256] = ModelState(*found, sha256)
        return self._known[sha256]

    def learn(self, status: UpdateStatus) -> None:
        """Take over what the record calls releases whose files are gone."""
        named = [status.candidate, status.last_result, *status.blacklist]
        for one in named:
            if one is not None and one.name:
                name, _, version = one.name.rpartition(" ")
                self._known[one.sha256] = ModelState(name, version, one.sha256)

    def of_all(self, status: UpdateStatus) -> dict[str, str]:
        """The names of everything that a status speaks of."""
        self.learn(status)
        named = {
            model.sha256 for model in (status.active, status.previous, status.candidate) if model is not None
        }
        named.update(entry.sha256 for entry in status.blacklist)
        if status.last_result is not None:
            named.update({status.last_result.sha256, status.last_result.serving} - {""})
        return {sha256: self.of(sha256) for sha256 in sorted(named)}

    def _find(self, sha256: str) -> tuple[str, str] | None:
        if sha256 == self._opened.factory_sha256 and self._opened.store.factory is not None:
            with contextlib.suppress(BundleError):  # it was hashed at the start
                content = disk.read_file(self._opened.store.factory, SPEC_NAME, MAX_SPEC_BYTES)
                spec = parse_spec(content)
                return spec.name, spec.version
        offer = self._kept.read()
        if offer is not None and offer.manifest.bundle_sha256 == sha256:
            return offer.manifest.name, offer.manifest.version
        with contextlib.suppress(BundleError):
            manifest = self._opened.store.find(sha256).manifest
            return manifest.name, manifest.version
        return None
