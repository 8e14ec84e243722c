"""The state of updates as a starting agent finds it: lock, record, store, and what to boot with."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vedette import fsops
from vedette.bundle.folder import load_bundle
from vedette.errors import (
    BundleError,
    RecordSchemaError,
    StateLostError,
    StorageError,
    UnavailableError,
    storage_fault,
)
from vedette.fsops import Point
from vedette.journal import Journal
from vedette.trust.marks import Marks
from vedette.update.record import (
    SCHEMA,
    Mark,
    ModelRef,
    UpdateRecord,
    first_record,
    lost_record,
    salvage_record,
)
from vedette.update.store import Store

if TYPE_CHECKING:
    from pathlib import Path

STATE_NAME = "state"
OUTBOX_NAME = "outbox"
TRUST_NAME = "trust"


@dataclass
class OpenedState:
    """What was found. `first_bundle` is proven and to be served until the machine has its say.

    `must_reset`: the record on the disk was lost or not understood, `record` says what is known instead.
    `notes` are for people.
    """

    root: Path
    name: str
    store: Store
    journal: Journal[UpdateRecord]
    record: UpdateRecord
    factory_sha256: str
    first_bundle: Path | None
    must_reset: bool
    lock: int
    notes: list[str] = field(default_factory=list)

    @property
    def state(self) -> Path:
        """The folder of records, outbox and trust."""
        return self.root / STATE_NAME

    def close(self) -> None:
        """Let another process update this box."""
        os.close(self.lock)


def open_state(root: Path, name: str, *, factory: Path | None) -> OpenedState:
    """Lock the folder, read the record of model `name`, put the store in order.

    A disk that only reads does not keep the box from serving; what it refused stands in `notes`.

    Raises:
        UnavailableError: Another process updates this box.
        StorageError: The folder is not there, or the record cannot be read.
    """
    notes: list[str] = []
    try:
        lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise storage_fault(error, f"{root} cannot be used for updates") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise UnavailableError(
            f"another process updates the models in {root}",
            cure="stop it, or give this one its own state_dir",
        ) from error
    try:
        fsops.make_folder(root / STATE_NAME, Point.STAGE)
    except OSError as error:
        notes.append(storage_fault(error, f"{root / STATE_NAME} cannot be made").cause)
    try:
        return _open(root, name, factory, lock, notes)
    except BaseException:
        os.close(lock)
        raise


def _open(root: Path, name: str, factory: Path | None, lock: int, notes: list[str]) -> OpenedState:
    store = Store(root, factory=factory)
    journal = Journal(root / STATE_NAME, name, UpdateRecord, schema=SCHEMA)
    factory_sha256 = _factory_digest(factory, notes)
    record, must_reset = _read(journal, store, root / STATE_NAME / TRUST_NAME, factory_sha256, notes)
    keep = {record.update_id} - {""}
    try:
        store.open(keep_staging=keep)
    except StorageError as error:
        notes.append(error.cause)
    return OpenedState(
        root,
        name,
        store,
        journal,
        record,
        factory_sha256,
        _first_bundle(store, record, name, factory_sha256),
        must_reset,
        lock,
        notes,
    )


def _factory_digest(factory: Path | None, notes: list[str]) -> str:
    if factory is None:
        return ""
    try:
        return load_bundle(factory).sha256
    except BundleError as error:
        notes.append(f"the factory's model is not usable: {error.cause}")
        return ""


def _read(
    journal: Journal[UpdateRecord], store: Store, trust: Path, factory_sha256: str, notes: list[str]
) -> tuple[UpdateRecord, bool]:
    """The record, and whether what is on the disk must be replaced before anything is written."""
    try:
        record = journal.read()
    except StateLostError as error:
        notes.append(error.cause)
        return _lost(store, trust), True
    except RecordSchemaError as error:
        notes.append(error.cause)
        return salvage_record(error.payload) or _lost(store, trust), True
    if record is not None:
        return record, False
    if _release_floor(store):  # models were confirmed here, so there was a record
        notes.append("the update record is gone")
        return _lost(store, trust), True
    if factory_sha256:
        return first_record(ModelRef(factory_sha256)), False
    return UpdateRecord(), False


def _lost(store: Store, trust: Path) -> UpdateRecord:
    return lost_record(seen=read_seen(trust), release_floor=_release_floor(store))


def _release_floor(store: Store) -> int:
    """The highest release that was confirmed here, as far as the store still knows."""
    try:
        entries = store.scan()[0]
    except StorageError:
        return 0
    return max((entry.manifest.counter for entry in entries if entry.confirmed_order is not None), default=0)


def read_seen(trust: Path) -> Mark:
    """The newest rollout document that trust vouched for; it keeps its own record, for when ours is lost."""
    try:
        marks = Journal(trust, "trust", Marks, point=Point.TRUST).read()
    except (StateLostError, RecordSchemaError, StorageError):
        return Mark()
    return Mark() if marks is None else Mark(marks.epoch, marks.counter)


def _first_bundle(store: Store, record: UpdateRecord, name: str, factory_sha256: str) -> Path | None:
    """The active model if it is whole, else the best proven one."""
    active = record.active
    if active is not None and active.sha256 == factory_sha256:
        return store.factory
    try:
        if active is not None:
            return store.verify(active.sha256).bundle
    except (BundleError, StorageError):
        pass  # the machine will say so; the box serves meanwhile
    try:
        return next(store.fallbacks(name), None)
    except StorageError:
        return store.factory
