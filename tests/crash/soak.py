"""Random kills at random instants, one after another on the same state."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash.child import run_in_child
from tests.crash.proof import scratch
from tests.crash.registry import find

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.crash.scenario import Scenario

KILL_SHARE = 0.85  # the rest may come to its end
KILL_WITHIN = 1.1  # of the time that a whole run takes


@dataclass
class SoakResult:
    """What was done, and every invariant that broke."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def soak(names: Iterable[str], kills: int, seed: int) -> SoakResult:
    """Run the scenarios, in turn, until so many runs were killed."""
    result = SoakResult()
    chance = random.Random(seed)  # noqa: S311 - repeatable
    scenarios = [find(name) for name in names]
    while result.counts["kills"] < kills and not result.violations:
        _one_life(scenarios[result.counts["ends"] % len(scenarios)], chance, kills, result)
    return result


def _one_life(scenario: Scenario, chance: random.Random, kills: int, result: SoakResult) -> None:
    """From `prepare` to the end of the story, with as many kills as it takes."""
    with scratch() as folder:
        cycle_s = _cycle_s(scenario, folder / "timed")
        root = folder / "root"
        root.mkdir()
        scenario.prepare(root)
        promises: list[str] = []
        ended = False
        while not ended:
            killed = chance.random() < KILL_SHARE and result.counts["kills"] < kills
            after_s = chance.uniform(0, KILL_WITHIN * cycle_s) if killed else None
            ended = _one_run(scenario, root, promises, after_s, result)
            if result.violations:
                return
        result.counts["ends"] += 1
        shutil.rmtree(folder / "timed")


def _one_run(
    scenario: Scenario, root: Path, promises: list[str], after_s: float | None, result: SoakResult
) -> bool:
    outcome = run_in_child(lambda say: _run(scenario, root, say), kill_after_s=after_s)
    promises += outcome.said
    ended = outcome.result is not None
    result.counts["kills"] += outcome.killed_by is not None
    if outcome.error is not None:
        result.violations.append(f"{scenario.name}: {outcome.error}")
    checked = run_in_child(lambda _say: list(scenario.check(root, promises, ended=ended)))
    broken = checked.result if checked.result is not None else [checked.error or "the check died"]
    result.violations += [f"{scenario.name}, killed after {after_s}: {what}" for what in broken]
    return ended


def _cycle_s(scenario: Scenario, root: Path) -> float:
    root.mkdir()
    scenario.prepare(root)
    begin_s = time.monotonic()
    run_in_child(lambda say: _run(scenario, root, say))
    return time.monotonic() - begin_s


def _run(scenario: Scenario, root: Path, say: Callable[[str], None]) -> list[str]:
    scenario.run(root, say)
    return []
