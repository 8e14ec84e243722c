"""A sample of the crash proofs of whole updates."""

from __future__ import annotations

import subprocess
import sys

from tests.crash.proof import cases_of, reference_of
from tests.crash.scenario_update import UPDATES

from vedette.fsops import Point


def test_a_sample_of_the_updates_holds() -> None:
    """Invariants I1 to I9 after kills, power cuts and failing disks; `make crash` runs all."""
    names = [argument for scenario in UPDATES for argument in ("--scenario", scenario.name)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", *names, "--sample", "0.02"],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("violations of I1 to I10: 0")


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
    assert sum(len(cases_of(reference_of(scenario.name))) for scenario in UPDATES) > 3500
