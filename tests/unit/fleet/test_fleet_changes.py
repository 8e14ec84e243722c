"""What a new version changes of the one before is told, and another task is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.bundle.workshop import write_bundle
from tests.unit.fleet.stand import Desk, bundle

from vedette.errors import BadInputError
from vedette_fleet.release_changes import Described, changes_of, is_other_task

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = Described("1", "classify", ("cat", "dog", "owl"), (8, 8))
DETECTOR: dict[str, Any] = {
    "task": "detect",
    "output": {"layout": "yolov8", "labels": {"count": 3}},
}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path).initialised()
    made.release(bundle(tmp_path, "1"))
    return made


def test_labels_that_moved_are_counted_and_the_first_is_named() -> None:
    assert changes_of(BEFORE, Described("2", "classify", BEFORE.classes, (8, 8))) == ()
    [said] = changes_of(BEFORE, Described("2", "classify", ("cat", "emu", "dog", "owl"), (8, 8)))
    assert "3 labels changed since 1 (3 before, 4 now)" in said
    assert "index 1: 'dog' is now 'emu'" in said
    [said] = changes_of(BEFORE, Described("2", "classify", ("cat", "dog"), (8, 8)))
    assert "1 label changed" in said
    assert "'owl' is now none" in said


def test_another_input_size_and_another_task_are_told() -> None:
    other = Described("2", "detect", BEFORE.classes, (16, 8))
    assert is_other_task(BEFORE, other)
    task, size = changes_of(BEFORE, other)
    assert (task, size) == ("task: classify in 1, detect in 2", "input: 8x8 pixels in 1, 16x8 in 2")


def test_a_detector_under_a_classifiers_name_is_refused_unless_meant(desk: Desk, tmp_path: Path) -> None:
    """Case 22: every reader of the answers would meet boxes where it looks for a class."""
    folder = write_bundle(tmp_path / "d", version="2", **DETECTOR)
    with pytest.raises(BadInputError, match="is a `detect` model") as caught:
        desk.release(folder)
    assert "--allow-other-task" in (caught.value.cure or "")
    assert desk.device().manifest("models/demo/tiny/2.json") is None
    released = desk.release(folder, allow_other_task=True)
    assert "task: classify in 1, detect in 2" in released.changes
    assert released.manifest.other_task, "or every device would refuse it"
    assert desk.release(bundle(tmp_path, "3"), allow_other_task=True).outcome is not None


def test_other_labels_are_published_with_a_warning(desk: Desk, tmp_path: Path) -> None:
    """Case 25: the same weights with lines in another order."""
    folder = write_bundle(tmp_path / "l", {"labels.txt": b"dog\ncat\nowl\n"}, version="2")
    released = desk.release(folder)
    assert released.outcome is not None
    [said] = released.changes
    assert "2 labels changed since 1" in said


def test_the_version_before_is_that_of_any_owner(desk: Desk, tmp_path: Path) -> None:
    """A device knows a model by its name alone."""
    desk.workshop.add_owner("acme")
    with pytest.raises(BadInputError, match="demo/tiny@1 is a `classify` model"):
        desk.release(write_bundle(tmp_path / "d", version="2", **DETECTOR), owner="acme")


def test_a_version_before_that_cannot_be_read_is_never_taken_for_the_same(desk: Desk, tmp_path: Path) -> None:
    for path in (desk.repository.path / "blobs").iterdir():
        path.write_bytes(b"")
    second = bundle(tmp_path, "2")
    with pytest.raises(BadInputError, match="no whole blob"):
        desk.release(second, bases=())
    released = desk.release(second, bases=(), allow_other_task=True)
    assert "not compared with version 1" in released.changes[0]
