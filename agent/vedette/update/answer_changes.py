"""What a candidate changes of the answers, as whoever reads them would notice it.

A trial asks for the same speed and as much variety; a new meaning of the answers it cannot see.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from vedette.bundle import disk
from vedette.bundle.folder import MAX_LABELS_BYTES, MAX_SPEC_BYTES, SPEC_NAME, parse_spec
from vedette.bundle.labels import parse_labels

if TYPE_CHECKING:
    from pathlib import Path


class Answers(NamedTuple):
    """What a bundle answers: the kind of its answers, and its classes by index."""

    task: str
    classes: tuple[str, ...]


def read_answers(folder: Path) -> Answers:
    """What a bundle that was verified answers, by its `model.yaml` and its label file.

    Raises:
        BundleError: They cannot be read.
    """
    spec = parse_spec(disk.read_file(folder, SPEC_NAME, MAX_SPEC_BYTES))
    labels = spec.output.labels
    if labels is None:
        return Answers(spec.task.value, ())
    lines = parse_labels(disk.read_file(folder, labels.file, MAX_LABELS_BYTES), labels)
    return Answers(spec.task.value, lines[labels.offset :])


def task_change(before: Answers, after: Answers) -> str:
    """Why no reader of the old answers would understand the new ones; empty when they would."""
    if before.task == after.task:
        return ""
    return (
        f"it answers `{after.task}`, the model that serves `{before.task}`: no reader would know its answers"
    )


def class_change(before: Answers, after: Answers) -> str:
    """Which classes mean something else now, for people; empty when none does."""
    pairs = enumerate(zip_longest(before.classes, after.classes))
    changed = [(index, old, new) for index, (old, new) in pairs if old != new]
    if not changed:
        return ""
    index, old, new = changed[0]
    counts = f"{len(before.classes)} classes before, {len(after.classes)} now"
    return (
        f"{len(changed)} of its classes differ ({counts}), the first at index {index}: {_shown(old)} is now "
        f"{_shown(new)}"
    )


def _shown(label: str | None) -> str:
    return "none" if label is None else repr(label[:64])
