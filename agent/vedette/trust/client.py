"""The client of the update repository: refresh, verify, and say what is offered to this device.

Expiry gates only the start of an update. Nothing here is asked again once one is under way, except
`still_wanted`, which needs neither network nor clock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import TYPE_CHECKING

import msgspec
from tuf.api import exceptions

from vedette import fsops
from vedette.errors import (
    NotFoundError,
    RecordSchemaError,
    StateLostError,
    UnavailableError,
    storage_fault,
)
from vedette.journal import Journal
from vedette.trust.documents import (
    ROLLOUTS_PATH,
    ROLLOUTS_ROLE,
    agreed_target,
    owner_role,
    pick_rollout,
    read_document,
    read_manifest,
    remote_path,
    sha256_of,
)
from vedette.trust.marks import Marks, check_counter
from vedette.trust.offer import Offer
from vedette.trust.refusal import Refusal, refusal_of, refuse
from vedette.trust.time_floor import judge_clock, raised_floor
from vedette.trust.tuf_updater import HardenedUpdater
from vedette.wire.release import MAX_MANIFEST_BYTES
from vedette.wire.rollout import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tuf.api.metadata import TargetFile

    from vedette.trust.documents import Device
    from vedette.trust.offer import MetadataSource
    from vedette.trust.wall_clock import WallClock
    from vedette.wire.rollout import RolloutDocument

LOCK_NAME = "trust.lock"
ROLLOUTS_KEPT = "kept.rollouts.json"
MANIFEST_KEPT = "kept.manifest.json"
_MARKS_BYTES = 1 << 17  # some thousand owners


class TufTrust:
    """Implements `update.ports.Trust`; one thread at a time, across processes by a lock in the state folder.

    `state` is made in a folder that exists; `state/metadata` is a cache that may be deleted at any time.
    `bootstrap` is the root that came with the installation, `build_utc_s` its time. `accept_older` is for
    sources that people carry: where they are behind this device, its own metadata counts.
    """

    def __init__(
        self,
        source: MetadataSource,
        state: Path,
        *,
        bootstrap: bytes,
        build_utc_s: int,
        device: Device,
        clock: WallClock,
        accept_older: bool = False,
    ) -> None:
        self._source = source
        self._state = state
        self._cache = state / "metadata"
        self._bootstrap = bootstrap
        self._build_utc_s = build_utc_s
        self._device = device
        self._clock = clock
        self._accept_older = accept_older
        self._journal = _open_journal(state)
        self._written: Marks | None = None
        self._document: tuple[int, RolloutDocument] | None = None
        self.clock_doubt = ""
        self.marks_lost = False

    def refresh(self) -> Offer | None:
        """Fetch and verify; None when no rollout concerns this device.

        Afterwards `clock_doubt` says why the clock was not used, empty when it was, and `marks_lost` whether
        both copies of the record were damaged.

        Raises:
            TrustError: Refused, by its `kind`; nothing that was verified before is forgotten.
            UnavailableError: The repository is away, or another process is at it.
            StorageError: What was verified cannot be kept, so nothing is offered.
        """
        try:
            with self._locked():
                return self._refresh()
        except (exceptions.RepositoryError, exceptions.DownloadLengthMismatchError) as error:
            raise refuse(refusal_of(error), f"update repository: {error}") from error
        except exceptions.DownloadError as error:
            raise NotFoundError(
                f"update repository: {error}", cure="check its address, and that it was published whole"
            ) from error
        except OSError as error:
            raise storage_fault(error, f"{self._state}: what was verified cannot be kept") from error

    def still_wanted(self, offer: Offer) -> bool:
        """Whether the last verified document still offers it; true while no other is known."""
        document = self._newer_document(offer)
        if document is None:
            return True
        rollout = pick_rollout(document, self._device)
        return rollout is not None and (rollout.id, rollout.sha256) == (
            offer.rollout.id,
            offer.rollout.sha256,
        )

    def withdrawn(self, offer: Offer) -> bool:
        """Whether the last verified document withdrew its rollout, or has it no more; false without one."""
        document = self._newer_document(offer)
        if document is None:
            return False
        found = [rollout for rollout in document.rollouts if rollout.id == offer.rollout.id]
        return all(rollout.withdrawn for rollout in found)

    def _refresh(self) -> Offer | None:
        now_utc_s, synchronised = self._clock.utc_s(), self._clock.synchronised()

        def reference_utc_s(marks: Marks) -> float:
            floor_utc_s = max(self._build_utc_s, marks.floor_utc_s)
            judgement = judge_clock(now_utc_s, floor_utc_s, synchronised=synchronised)
            self.clock_doubt = judgement.doubt
            return judgement.reference_utc_s

        updater = HardenedUpdater(
            self._source,
            self._cache,
            self._bootstrap,
            marks=self._read_marks(),
            reference_utc_s=reference_utc_s,
            accept_older=self._accept_older,
        )
        updater.refresh()
        target = self._document_target(updater)
        document = read_document(self._fetch_target(target, MAX_DOCUMENT_BYTES, ROLLOUTS_KEPT))
        check_counter(updater.marks, document.counter)
        offer = self._fetch_offer(updater, document)
        marks = msgspec.structs.replace(
            updater.marks,
            root_version=updater.root_version,
            versions=updater.versions(),
            counter=document.counter,
            document_sha256=sha256_of(target),
            floor_utc_s=raised_floor(
                updater.marks.floor_utc_s,
                updater.issued_utc_s,
                trusted_utc_s=now_utc_s if synchronised and not self.clock_doubt else None,
            ),
        )
        # Nothing may be installed on the word of an offer before the marks are durable (F10).
        self._write_marks(marks)
        self._document = (marks.epoch, document)
        return offer

    def _read_marks(self) -> Marks:
        try:
            marks = self._journal.read()
        except (StateLostError, RecordSchemaError):
            # The cache of metadata still guards against replays, as far as it is whole.
            self.marks_lost = True
            return Marks()
        self.marks_lost = False
        self._written = marks
        return marks or Marks()

    def _write_marks(self, marks: Marks) -> None:
        if self.marks_lost:
            self._journal.reset(marks)
        elif marks != self._written or self._journal.damage:
            self._journal.write(marks)
            # And the other copy: were it left behind, damage to this one would bring old marks back.
            self._journal.write(marks)

    def _document_target(self, updater: HardenedUpdater) -> TargetFile:
        target = updater.find_target(ROLLOUTS_ROLE, ROLLOUTS_PATH)
        if target is None:
            raise refuse(Refusal.BAD_METADATA, f"role {ROLLOUTS_ROLE} does not sign {ROLLOUTS_PATH}")
        return target

    def _fetch_offer(self, updater: HardenedUpdater, document: RolloutDocument) -> Offer | None:
        rollout = pick_rollout(document, self._device)
        if rollout is None:
            return None
        role = owner_role(rollout)
        target = agreed_target(rollout, role, updater.find_target(role, rollout.target))
        content = self._fetch_target(target, MAX_MANIFEST_BYTES, MANIFEST_KEPT)
        return Offer(
            counter=document.counter,
            rollout=rollout,
            manifest=read_manifest(content, rollout),
            manifest_sha256=rollout.sha256,
            epoch=updater.marks.epoch,
        )

    def _fetch_target(self, target: TargetFile, max_bytes: int, kept_name: str) -> bytes:
        """A small target, from the copy kept or from the repository; verified, then kept."""
        if target.length > max_bytes:
            raise refuse(
                Refusal.BAD_METADATA, f"{target.path} has {target.length} bytes; {max_bytes} is the limit"
            )
        kept = self._kept(kept_name, sha256_of(target))
        if kept is not None:
            return kept
        path = remote_path(target)
        content = bytearray()
        for piece in self._source.metadata(path, target.length):
            content += piece
            if len(content) > target.length:
                raise refuse(Refusal.HASH_MISMATCH, f"{path} goes on after the {target.length} bytes signed")
        target.verify_length_and_hashes(bytes(content))
        fsops.write_durable(self._cache / kept_name, bytes(content), fsops.Point.TRUST)
        return bytes(content)

    def _kept(self, name: str, sha256: str) -> bytes | None:
        """A copy kept, if it is the one with that digest; damaged and missing are the same here."""
        try:
            content = (self._cache / name).read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == sha256 else None

    def _newer_document(self, offer: Offer) -> RolloutDocument | None:
        """The last verified document, unless it is older than the offer."""
        known = self._document or self._kept_document()
        if known is None or (known[0], known[1].counter) < (offer.epoch, offer.counter):
            return None
        return known[1]

    def _kept_document(self) -> tuple[int, RolloutDocument] | None:
        """The last verified document and its epoch, as kept on disk."""
        try:
            marks = _open_journal(self._state).read()
        except (StateLostError, RecordSchemaError, UnavailableError):
            return None
        if marks is None:
            return None
        content = self._kept(ROLLOUTS_KEPT, marks.document_sha256)
        return None if content is None else (marks.epoch, read_document(content))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """python-tuf wants its cache for itself; a second agent or command is told so, not kept waiting."""
        if not self._cache.is_dir():
            fsops.make_folder(self._state, fsops.Point.TRUST)
            fsops.make_folder(self._cache, fsops.Point.TRUST)
        descriptor = os.open(self._state / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise UnavailableError(
                f"another process uses {self._state}", cure="let it finish; it is tried again later"
            ) from error
        try:
            yield
        finally:
            os.close(descriptor)


def _open_journal(state: Path) -> Journal[Marks]:
    return Journal(state, "trust", Marks, point=fsops.Point.TRUST, capacity_bytes=_MARKS_BYTES)
