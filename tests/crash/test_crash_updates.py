"""A sample of the crash proofs of whole updates, and proof that they see what they are there to see."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.crash.proof import Case, cases_of, prove, reference_of
from tests.crash.scenario_update import UPDATES
from tests.crash.test_crash_proofs import without

from vedette.fsops import Kind, Point


def test_a_sample_of_the_updates_holds() -> None:
    """Invariants I1, I3, I4, I6, I8, I9 after kills, power cuts and failing disks; `make crash` runs all."""
    names = [argument for scenario in UPDATES for argument in ("--scenario", scenario.name)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", *names, "--sample", "0.02"],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].split()[-1] == "0"


def test_every_kind_of_step_of_an_update_is_cut_at() -> None:
    """Each durability point of the machine occurs in the scenarios."""
    points = {step.point for scenario in UPDATES for step in reference_of(scenario.name).recorder.steps}
    wanted = {
        Point.BLOCK,
        Point.RECORD,
        Point.MAP,
        Point.ADOPT,
        Point.META,
        Point.SWITCH,
        Point.CONFIRM,
        Point.COLLECT,
        Point.OUTBOX,
        Point.TRUST,
        Point.OUTPUT,
    }
    assert wanted <= points
    assert sum(len(cases_of(reference_of(scenario.name))) for scenario in UPDATES) > 5000


@pytest.mark.parametrize(
    ("scenario", "point", "kind"),
    [
        ("update delta", Point.OUTPUT, Kind.SYNC_FOLDER),
        ("update delta", Point.TRUST, Kind.SYNC),
        ("update delta", Point.CONFIRM, Kind.SYNC_FOLDER),
        ("update rollback", Point.OUTBOX, Kind.SYNC_FOLDER),
        ("update rollback", Point.RECORD, Kind.SYNC),
    ],
)
def test_a_sync_that_the_driver_forgets_is_found(scenario: str, point: Point, kind: Kind) -> None:
    """Without it some power cut breaks an invariant."""
    reference = reference_of(scenario)
    careless = without(reference, point, kind)
    kinds = [(step.point, step.kind) for step in reference.recorder.steps]
    last = len(kinds) - 1 - kinds[::-1].index((point, kind))
    steps = sorted(range(len(careless.recorder.steps) + 1), key=lambda step: abs(step - last - 2))
    assert any(prove(careless, Case(scenario, "cut", step)).violations for step in steps)
