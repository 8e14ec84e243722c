"""Releases: blobs, deltas, refusals, and publishing that is cut off."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import bsdiff4
import pytest
from backports import zstd
from tests.unit.bundle.workshop import write_sums
from tests.unit.fleet.stand import Desk, PowerCut, PowerCutError, bundle, weights

from vedette import fsops
from vedette.bundle.folder import load_bundle
from vedette.errors import BadInputError, BundleError, UnavailableError, UsageError
from vedette.wire.release import Codec, EncodingKind, ReleaseFile, ReleaseManifest
from vedette_fleet.release import journeys_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path).initialised()


def blob(desk: Desk, sha256: str) -> bytes:
    content = (desk.repository.path / "blobs" / sha256).read_bytes()
    assert hashlib.sha256(content).hexdigest() == sha256
    return content


def rebuilt(desk: Desk, file: ReleaseFile, base: bytes | None = None) -> bytes:
    """A file as a device would make it: from the full blob, or from a delta to `base`."""
    for item in file.encodings:
        if base is None and item.codec is Codec.ZSTD:
            return zstd.decompress(blob(desk, item.sha256))
        if base is None and item.codec is Codec.RAW:
            return blob(desk, item.sha256)
        if base is not None and item.base_sha256 == hashlib.sha256(base).hexdigest():
            patched: bytes = bsdiff4.patch(base, blob(desk, item.sha256))
            return patched
    raise AssertionError(file)


def model_file(manifest: ReleaseManifest) -> ReleaseFile:
    return next(file for file in manifest.files if file.path == "tiny.onnx")


def test_a_fine_tune_costs_a_few_per_cent_of_the_model(desk: Desk, tmp_path: Path) -> None:
    first = bundle(tmp_path, "1")
    second = bundle(tmp_path, "2", weights(tuned=0.02))
    desk.release(first)
    released = desk.release(second)
    manifest = desk.device().manifest("models/demo/tiny/2.json")
    assert manifest == released.manifest
    assert manifest is not None
    file = model_file(manifest)
    old, new = (folder.joinpath("tiny.onnx").read_bytes() for folder in (first, second))
    assert rebuilt(desk, file) == new
    assert rebuilt(desk, file, base=old) == new
    fresh, from_first = journeys_of(manifest, released.bases)
    assert from_first.base == "1"
    assert from_first.fetched_bytes < 0.1 * fresh.fetched_bytes
    rows = [(row.path, row.kind, row.base) for row in rows_of(manifest, released.bases)]
    assert ("labels.txt", "same", "1") in rows
    assert ("tiny.onnx", "delta", "1") in rows


def test_the_manifest_says_all_that_a_device_needs(desk: Desk, tmp_path: Path) -> None:
    """Case 64: every requirement is stated and signed, none is left to be guessed."""
    folder = bundle(tmp_path, "1")
    manifest = desk.release(folder).manifest
    loaded = load_bundle(folder)
    assert {file.path: file.sha256 for file in manifest.files} == dict(loaded.files)
    assert manifest.bundle_sha256 == loaded.sha256
    assert (manifest.counter, manifest.owner, manifest.name, manifest.version) == (1, "demo", "tiny", "1")
    assert manifest.needs.opset == (17, 17), "the file's own, where model.yaml promises none"
    assert (manifest.needs.engine, manifest.needs.arch, manifest.needs.accelerators) == ("onnx", (), ())


def test_deltas_start_from_the_last_three_releases_or_from_those_named(desk: Desk, tmp_path: Path) -> None:
    for number in range(1, 5):
        desk.release(bundle(tmp_path, str(number), weights(tuned=number / 100)))
    released = desk.release(bundle(tmp_path, "5", weights(tuned=0.05)))
    assert [base.version for base in released.bases] == ["4", "3", "2"]
    assert released.manifest.counter == 5
    kinds = [item.kind for item in model_file(released.manifest).encodings]
    assert kinds == [EncodingKind.FULL, *[EncodingKind.DELTA] * 3]
    named = desk.release(bundle(tmp_path, "6", weights(tuned=0.06)), bases=("1",))
    assert [base.version for base in named.bases] == ["1"]
    full = desk.release(bundle(tmp_path, "7", weights(tuned=0.07)), bases=())
    assert len(model_file(full.manifest).encodings) == 1
    with pytest.raises(UsageError, match="--base 9: no such release") as caught:
        desk.release(bundle(tmp_path, "8", weights(tuned=0.08)), bases=("9",))
    assert "7, 6, 5" in (caught.value.cure or "")


def test_a_delta_that_saves_too_little_is_not_published(desk: Desk, tmp_path: Path) -> None:
    desk.release(bundle(tmp_path, "1"))
    released = desk.release(bundle(tmp_path, "2", weights(seed=2)))
    assert [item.kind for item in model_file(released.manifest).encodings] == [EncodingKind.FULL]


def test_a_renamed_model_file_still_gets_a_delta(desk: Desk, tmp_path: Path) -> None:
    desk.release(bundle(tmp_path, "1"))
    folder = bundle(tmp_path, "2", weights(tuned=0.02))
    (folder / "tiny.onnx").rename(folder / "tiny_v2.onnx")
    spec = folder / "model.yaml"
    spec.write_text(spec.read_text().replace("tiny.onnx", "tiny_v2.onnx"))
    write_sums(folder)
    manifest = desk.release(folder).manifest
    renamed = next(file for file in manifest.files if file.path == "tiny_v2.onnx")
    assert [item.kind for item in renamed.encodings] == [EncodingKind.FULL, EncodingKind.DELTA]


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    trees = []
    for name in ("a", "b"):
        desk = Desk(tmp_path / name).initialised()
        for version, tuned in (("1", 0.0), ("2", 0.03)):
            desk.release(bundle(tmp_path / name, version, weights(tuned=tuned)))
        served = desk.repository.path
        trees.append(
            {
                path.relative_to(served): path.read_bytes()
                for folder in ("targets/models", "blobs")
                for path in (served / folder).rglob("*")
                if path.is_file()
            }
        )
    assert trees[0] == trees[1]


def test_the_same_bundle_again_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    folder = bundle(tmp_path, "1")
    desk.release(folder)
    before = {path: path.read_bytes() for path in desk.repository.path.rglob("*") if path.is_file()}
    again = desk.release(folder)
    assert again.outcome is None
    assert again.manifest.counter == 1
    assert {p: p.read_bytes() for p in desk.repository.path.rglob("*") if p.is_file()} == before
    with pytest.raises(UsageError, match="signed already"):
        desk.release(folder, bases=("1",))


def test_a_version_with_other_content_is_refused(desk: Desk, tmp_path: Path) -> None:
    """Case 38: the same version with other bytes would let deltas meet the wrong base."""
    desk.release(bundle(tmp_path, "1"))
    with pytest.raises(BadInputError, match="exists with other content"):
        desk.release(bundle(tmp_path / "other", "1", weights(tuned=0.5)))


def test_no_delta_is_made_when_the_base_is_gone(desk: Desk, tmp_path: Path) -> None:
    """Case 38: never a release that leans on blobs which are not there."""
    first = bundle(tmp_path, "1")
    lost = model_file(desk.release(first).manifest).encodings[0].sha256
    (desk.repository.path / "blobs" / lost).unlink()
    second = bundle(tmp_path, "2", weights(tuned=0.02))
    with pytest.raises(BadInputError, match=r"no whole blob of 'tiny\.onnx'"):
        desk.release(second)
    assert desk.device().manifest("models/demo/tiny/2.json") is None
    desk.release(first)  # the cure that the message names: it puts the blob back
    assert desk.release(second).outcome is not None


@pytest.mark.parametrize("damage", [b"", b"\0" * 500])
def test_a_damaged_base_is_no_base(desk: Desk, tmp_path: Path, damage: bytes) -> None:
    item = model_file(desk.release(bundle(tmp_path, "1")).manifest).encodings[0]
    path = desk.repository.path / "blobs" / item.sha256
    path.write_bytes(path.read_bytes()[: -len(damage) or None] + damage if damage else b"")
    with pytest.raises(BadInputError, match="no whole blob"):
        desk.release(bundle(tmp_path, "2", weights(tuned=0.02)))


def test_a_bundle_that_was_touched_after_sealing_is_refused(desk: Desk, tmp_path: Path) -> None:
    folder = bundle(tmp_path, "1")
    (folder / "labels.txt").write_text("cat\ndog\nemu\n")
    with pytest.raises(BundleError, match=r"labels\.txt"):
        desk.release(folder)


def test_counters_order_a_models_releases_whoever_signs(desk: Desk, tmp_path: Path) -> None:
    """A device knows a model by its name; another owner's first release must not look like a downgrade."""
    desk.release(bundle(tmp_path, "1"))
    desk.workshop.add_owner("acme")
    assert desk.release(bundle(tmp_path, "2"), owner="acme").manifest.counter == 2


