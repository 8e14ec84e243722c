"""The store: what gets in, what is believed, what to fall back to, and what goes."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.crash.scenario_store import put_in, release
from tests.crash.traces import FailAt, Recorder
from tests.unit.bundle.workshop import write_bundle

from vedette.bundle import disk
from vedette.bundle.checksums import SUMS_NAME
from vedette.bundle.folder import load_bundle
from vedette.errors import BundleError, InternalError, StorageError
from vedette.fsops import Kind, traced
from vedette.update.space import DiskSpace
from vedette.update.store import Store
from vedette.wire.release import Codec, Encoding, EncodingKind, ReleaseFile, ReleaseManifest

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.update.entry import Entry
    from vedette.update.staging import Staging


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store with a factory bundle."""
    found = Store(tmp_path, factory=tmp_path / "factory")
    found.open()
    return found


def staged(store: Store, version: int, update_id: str = "u") -> tuple[Staging, ReleaseManifest]:
    """A release that is decoded, and not adopted."""
    manifest, files = release(version)
    staging = store.stage(update_id)
    for name, content in files.items():
        staging.output(name).write_bytes(content)
    return staging, manifest


def adopted(store: Store, version: int) -> Entry:
    """A release that got into the store."""
    return store.find(put_in(store, f"u{version}", version))


