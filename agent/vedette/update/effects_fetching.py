"""Carries out Fetch, VerifyPatches and DiscardBlobs: blobs into part files, held against signed hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vedette import fsops
from vedette.errors import (
    BadInputError,
    NotFoundError,
    StorageError,
    TruncatedError,
    UnavailableError,
    storage_fault,
)
from vedette.fsops import Point
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.fetching import BlobFetch, FetchLimits
from vedette.update.jobs import NOW, Job, Wait
from vedette.wire.release import EncodingKind

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from vedette.update.part_file import PartFile
    from vedette.update.ports import Fetcher
    from vedette.update.record import UpdateRecord
    from vedette.update.staging import Staging
    from vedette.update.store import Store
    from vedette.wire.release import Encoding, ReleaseManifest

TRIES_IN_A_ROW = 3  # without progress; after these the machine waits, longer each time


class Blob(NamedTuple):
    """One blob, and the files of the release that it is for."""

    encoding: Encoding
    files: tuple[int, ...]

    @property
    def is_delta(self) -> bool:
        """Whether there is a full encoding to go on to, so that nobody need wait for this one."""
        return self.encoding.kind is EncodingKind.DELTA


class _Meter:
    """A fetcher that counts, and stops at a limit."""

    def __init__(self, fetcher: Fetcher, max_bytes: int) -> None:
        self._fetcher = fetcher
        self._max_bytes = max_bytes
        self.moved_bytes = 0
        self.spent = False

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        """See Fetcher."""
        return self._fetcher.metadata(path, max_bytes)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        """See Fetcher; no piece beyond the limit is handed on."""
        for piece in self._fetcher.blob(sha256, start, end):
            self.moved_bytes += len(piece)
            if self.moved_bytes > self._max_bytes:
                self.spent = True
                raise UnavailableError(f"{self._max_bytes} bytes are all that this update may fetch")
            yield piece
            self.spent = self.moved_bytes == self._max_bytes


class Fetching:
    """Moves blobs; `breathe` is called between pieces and says whether something else wants attention.

    `held_bytes` says how much of each blob is here, by its digest, as far as somebody looked; `fault` what
    keeps the one under way from coming.
    """

    def __init__(self, store: Store, *, draw: Callable[[], float]) -> None:
        self._store = store
        self._draw = draw
        self.breathe: Callable[[], bool] = lambda: False
        self.moved_bytes = 0
        self.held_bytes: dict[str, int] = {}
        self.fault = ""

    def fetch(
        self,
        update_id: str,
        fetcher: Fetcher,
        manifest: ReleaseManifest,
        wanted: Sequence[tuple[int, int]],
        max_bytes: int,
    ) -> Job:
        """Bring in the blobs that are not there yet, no more than `max_bytes` over the wire."""
        meter = _Meter(fetcher, max_bytes)
        self.moved_bytes = 0
        current: Blob | None = None
        try:
            staging = self._store.stage(update_id)
            self.look_at(staging, manifest, wanted)
            for current in blobs_of(manifest, wanted):
                if not (yield from self._fetch_one(staging, current.encoding, meter)):
                    spent = f"{meter.moved_bytes} bytes were fetched, which is all that this update may fetch"
                    return ev.FetchStalled(meter.moved_bytes, detail=spent)
        except StorageError as error:
            return disk_failed(error, manifest)
        except (NotFoundError, BadInputError) as error:
            files = () if current is None else current.files
            cause = Cause.BLOB_MISSING if isinstance(error, NotFoundError) else Cause.BAD_METADATA
            return ev.FetchLost(files, cause, meter.moved_bytes, error.cause)
        except UnavailableError as error:
            if isinstance(error, TruncatedError) and current is not None and current.is_delta:
                return ev.FetchLost(current.files, Cause.BAD_METADATA, meter.moved_bytes, error.cause)
            return ev.FetchStalled(meter.moved_bytes, error.retry_after_s, error.cause)
        finally:
            self.moved_bytes, self.fault = 0, ""
        return ev.Fetched(meter.moved_bytes)

    def look_at(self, staging: Staging, manifest: ReleaseManifest, wanted: Sequence[tuple[int, int]]) -> None:
        """Find out what is here already of these blobs, as after a restart."""
        encodings = [blob.encoding for blob in blobs_of(manifest, wanted)]
        self.held_bytes = {
            encoding.sha256: staging.part(encoding.sha256, encoding.size_bytes).held_bytes()
            for encoding in encodings
        }

    def _fetch_one(
        self, staging: Staging, encoding: Encoding, meter: _Meter
    ) -> Generator[Wait | ev.Event, None, bool]:
        """Whether it is whole; else all is spent that may be."""
        pause_s = 0.0
        before_bytes = meter.moved_bytes
        size_bytes = encoding.size_bytes

        def wait(seconds: float) -> bool:
            nonlocal pause_s
            pause_s = seconds
            return seconds > 0 or self.breathe()

        def progress(fetched_bytes: int) -> None:
            self.moved_bytes, self.fault = before_bytes + fetched_bytes, ""
            self.held_bytes[encoding.sha256] = min(held_bytes + fetched_bytes, size_bytes)

        def failed(error: UnavailableError | None) -> None:
            self.fault = "" if error is None else error.cause

        with staging.part(encoding.sha256, size_bytes) as part:
            held_bytes = part.received_bytes
            fetch = BlobFetch(
                meter,
                part,
                wait=wait,
                draw=self._draw,
                limits=FetchLimits(tries=TRIES_IN_A_ROW),
                progress=progress,
                failed=failed,
            )
            while not fetch.run().complete:
                if meter.spent:
                    return False
                yield Wait(pause_s)
            self.held_bytes[encoding.sha256] = size_bytes
        return True

    def verify(
        self, update_id: str, manifest: ReleaseManifest, wanted: Sequence[tuple[int, int]], *, place: str = ""
    ) -> Job:
        """Read every blob back and hash it; what is wrong is deleted. `place` is where they came from."""
        bad: list[int] = []
        said = ""
        try:
            staging = self._store.stage(update_id)
            for blob in blobs_of(manifest, wanted):
                yield NOW
                fault = _fault_of(staging.part(blob.encoding.sha256, blob.encoding.size_bytes))
                if fault:
                    bad += blob.files
                    said = said or (f"{fault}; it came from {place}" if place else fault)
                    self.held_bytes.pop(blob.encoding.sha256, None)
        except StorageError as error:
            return disk_failed(error, manifest)
        return ev.PatchesBad(tuple(sorted(bad)), said) if bad else ev.PatchesGood()

    def discard(self, record: UpdateRecord, manifest: ReleaseManifest, files: Sequence[int]) -> None:
        """Delete blobs and outputs of these files, but no blob that another file still uses.

        Raises:
            StorageError: The disk refuses; what stays is caught by its hash later.
        """
        staging = self._store.stage(record.update_id)
        used = {
            manifest.files[index].encodings[progress.encoding].sha256
            for index, progress in enumerate(record.files)
            if index not in files and progress.encoding >= 0
        }
        for index in files:
            for encoding in manifest.files[index].encodings:
                if encoding.sha256 not in used:
                    staging.part(encoding.sha256, encoding.size_bytes).remove()
            _remove(staging.output(manifest.files[index].path))


def blobs_of(manifest: ReleaseManifest, wanted: Sequence[tuple[int, int]]) -> list[Blob]:
    """The distinct blobs of (file, encoding) each, in order."""
    files: dict[str, list[int]] = {}
    encodings: dict[str, Encoding] = {}
    for file, index in wanted:
        encoding = manifest.files[file].encodings[index]
        encodings.setdefault(encoding.sha256, encoding)
        files.setdefault(encoding.sha256, []).append(file)
    return [Blob(encoding, tuple(files[sha256])) for sha256, encoding in encodings.items()]


def disk_failed(error: StorageError, manifest: ReleaseManifest) -> ev.WorkFailed:
    """The disk ended the work; with room for the release made of full encodings it may be tried again."""
    full = [max(encoding.size_bytes for encoding in file.encodings) for file in manifest.files]
    wanted_bytes = sum(full) + sum(file.size_bytes for file in manifest.files)
    return ev.WorkFailed(Cause(error.kind), error.cause, wanted_bytes)


def _remove(path: Path) -> None:
    try:
        fsops.unlink(path, Point.OUTPUT)
    except OSError as error:
        raise storage_fault(error, f"{path} cannot be removed") from error


def _fault_of(part: PartFile) -> str:
    """What is wrong with a blob, which is then deleted; empty when nothing is."""
    with part:
        if part.missing():
            return f"blob {part.sha256[:16]}… is not whole"
        try:
            part.verify()
        except StorageError:
            raise
        except (BadInputError, UnavailableError) as error:
            part.remove()
            return error.cause
    return ""
