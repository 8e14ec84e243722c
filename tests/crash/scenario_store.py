"""A bundle is staged, adopted, confirmed, and the old one collected, as a small update does it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
from tests.crash.invariants import broken

from vedette.bundle.checksums import bundle_digest
from vedette.errors import VedetteError, storage_fault
from vedette.fsops import DurableFile, Point, make_folder
from vedette.journal import Journal
from vedette.update.store import Store
from vedette.wire.release import Codec, Encoding, EncodingKind, ReleaseFile, ReleaseManifest, ReleaseNeeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

UPDATE = "u2"


class Pointer(msgspec.Struct, frozen=True):
    """Which bundles are meant; a stand-in for the record of the update machine."""

    active: str
    previous: str | None = None
    candidate: str | None = None

    def named(self) -> set[str]:
        """All bundles that it names."""
        return {name for name in (self.active, self.previous, self.candidate) if name is not None}


def release(version: int) -> tuple[ReleaseManifest, dict[str, bytes]]:
    """A small release and its files."""
    files = {
        "model.yaml": b"version: %d\n" % version,
        "weights/model.bin": hashlib.sha256(b"%d" % version).digest() * 300,
    }
    listed = []
    for path, content in files.items():
        sha256 = hashlib.sha256(content).hexdigest()
        full = Encoding(EncodingKind.FULL, Codec.RAW, sha256, len(content))
        listed.append(ReleaseFile(path, sha256, len(content), (full,)))
    manifest = ReleaseManifest(
        schema=1,
        owner="acme",
        name="traffic",
        version=str(version),
        counter=version,
        bundle_sha256=bundle_digest({file.path: file.sha256 for file in listed}),
        files=tuple(listed),
        needs=ReleaseNeeds("onnx", ">=1.18", None, (), (), 64, ">=0.1"),
    )
    return manifest, files


def put_in(store: Store, update_id: str, version: int) -> str:
    """Stage and adopt a release; the digest of its bundle."""
    manifest, files = release(version)
    staging = store.stage(update_id)
    for name, content in files.items():
        path = staging.output(name)
        try:
            with DurableFile.create(path, Point.OUTPUT) as file:
                file.write_at(content, 0)
        except OSError as error:
            raise storage_fault(error, f"{path} cannot be written") from error
    return store.adopt(staging, manifest).sha256


OLD, NEW = (release(version)[0].bundle_sha256 for version in (1, 2))


class StoreScenario:
    """Goes from bundle OLD to bundle NEW."""

    name = "store"
    counts_kills = False

    def prepare(self, root: Path) -> None:
        """OLD serves, confirmed."""
        store = Store(root)
        store.open()
        store.confirm(put_in(store, "u1", 1))
        store.drop_stage("u1")
        make_folder(root / "state", Point.STAGE)
        journal = Journal(root / "state", "traffic", Pointer, capacity_bytes=4096)
        journal.read()
        journal.write(Pointer(OLD))

    def run(self, root: Path, promise: Callable[[str], None]) -> None:
        """Go on from whatever the record says."""
        store = Store(root)
        store.open(keep_staging={UPDATE})
        journal = Journal(root / "state", "traffic", Pointer, capacity_bytes=4096)
        pointer = journal.read()
        if pointer is None:
            raise AssertionError("the record is gone")
        if pointer == Pointer(OLD):
            put_in(store, UPDATE, 2)
            promise("adopted")
            journal.write(Pointer(OLD, candidate=NEW))
        if pointer.active != NEW:
            store.confirm(NEW)
            promise("confirmed")
            journal.write(Pointer(NEW, previous=OLD), point=Point.CONFIRM)
            promise("switched")
        journal.write(Pointer(NEW))
        journal.write(Pointer(NEW))
        store.collect(set().union(*(copy.named() for copy in journal.references())))
        promise("collected")
        store.drop_stage(UPDATE)

    def check(self, root: Path, promises: Sequence[str], *, ended: bool) -> Iterable[str]:
        """I1, I3, I4, I9, and each promise is kept."""
        store = Store(root)
        try:
            pointer = Journal(root / "state", "traffic", Pointer, capacity_bytes=4096).read()
            assert pointer is not None
            named = [store.verify(name, full=True) for name in sorted(pointer.named())]
        except VedetteError as error:
            yield broken("I1", f"what the record names is not whole: {error}")
            return
        if any(entry.sha256 == pointer.active and entry.confirmed_order is None for entry in named):
            yield broken("I4", "an unconfirmed bundle is active")
        if not list(store.fallbacks("traffic")):
            yield broken("I1", "there is nothing to fall back to")
        yield from _broken_promises(store, pointer, promises)
        if ended:
            yield from _untidy(root, store)


def _broken_promises(store: Store, pointer: Pointer, promises: Sequence[str]) -> Iterable[str]:
    entries = {entry.sha256: entry for entry in store.scan()[0]}
    if "adopted" in promises and NEW not in entries:
        yield broken("I1", "the adopted bundle is gone")
    if "confirmed" in promises and (NEW not in entries or entries[NEW].confirmed_order is None):
        yield broken("I4", "the confirmation is gone")
    if "switched" in promises and pointer.active != NEW:
        yield broken("I3", "the record went back")
    if "collected" in promises and OLD in entries:
        yield broken("I9", "what was collected came back")


def _untidy(root: Path, store: Store) -> Iterable[str]:
    entries, damaged = store.scan()
    if [entry.sha256 for entry in entries] != [NEW] or damaged:
        yield broken("I9", f"the store holds {[entry.sha256[:8] for entry in entries]} and {damaged}")
    rest = [path.name for path in (root / "staging").iterdir()]
    rest += [path.name for path in (root / "store").iterdir() if path.name != NEW]
    if rest:
        yield broken("I9", f"left behind: {rest}")