def flip(path: Path, *, keep_times: bool = False) -> None:
    """Change one byte, as rot on the disk does it: the times of the file stay."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def manifest_of(folder: Path) -> ReleaseManifest:
    """The release of a real bundle, its list of checksums among the files."""
    bundle = load_bundle(folder)
    listed = []
    for name in sorted(disk.list_files(folder)):
        sha256, size = disk.hash_file(folder, name), disk.size_bytes(folder, name)
        full = Encoding(EncodingKind.FULL, Codec.RAW, sha256, size)
        listed.append(ReleaseFile(name, sha256, size, (full,)))
    return msgspec.structs.replace(release(1)[0], files=tuple(listed), bundle_sha256=bundle.sha256)


@pytest.mark.parametrize("sums_are_signed", [True, False])
def test_an_adopted_bundle_can_be_loaded(store: Store, tmp_path: Path, *, sums_are_signed: bool) -> None:
    """Whether the release lists SHA256SUMS or leaves it to the device."""
    source = write_bundle(tmp_path / "tiny")
    manifest = manifest_of(source)
    files = tuple(file for file in manifest.files if sums_are_signed or file.path != SUMS_NAME)
    staging = store.stage("u")
    for file in files:
        staging.copy_in(source / file.path, file.path)
    entry = store.adopt(staging, msgspec.structs.replace(manifest, files=files))
    assert load_bundle(entry.bundle).sha256 == entry.sha256 == load_bundle(source).sha256


def test_a_bundle_gets_in_by_one_rename_after_its_manifest(store: Store, tmp_path: Path) -> None:
    """F3 and F4: all data synced, META.json, the rename, the store's names, staging's names."""
    staging, manifest = staged(store, 1)
    recorder = Recorder(tmp_path)
    with traced(recorder):
        store.adopt(staging, manifest)
    seen = [(step.kind, step.point.value) for step in recorder.steps]
    assert seen[-3:] == [(Kind.RENAME, "F3"), (Kind.SYNC_FOLDER, "F3"), (Kind.SYNC_FOLDER, "F3")]
    assert [step.path for step in recorder.steps[-2:]] == ["store", "staging/u"]
    assert seen[-5:-3] == [(Kind.RENAME, "F4"), (Kind.SYNC_FOLDER, "F4")]
    synced = {step.path for step in recorder.steps if step.kind is Kind.SYNC}
    assert {f"staging/u/entry/bundle/{file.path}" for file in manifest.files} <= synced


@pytest.mark.parametrize(
    ("ruin", "said"),
    [
        (lambda bundle: flip(bundle / "model.yaml"), "'model.yaml' is not what was signed"),
        (lambda bundle: (bundle / "model.yaml").unlink(), "'model.yaml' is missing"),
        (lambda bundle: (bundle / "model.yaml").write_bytes(b""), "0 bytes, 11 were signed"),
        (lambda bundle: (bundle / "extra").write_bytes(b"x"), "'extra' was not signed"),
        (lambda bundle: (bundle / SUMS_NAME).write_bytes(b"x"), None),
    ],
)
def test_what_is_not_what_was_signed_stays_outside(store: Store, ruin: object, said: str | None) -> None:
    """I2: changed, missing, cut short, too much. A list of checksums of its own is written over."""
    staging, manifest = staged(store, 1)
    assert callable(ruin)
    ruin(staging.bundle)
    if said is None:
        store.adopt(staging, manifest)
        return
    with pytest.raises(BundleError, match=said):
        store.adopt(staging, manifest)
    assert store.scan() == ((), ())


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a\\b", "", "."])
def test_no_name_leads_out_of_the_bundle(store: Store, name: str) -> None:
    """Names come from outside, also when they are signed."""
    with pytest.raises(BundleError):
        store.stage("u").output(name)


def test_names_of_updates_and_bundles_are_checked(store: Store) -> None:
    """They become folders."""
    for name in ("../u", ".u", "", "u" * 65):
        with pytest.raises(InternalError):
            store.stage(name)
    with pytest.raises(InternalError):
        store.find("../staging")


def test_adopting_again_after_a_power_cut_ends_the_same(store: Store) -> None:
    """The rename was done, the record was not: what is there is verified and taken."""
    entry = adopted(store, 1)
    staging, manifest = staged(store, 1, "again")
    assert store.adopt(staging, manifest) == entry
    assert store.adopt(store.stage("empty"), manifest) == entry


def test_a_damaged_entry_is_replaced_only_by_a_whole_one(store: Store) -> None:
    """And not thrown away for a staging that has nothing to put in its place."""
    entry = adopted(store, 1)
    flip(entry.bundle / "model.yaml")
    with pytest.raises(BundleError):
        store.adopt(store.stage("empty"), entry.manifest)
    assert entry.bundle.is_dir()
    staging, manifest = staged(store, 1, "good")
    store.adopt(staging, manifest)
    assert store.verify(entry.sha256, full=True) == entry


def test_a_changed_file_is_found_at_the_next_load(store: Store) -> None:
    """Fault matrix: a bit flips in the store after verification."""
    entry = adopted(store, 1)
    store.verify(entry.sha256)
    flip(entry.bundle / "weights" / "model.bin")
    with pytest.raises(BundleError, match=r"weights/model\.bin"):
        store.verify(entry.sha256)


def test_hashing_is_not_repeated_while_nothing_changed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is restarted costs one stat a file; `full` reads all, and sees rot that left no trace."""
    entry = adopted(store, 1)
    store.verify(entry.sha256, full=True)
    hashed: list[str] = []
    whole = disk.hash_file

    def counted(folder: Path, name: str) -> str:
        hashed.append(name)
        return whole(folder, name)

    monkeypatch.setattr(disk, "hash_file", counted)
    store.verify(entry.sha256)
    assert hashed == []
    flip(entry.bundle / "model.yaml", keep_times=True)
    with pytest.raises(BundleError):
        store.verify(entry.sha256, full=True)
    assert hashed


def test_the_newest_confirmation_is_the_first_to_fall_back_to(store: Store, tmp_path: Path) -> None:
    """Then older ones, then the factory's; not what is unconfirmed, damaged, another model's, excluded."""
    first, second, third, unproven = (adopted(store, version) for version in (1, 2, 3, 4))
    for entry in (second, first, third):
        store.confirm(entry.sha256)
    flip(third.bundle / "model.yaml")
    factory = tmp_path / "factory"
    assert list(store.fallbacks("traffic")) == [first.bundle, second.bundle, factory]
    assert list(store.fallbacks("traffic", without={first.sha256})) == [second.bundle, factory]
    assert list(store.fallbacks("another")) == [factory]
    store.confirm(second.sha256)
    assert next(store.fallbacks("traffic")) == second.bundle
    assert unproven.confirmed_order is None


def test_confirming_twice_changes_nothing(store: Store) -> None:
    """The recovery of CONFIRM repeats it."""
    entry = adopted(store, 1)
    store.confirm(entry.sha256)
    once = store.find(entry.sha256)
    store.confirm(entry.sha256)
    assert store.find(entry.sha256) == once
    assert once.confirmed_order == 1


