"""A sample of the crash proofs of whole updates."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.crash.child import run_in_child
from tests.crash.disk_model import read_tree, write_tree
from tests.crash.proof import cases_of, reference_of
from tests.crash.scenario import KILLED
from tests.crash.scenario_update import UPDATES
from tests.crash.traces import KillAt, Recorder

from vedette.fsops import Point, traced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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


def test_a_candidate_is_given_up_after_three_kills_and_no_earlier(tmp_path: Path) -> None:
    """A soak kills at random, also while a candidate is loaded; it is then rightly suspected."""
    root, words = tmp_path / "root", list[str]()
    write_tree(reference_of(UPDATES[0].name).start, root)
    for life in range(3):
        step = in_preflight(read_tree(root), tmp_path / f"rehearsed-{life}")

        def run(say: Callable[[str], None], step: int = step) -> list[str]:
            with traced(KillAt(step)):
                UPDATES[0].run(root, say)
            return []

        died = run_in_child(run)
        assert died.killed_by is not None
        words += [*died.said, KILLED]
        assert list(UPDATES[0].check(root, words, ended=False)) == []
    UPDATES[0].run(root, words.append)
    assert list(UPDATES[0].check(root, words, ended=True)) == []
    words.remove(KILLED)
    assert [what[:2] for what in UPDATES[0].check(root, words, ended=True)] == ["I6"]


def in_preflight(state: dict[str, bytes | None], root: Path) -> int:
    """The number of the step after the candidate was loaded the first time, in a run from a state."""
    write_tree(state, root)
    recorder = Recorder(root)
    with traced(recorder):
        UPDATES[0].run(root, lambda _word: None)
    switch = next(number for number, step in enumerate(recorder.steps) if step.point is Point.SWITCH)
    return switch - 2  # a write and a sync, by which it is READY
