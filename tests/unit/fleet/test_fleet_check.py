"""`check`, and repairing what it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.fleet.stand import Desk, bundle, weights
from tests.unit.fleet.test_fleet_unreadable import begin, sign_unreadable

from vedette.errors import BadInputError
from vedette.wire.release import EncodingKind
from vedette_fleet.repository_check import Checked, check_repository

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path).initialised()
    for number in (1, 2):
        made.release(bundle(tmp_path, str(number), weights(tuned=number / 100)))
    begin(made, "summer", "tiny@2")
    return made


def check(desk: Desk) -> Checked:
    return check_repository(desk.workshop, lambda _what, _done, _total: None)


def blob_of(desk: Desk, version: str, kind: EncodingKind = EncodingKind.FULL) -> Path:
    manifest = desk.device().manifest(f"models/demo/tiny/{version}.json")
    assert manifest is not None
    file = next(file for file in manifest.files if file.path == "tiny.onnx")
    item = next(item for item in file.encodings if item.kind is kind)
    return desk.repository.path / "blobs" / item.sha256


def flip(path: Path) -> None:
    """One byte of another value, the size as it was: what a failing disk leaves."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(content)


def test_a_whole_repository_is_found_whole(desk: Desk) -> None:
    before = {path: path.read_bytes() for path in desk.repository.path.rglob("*") if path.is_file()}
    checked = check(desk)
    assert checked.problems == ()
    assert checked.releases == 2
    assert checked.blobs == len(list((desk.repository.path / "blobs").iterdir()))
    assert checked.blob_bytes == sum(
        path.stat().st_size for path in (desk.repository.path / "blobs").iterdir()
    )
    assert {entry.role for entry in checked.expiries} >= {"root", "timestamp", "models-demo"}
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("kind", list(EncodingKind))
def test_a_blob_with_a_flipped_byte_is_found_and_releasing_again_repairs_it(
    desk: Desk, kind: EncodingKind
) -> None:
    """Rot on the publisher's disk; the size alone would not tell."""
    path = blob_of(desk, "2", kind)
    whole = path.read_bytes()
    flip(path)
    [problem] = check(desk).problems
    assert problem.where == f"demo/tiny@2 tiny.onnx ({kind.value})"
    assert "other bytes than its name says" in problem.what
    assert "release its bundle again" in (problem.cure or "")
    released = desk.release(desk.folder / "tiny-2")
    assert released.outcome is None
    assert [text.partition(":")[0] for text in released.repaired] == [f"tiny.onnx ({kind.value})"]
    assert path.read_bytes() == whole
    assert check(desk).problems == ()


def test_a_damaged_base_is_repaired_by_the_cure_that_the_message_names(desk: Desk) -> None:
    """Case 38."""
    flip(blob_of(desk, "2"))
    third = bundle(desk.folder, "3", weights(tuned=0.03))
    with pytest.raises(BadInputError, match="no whole blob") as caught:
        desk.release(third)
    assert "release the base's bundle again" in (caught.value.cure or "")
    desk.release(desk.folder / "tiny-2")
    assert desk.release(third).outcome is not None


def test_everything_that_is_wrong_is_told_at_once(desk: Desk) -> None:
    blob_of(desk, "1").unlink()
    cut = blob_of(desk, "2")
    cut.write_bytes(cut.read_bytes()[:-1])
    manifest = next((desk.repository.path / "targets" / "models" / "demo" / "tiny").glob("*.1.json"))
    sign_unreadable(desk)
    told = {problem.where: problem.what for problem in check(desk).problems}
    assert "is missing" in told["demo/tiny@1 tiny.onnx (full)"]
    assert "bytes instead of" in told["demo/tiny@2 tiny.onnx (full)"]
    assert "devices cannot read it" in told["rollouts"]
    flip(manifest)
    assert "demo/tiny@1" in {problem.where for problem in check(desk).problems}


def test_expired_roles_are_told_and_signing_anew_cures_it(desk: Desk) -> None:
    later = desk.later(days=10)
    told = {problem.where: problem.cure for problem in check(later).problems}
    assert told.keys() == {"timestamp", "rollouts"}
    later.workshop.refresh([])
    assert check(later).problems == ()


@pytest.mark.parametrize("name", ["1.root.json", "timestamp.json", "3.snapshot.json", "2.targets.json"])
def test_damaged_metadata_is_told_and_not_read_over(desk: Desk, name: str) -> None:
    desk.workshop.refresh(["targets"])
    path = desk.repository.path / "metadata" / name
    if name == "3.snapshot.json":
        path = next(iter(sorted(desk.repository.path.glob("metadata/*.snapshot.json"), key=_number)[-1:]))
    flip(path)
    assert check(desk).problems != ()


def _number(path: Path) -> int:
    return int(path.name.partition(".")[0])


def test_metadata_of_an_older_version_in_a_newer_ones_place_is_told(desk: Desk) -> None:
    """Signed well, and still not what the snapshot lists: devices refuse it."""
    folder = desk.repository.path / "metadata"
    (folder / "3.models-demo.json").write_bytes((folder / "2.models-demo.json").read_bytes())
    [problem] = check(desk).problems
    assert "says version 2" in problem.what


def test_no_repository_is_an_error_and_no_empty_report(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no update repository"):
        check(Desk(tmp_path))