def test_a_marker_of_zeros_confirms_nothing(store: Store) -> None:
    """Casebook 35: presence is not taken for wholeness."""
    entry = adopted(store, 1)
    (entry.folder / "CONFIRMED").write_bytes(bytes(16))
    assert store.find(entry.sha256).confirmed_order is None


def test_only_what_is_kept_stays(store: Store) -> None:
    """I9: entries, damaged or not, and half-removed ones go."""
    old, new = adopted(store, 1), adopted(store, 2)
    (old.folder / "META.json").write_bytes(b"")
    assert store.collect({new.sha256}) == (old.sha256,)
    assert [entry.sha256 for entry in store.scan()[0]] == [new.sha256]
    assert store.collect({new.sha256}) == ()


def test_an_entry_leaves_by_a_synced_rename_before_its_files_go(store: Store, tmp_path: Path) -> None:
    """F8: there is no instant at which an entry of its own name is half there."""
    old = adopted(store, 1)
    recorder = Recorder(tmp_path)
    with traced(recorder):
        store.collect(())
    kinds = [step.kind for step in recorder.steps]
    assert kinds[:2] == [Kind.RENAME, Kind.SYNC_FOLDER]
    assert all(old.sha256 not in step.path or "/.dead-" in step.path for step in recorder.steps[1:])


def test_leftovers_go_at_the_start_and_the_running_update_stays(store: Store, tmp_path: Path) -> None:
    """Casebook 36: a disk is not kept full by remains of cut-short updates."""
    entry = adopted(store, 1)
    store.drop_stage("u1")
    for update_id in ("running", "stale"):
        staged(store, 2, update_id)
    (tmp_path / "store" / ".dead-x" / "deep").mkdir(parents=True)
    (tmp_path / "store" / "stray").write_bytes(b"x")
    (entry.folder / ".CONFIRMED.tmp").write_bytes(b"")
    gone = Store(tmp_path).open(keep_staging={"running"})
    assert gone == (".dead-x", "stray", "stale")
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["running"]
    assert sorted(path.name for path in entry.folder.iterdir()) == ["META.json", "bundle"]


def test_a_damaged_manifest_is_said_and_does_not_hide_the_others(store: Store) -> None:
    """One bad entry is no reason to find no model."""
    bad, good = adopted(store, 1), adopted(store, 2)
    (bad.folder / "META.json").write_bytes(b"\0" * 100)
    entries, damaged = store.scan()
    assert [entry.sha256 for entry in entries] == [good.sha256]
    assert len(damaged) == 1
    assert damaged[0].startswith(bad.sha256)
    (bad.folder / "META.json").write_bytes((good.folder / "META.json").read_bytes())
    with pytest.raises(BundleError, match="another bundle"):
        store.find(bad.sha256)
    (good.folder / "META.json").write_bytes((good.folder / "META.json").read_bytes().replace(b'"2"', b'"3"'))
    with pytest.raises(BundleError, match="not what was written"):
        store.verify(good.sha256)


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, "no_space"), (errno.EROFS, "io_error")])
def test_a_disk_that_refuses_is_named_and_what_serves_stays(store: Store, code: int, kind: str) -> None:
    """Casebook 36: inference goes on from what is there."""
    entry = adopted(store, 1)
    staging, manifest = staged(store, 2)
    with traced(FailAt(0, code)):
        with pytest.raises(StorageError) as caught:
            store.adopt(staging, manifest)
        assert store.verify(entry.sha256, full=True) == entry
    assert caught.value.kind == kind


def test_space_is_refused_before_it_is_needed(tmp_path: Path) -> None:
    """Casebook 36: the reserve belongs to everybody else."""
    free_bytes = DiskSpace(tmp_path, reserve_bytes=0).free_bytes()
    DiskSpace(tmp_path, reserve_bytes=0).require(free_bytes // 2)
    with pytest.raises(StorageError, match="beside a reserve of") as caught:
        DiskSpace(tmp_path, reserve_bytes=2 * free_bytes).require(1)
    assert caught.value.kind == "no_space"
    with pytest.raises(StorageError, match="unknown"):
        DiskSpace(tmp_path / "absent").free_bytes()
