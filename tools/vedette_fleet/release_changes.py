"""What a new version changes of the one before, as whoever reads the answers would notice it. Pure.

A device cannot tell a new meaning from a better model: its trial asks for the same speed and as much variety.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vedette.wire.bundle import ModelSpec


@dataclass(frozen=True)
class Described:
    """What a release answers; `classes` by index, `input_size` is width and height in pixels."""

    version: str
    task: str
    classes: tuple[str, ...]
    input_size: tuple[int, int]


def describe(spec: ModelSpec, lines: tuple[str, ...]) -> Described:
    """A bundle's description from its `model.yaml` and the lines of its label file."""
    labels = spec.output.labels
    offset = 0 if labels is None else labels.offset
    return Described(spec.version, spec.task.value, lines[offset:], spec.input.size)


def is_other_task(before: Described, after: Described) -> bool:
    """Whether the answers are of another kind, which no reader of the old ones understands."""
    return before.task != after.task


def changes_of(before: Described, after: Described) -> tuple[str, ...]:
    """What an operator should know before a rollout, a sentence each; none when nothing is noticed."""
    found: list[str] = []
    if is_other_task(before, after):
        found.append(f"task: {before.task} in {before.version}, {after.task} in {after.version}")
    pairs = list(enumerate(zip_longest(before.classes, after.classes)))
    changed = [(index, old, new) for index, (old, new) in pairs if old != new]
    if changed:
        index, old, new = changed[0]
        noun = "label" if len(changed) == 1 else "labels"
        found.append(
            f"{len(changed)} {noun} changed since {before.version} ({len(before.classes)} before, "
            f"{len(after.classes)} now), the first at index {index}: {_shown(old)} is now {_shown(new)}"
        )
    if before.input_size != after.input_size:
        old_size, new_size = ("x".join(map(str, known.input_size)) for known in (before, after))
        found.append(f"input: {old_size} pixels in {before.version}, {new_size} in {after.version}")
    return tuple(found)


def _shown(label: str | None) -> str:
    return "none" if label is None else repr(label)
