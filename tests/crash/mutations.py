"""Programs with one mistake each, which the proofs must find: a sync forgotten, a record written too early.

A mistake is made in the recorded steps of a scenario, so what it does to a disk is what the author's mistake
would do. Each says that the step it is about is needed: nothing in the product is synced in vain.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.careless import Careless
from tests.crash.proof import Case, prove, record, reference_of
from tests.crash.traces import Recorder

from vedette.fsops import Kind, Operation, Point

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.crash.proof import Reference


class Mutation(NamedTuple):
    """A mistake in the steps of one point: one kind of step left out, or all done after `overtaken_by`."""

    scenario: str
    point: Point
    forgotten: Kind | None = None
    overtaken_by: Point | None = None

    def __str__(self) -> str:
        """What the author did."""
        if self.forgotten is not None:
            return f"{self.scenario}: {self.point.name} without {self.forgotten.value}"
        assert self.overtaken_by is not None
        return f"{self.scenario}: {self.overtaken_by.name} before {self.point.name}"


FORGOTTEN = tuple(
    Mutation(scenario, point, forgotten=kind)
    for scenario, point, kind in (
        ("journal", Point.RECORD, Kind.SYNC),
        ("journal", Point.RECORD, Kind.SYNC_FOLDER),
        ("part file", Point.BLOCK, Kind.SYNC),
        ("part file", Point.BLOCK, Kind.SYNC_FOLDER),
        ("part file", Point.MAP, Kind.SYNC),
        ("store", Point.RECORD, Kind.SYNC),
        ("store", Point.ADOPT, Kind.SYNC),
        ("store", Point.ADOPT, Kind.SYNC_FOLDER),
        ("store", Point.META, Kind.SYNC),
        ("store", Point.META, Kind.SYNC_FOLDER),
        ("store", Point.CONFIRM, Kind.SYNC),
        ("store", Point.CONFIRM, Kind.SYNC_FOLDER),
        ("store", Point.COLLECT, Kind.SYNC_FOLDER),
        ("update delta", Point.OUTPUT, Kind.SYNC_FOLDER),
        ("update delta", Point.TRUST, Kind.SYNC),
        ("update delta", Point.CONFIRM, Kind.SYNC_FOLDER),
        ("update rollback", Point.OUTBOX, Kind.SYNC_FOLDER),
        ("update rollback", Point.RECORD, Kind.SYNC),
    )
)
TOO_EARLY = (
    Mutation("part file", Point.BLOCK, overtaken_by=Point.MAP),
    Mutation("store", Point.ADOPT, overtaken_by=Point.RECORD),
    Mutation("update delta", Point.CONFIRM, overtaken_by=Point.RECORD),
    Mutation("update rollback", Point.OUTBOX, overtaken_by=Point.RECORD),
)
MUTATIONS = (*FORGOTTEN, *TOO_EARLY)


class Found(NamedTuple):
    """The step at which the power had to go, and what broke then."""

    step: int
    violation: str


def find_mistake(mutation: Mutation) -> Found | None:
    """Cut the power where it hurts most first; None when no cut breaks anything."""
    reference = reference_of(mutation.scenario)
    steps, touched = _mutated(reference.recorder.steps, mutation)
    if not touched:
        raise AssertionError(f"{mutation}: the scenario has no such step")
    careless = _with_steps(reference, steps)
    nearest = sorted(range(len(steps) + 1), key=lambda step: abs(step - touched[-1] - 2))
    for step in nearest:
        violations = prove(careless, Case(mutation.scenario, "cut", step)).violations
        if violations:
            return Found(step, violations[0])
    return None


def careless_findings() -> dict[str, str]:
    """What each kind of fault shows of a program that overwrites in place; empty words for nothing."""
    reference = record(Careless())
    found = {}
    for how, step in (("kill", 1), ("cut", 2), ("EIO", 1)):
        violations = prove(reference, Case("careless", how, step)).violations
        found[how] = violations[0] if violations else ""
    return found


def _mutated(steps: list[Operation], mutation: Mutation) -> tuple[list[Operation], list[int]]:
    """The steps of the careless program, and the numbers of those that are not what they were."""
    if mutation.forgotten is None:
        return _overtaken(steps, mutation)
    kind = (mutation.point, mutation.forgotten)
    touched = [number for number, step in enumerate(steps) if (step.point, step.kind) == kind]
    # The numbers of all other steps stay, and with them the promises.
    nothing = {number: steps[number]._replace(kind=Kind.UNLINK, path="no such file") for number in touched}
    return [nothing.get(number, step) for number, step in enumerate(steps)], touched


def _overtaken(steps: list[Operation], mutation: Mutation) -> tuple[list[Operation], list[int]]:
    """Blocks of steps of the point change places with a block of the other that follows at once."""
    blocks = [list(block) for _, block in itertools.groupby(steps, key=lambda step: step.point)]
    touched: list[int] = []
    done = 0
    for at in range(len(blocks) - 1):
        if (blocks[at][0].point, blocks[at + 1][0].point) == (mutation.point, mutation.overtaken_by):
            blocks[at], blocks[at + 1] = blocks[at + 1], blocks[at]
            touched.append(done + len(blocks[at]))
        done += len(blocks[at])
    return list(itertools.chain.from_iterable(blocks)), touched


def _with_steps(reference: Reference, steps: Iterable[Operation]) -> Reference:
    recorder = Recorder(reference.recorder.root)
    recorder.promises = reference.recorder.promises
    recorder.steps = list(steps)
    return dataclasses.replace(reference, recorder=recorder)
