"""Carries out Apply and VerifyOutputs: blobs and stored files become a bundle in the store."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import msgspec

from vedette import fsops
from vedette.bundle import disk
from vedette.bundle.checksums import SUMS_NAME, parse_checksums
from vedette.errors import BundleError, StorageError, storage_fault
from vedette.fsops import Point
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.effects_fetching import disk_failed
from vedette.update.jobs import NOW, Limits
from vedette.update.making_child import Begun, Made, MakeFile
from vedette.update.record import REUSE
from vedette.wire.release import Codec

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from vedette.update.jobs import Ended, Job, RunChild, Wait
    from vedette.update.staging import Staging
    from vedette.update.store import Store
    from vedette.wire.release import ReleaseManifest

MAKING_MODULE = "vedette.update.making_child"
MEMORY_BYTES = 256 << 20  # the decoders stay far below; this is for one that does not
CPU_S = 4 * 3600
MAX_SUMS_BYTES = 1 << 20


class Making:
    """Makes bundles; decoding happens in a child process."""

    def __init__(self, store: Store, *, run_child: RunChild, timeout_s: float) -> None:
        self._store = store
        self._run_child = run_child
        self._timeout_s = timeout_s

    def apply(self, update_id: str, manifest: ReleaseManifest, wanted: Sequence[tuple[int, int]]) -> Job:
        """Make the files of (file, encoding) each; what fails is named, the others are made."""
        try:
            staging = self._store.stage(update_id)
            failed, left = _orders(manifest, wanted, staging, self.stored_files())
            while left:
                for made in (yield from self._run(left)):
                    del left[made.file]
                    if made.hopeless:
                        kind = Cause.NO_SPACE if made.cause is Cause.NO_SPACE else Cause.IO_ERROR
                        return disk_failed(StorageError(made.detail, kind=kind.value), manifest)
                    if made.cause is not None:
                        failed.append(made)
            _sync_names(staging.bundle)
        except StorageError as error:
            return disk_failed(error, manifest)
        except BundleError as error:
            return ev.WorkFailed(Cause.BAD_METADATA, error.cause)
        if not failed:
            return ev.Applied()
        files = tuple(sorted(made.file for made in failed))
        return ev.ApplyFailed(files, failed[0].cause or Cause.IO_ERROR)

    def _run(self, orders: dict[int, MakeFile]) -> Generator[Wait | ev.Event, None, list[Made]]:
        """One child: what it made, and the file that it died with; never nothing."""
        spec = msgspec.json.encode(list(orders.values()))
        limits = Limits(self._timeout_s, CPU_S, MEMORY_BYTES, MEMORY_BYTES)
        ended = yield from self._run_child(MAKING_MODULE, spec, limits, lambda _line: None)
        told = [_message(line) for line in ended.lines]
        made = [message for message in told if isinstance(message, Made) and message.file in orders]
        done = {message.file for message in made}
        open_files = [message.file for message in told if isinstance(message, Begun)]
        in_hand = next((file for file in reversed(open_files) if file in orders and file not in done), None)
        if in_hand is None and not made:
            in_hand = next(iter(orders))
        if in_hand is not None:
            made.append(Made(in_hand, death_cause(ended), ended.last_words))
        return made

    def verify(self, update_id: str, manifest: ReleaseManifest) -> Job:
        """Adopt the bundle, which hashes every file from the disk; say which are wrong when that fails."""
        yield NOW
        try:
            staging = self._store.stage(update_id)
            try:
                self._store.adopt(staging, manifest)
            except BundleError as error:
                problem = error.cause
            else:
                return ev.OutputsGood()
            bad = []
            for file in range(len(manifest.files)):
                yield NOW
                if not _is_right(staging, manifest, file):
                    bad.append(file)
        except StorageError as error:
            return disk_failed(error, manifest)
        return ev.OutputsBad(tuple(bad)) if bad else ev.WorkFailed(Cause.HASH_MISMATCH, problem)

    def stored_files(self) -> dict[str, Path]:
        """Where the store, or the factory's bundle, has a file of which content; not hashed here.

        Raises:
            StorageError: The store cannot be read.
        """
        held: dict[str, Path] = {}
        if self._store.factory is not None:
            held.update(_listed(self._store.factory))
        for entry in self._store.scan()[0]:
            held.update({file.sha256: entry.bundle / file.path for file in entry.manifest.files})
        return held


def death_cause(ended: Ended) -> Cause:
    """Why a child ended before its work did."""
    if ended.broke == "time" or -ended.status in {signal.SIGXCPU, signal.SIGALRM}:
        return Cause.WATCHDOG
    if ended.broke == "memory" or -ended.status == signal.SIGKILL or "MemoryError" in ended.last_words:
        return Cause.OOM
    return Cause.CRASH_LOOP


def _sync_names(bundle: Path) -> None:
    """The child synced what is in them; without names the record would promise files that are gone."""
    try:
        for folder, _folders, _names in os.walk(bundle, topdown=False):
            fsops.sync_folder(bundle / folder, Point.OUTPUT)
    except OSError as error:
        raise storage_fault(error, f"{bundle} cannot be synced") from error


def _message(line: bytes) -> Begun | Made | None:
    try:
        return msgspec.json.decode(line, type=Begun | Made)
    except msgspec.DecodeError:  # the last line of a child that was killed
        return None


def _orders(
    manifest: ReleaseManifest,
    wanted: Sequence[tuple[int, int]],
    staging: Staging,
    held: Mapping[str, Path],
) -> tuple[list[Made], dict[int, MakeFile]]:
    """What cannot even be begun, and what the child is told."""
    failed: list[Made] = []
    orders: dict[int, MakeFile] = {}
    for file, index in wanted:
        order = _order(manifest, file, index, staging, held)
        if order is None:
            failed.append(Made(file, Cause.BASE_MISMATCH, "the store no longer has its base"))
        else:
            orders[file] = order
    return failed, orders


def _order(
    manifest: ReleaseManifest, file: int, index: int, staging: Staging, held: Mapping[str, Path]
) -> MakeFile | None:
    """What the child is told; None when the store does not have what is needed."""
    wanted = manifest.files[file]
    out = str(staging.output(wanted.path))
    if index == REUSE:
        source = held.get(wanted.sha256)
        if source is None:
            return None
        return MakeFile(file, Codec.RAW, str(source), None, None, out, wanted.size_bytes)
    encoding = wanted.encodings[index]
    base = None if encoding.base_sha256 is None else held.get(encoding.base_sha256)
    if base is None and encoding.base_sha256 is not None:
        return None
    return MakeFile(
        file,
        encoding.codec,
        str(staging.part(encoding.sha256, encoding.size_bytes).path),
        None if base is None else str(base),
        encoding.base_sha256,
        out,
        wanted.size_bytes,
    )


def _is_right(staging: Staging, manifest: ReleaseManifest, file: int) -> bool:
    wanted = manifest.files[file]
    try:
        return disk.hash_file(staging.bundle, wanted.path) == wanted.sha256
    except BundleError:
        return False


def _listed(folder: Path) -> dict[str, Path]:
    """Files of a sealed folder by content; none when its list is damaged."""
    try:
        sums = parse_checksums(disk.read_file(folder, SUMS_NAME, MAX_SUMS_BYTES).decode())
    except (BundleError, UnicodeDecodeError):
        return {}
    return {sha256: folder / name for name, sha256 in sums.items()}
