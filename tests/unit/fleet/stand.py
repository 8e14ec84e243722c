"""A publisher's desk in a temporary folder: small real bundles, real codecs, and python-tuf's own client."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bsdiff4
import numpy as np
from backports import zstd
from onnx import TensorProto
from tests.unit.bundle.workshop import onnx_model, write_bundle
from tuf.api.exceptions import DownloadHTTPError
from tuf.ngclient import FetcherInterface, Updater

from vedette.wire.release import Codec, ReleaseManifest, parse_manifest
from vedette.wire.rollout import RolloutDocument, parse_rollouts
from vedette_fleet.key_files import KeyFolder
from vedette_fleet.release_files import Publisher, Released, Request
from vedette_fleet.tuf_ceremonies import Workshop
from vedette_fleet.tuf_repository import TufRepository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette import fsops

NOW = datetime.now(timezone.utc).replace(microsecond=0)
WEIGHTS = 60_000


def weights(*, tuned: float = 0.0, seed: int = 1) -> bytes:
    """Random int8 weights; `tuned` is the share that a fine-tune changed."""
    values = np.random.default_rng(seed).integers(-128, 128, WEIGHTS).astype(np.int8)
    changed = int(WEIGHTS * tuned)
    values[:changed] += 1
    return values.tobytes()


def bundle(folder: Path, version: str, content: bytes | None = None, *, name: str = "tiny") -> Path:
    """A sealed bundle of one ONNX model of 60 kB."""
    model = onnx_model()
    raw = weights() if content is None else content
    model.graph.initializer.append(
        TensorProto(name="w", data_type=TensorProto.INT8, dims=[len(raw)], raw_data=raw)
    )
    return write_bundle(
        folder / f"{name}-{version}", {"tiny.onnx": model.SerializeToString()}, version=version, name=name
    )


class PlainEncoder:
    """The codecs as their packages have them: quick, and the same bytes every time."""

    def full(self, new: bytes) -> tuple[Codec, bytes]:
        packed = zstd.compress(new)
        return (Codec.ZSTD, packed) if len(packed) < len(new) else (Codec.RAW, new)

    def delta(self, old: bytes, new: bytes) -> tuple[Codec, bytes]:
        return Codec.BSDIFF4, _diff(old, new)


@cache  # kill tests publish the same pair again and again
def _diff(old: bytes, new: bytes) -> bytes:
    made: bytes = bsdiff4.diff(old, new)
    return made


class Desk:
    """A repository and its keys."""

    def __init__(self, folder: Path, *, now: datetime = NOW) -> None:
        self.folder = folder
        self.repository = TufRepository(folder / "repo")
        self.keys = KeyFolder(folder / "repo-keys")
        self.workshop = Workshop(self.repository, self.keys, now)

    def initialised(self, *owners: str) -> Desk:
        self.workshop.initialise(list(owners or ("demo",)))
        return self

    def later(self, **delta: float) -> Desk:
        """The same desk at another time."""
        return Desk(self.folder, now=self.workshop.now + timedelta(**delta))

    def release(self, bundle_folder: Path, bases: tuple[str, ...] | None = None, **more: Any) -> Released:  # noqa: ANN401 - fields of a Request
        request = Request(bundle_folder, bases=bases, **more)
        return Publisher(self.workshop, PlainEncoder(), lambda _what, _done, _total: None).release(request)

    def device(self, *, trusts: int = 1) -> Device:
        root = self.repository.path / "metadata" / f"{trusts}.root.json"
        return Device(self.repository.path, root.read_bytes())


class Device:
    """What python-tuf's client says of a repository; nothing of ours verifies here."""

    def __init__(self, repository: Path, root: bytes) -> None:
        self._repository = repository
        self._root = root
        self._cache = tempfile.TemporaryDirectory(prefix="vedette-device-")

    def _updater(self) -> Updater:
        return Updater(
            self._cache.name,
            "repo:/metadata",
            target_dir=self._cache.name,
            target_base_url="repo:/targets",
            fetcher=_FromFolder(self._repository),
            bootstrap=self._root,
        )

    def fetch(self, target: str) -> bytes | None:
        """A target, verified from the root on; None when nobody who may signed it."""
        updater = self._updater()
        updater.refresh()
        found = updater.get_targetinfo(target)
        if found is None:
            return None
        path = Path(self._cache.name) / "fetched"
        return Path(updater.download_target(found, str(path))).read_bytes()

    def manifest(self, target: str) -> ReleaseManifest | None:
        content = self.fetch(target)
        return None if content is None else parse_manifest(content)

    def rollouts(self) -> RolloutDocument:
        content = self.fetch("rollouts.json")
        assert content is not None
        return parse_rollouts(content)


class _FromFolder(FetcherInterface):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _fetch(self, url: str) -> Iterator[bytes]:
        try:
            yield (self._folder / url.removeprefix("repo:/")).read_bytes()
        except FileNotFoundError as error:
            raise DownloadHTTPError(url, 404) from error


class PowerCutError(BaseException):
    """Not an Exception: nothing in the code under test may tidy up after it."""


class PowerCut:
    """Ends the work before its n-th durable step; `steps` counts them."""

    def __init__(self, at: int | None = None) -> None:
        self._at = at
        self.steps = 0

    def before(self, operation: fsops.Operation) -> None:
        del operation
        self.steps += 1
        if self.steps == self._at:
            raise PowerCutError