def test_only_known_owners_release(desk: Desk, tmp_path: Path) -> None:
    folder = bundle(tmp_path, "1")
    with pytest.raises(UsageError, match="owner 'eve' has no role"):
        desk.release(folder, owner="eve")
    desk.workshop.add_owner("acme")
    with pytest.raises(UsageError, match="not clear"):
        desk.release(folder)
    assert desk.release(folder, owner="acme").name.target == "models/acme/tiny/1.json"


def test_the_first_owner_needs_no_ceremony(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.workshop.initialise([])
    released = desk.release(bundle(tmp_path, "1"), owner="demo")
    assert desk.device().manifest(released.name.target) == released.manifest


def test_the_first_owner_waits_when_the_targets_key_is_elsewhere(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.workshop.initialise([])
    (desk.keys.path / "targets-1.pem").rename(tmp_path / "targets.pem")
    with pytest.raises(UsageError, match="not admitted yet"):
        desk.release(bundle(tmp_path, "1"), owner="demo")


def test_publishing_cut_off_anywhere_leaves_the_old_release_or_shows_the_new(
    desk: Desk, tmp_path: Path
) -> None:
    """Case 35, on the publisher: killed before each durable step; then the same command again finishes."""
    desk.release(bundle(tmp_path, "1"))
    second = bundle(tmp_path, "2", weights(tuned=0.02))
    saved = tmp_path / "saved"
    shutil.copytree(desk.repository.path, saved)
    count = PowerCut()
    with fsops.traced(count):
        released = desk.release(second)
    seen_old = seen_new = 0
    for at in range(1, count.steps + 1):
        shutil.rmtree(desk.repository.path)
        shutil.copytree(saved, desk.repository.path)
        with pytest.raises(PowerCutError), fsops.traced(PowerCut(at)):
            desk.release(second)
        device = desk.device()
        assert device.manifest("models/demo/tiny/1.json") is not None
        manifest = device.manifest("models/demo/tiny/2.json")
        seen_old += manifest is None
        seen_new += manifest is not None
        assert manifest in {None, released.manifest}
        desk.release(second)
        assert device.manifest("models/demo/tiny/2.json") == released.manifest
    assert seen_old > 10
    assert seen_new >= 1, "after the timestamp's rename only the folder's sync is left"


class _FullDisk:
    def before(self, operation: fsops.Operation) -> None:
        if operation.kind is fsops.Kind.WRITE and "blobs" in operation.path:
            raise OSError(28, "No space left on device")


def test_a_full_disk_is_said_and_nothing_is_shown(desk: Desk, tmp_path: Path) -> None:
    """Case 36."""
    with pytest.raises(UnavailableError, match="No space left"), fsops.traced(_FullDisk()):
        desk.release(bundle(tmp_path, "1"))
    assert desk.device().manifest("models/demo/tiny/1.json") is None
    assert list((desk.repository.path / "blobs").iterdir()) == []
    assert desk.release(bundle(tmp_path, "1")).outcome is not None
