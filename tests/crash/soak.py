"""Random kills at random instants, one after another on the same state."""

from __future__ import annotations

import functools
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.child import run_in_child
from tests.crash.proof import scratch
from tests.crash.registry import find
from tests.crash.scenario import KILLED

from vedette.update.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.scenario import Scenario

KILL_SHARE = 0.85  # the rest may come to its end
KILL_WITHIN = 1.1  # of the time that a whole run takes
KILLS_PER_JOB = 10


class SoakJob(NamedTuple):
    """So many kills of the scenarios in turn, beginning with the one of number `first`."""

    names: tuple[str, ...]
    first: int
    kills: int
    seed: int


@dataclass
class SoakResult:
    """What was done, and every invariant that broke."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def soak_jobs(names: list[str], kills: int, seed: int) -> list[SoakJob]:
    """The kills in shares, so that two processes and an onlooker have their part of them."""
    shares = [min(KILLS_PER_JOB, kills - done) for done in range(0, kills, KILLS_PER_JOB)]
    return [SoakJob(tuple(names), index, share, seed + index) for index, share in enumerate(shares)]


def soak(job: SoakJob) -> SoakResult:
    """Run the scenarios, in turn, until so many runs were killed and the last came to its end."""
    result = SoakResult()
    chance = random.Random(job.seed)  # noqa: S311 - repeatable
    turn = job.first
    while result.counts["kills"] < job.kills and not result.violations:
        _one_life(find(job.names[turn % len(job.names)]), chance, job.kills, result)
        turn += 1
    return result


def _one_life(scenario: Scenario, chance: random.Random, kills: int, result: SoakResult) -> None:
    """From `prepare` to the end of the story, with as many kills as it takes."""
    cycle_s = _cycle_s(scenario.name)
    with scratch() as folder:
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
        result.counts["hashed"] += _hash_store(root)


def _hash_store(root: Path) -> int:
    """Every bundle of the store, read whole and held against its manifest; how many there are.

    Raises:
        BundleError: One is not what it was.
    """
    if not (root / "store").is_dir():
        return 0
    store = Store(root)
    entries, _damaged = store.scan()
    for entry in entries:
        store.verify(entry.sha256, full=True)
    return len(entries)


def _one_run(
    scenario: Scenario, root: Path, promises: list[str], after_s: float | None, result: SoakResult
) -> bool:
    outcome = run_in_child(lambda say: _run(scenario, root, say), kill_after_s=after_s)
    promises += outcome.said
    ended = outcome.result is not None
    if outcome.killed_by is not None:
        result.counts["kills"] += 1
        if scenario.counts_kills:
            promises.append(KILLED)
    if outcome.error is not None:
        result.violations.append(f"{scenario.name}: {outcome.error}")
    broken = list(scenario.check(root, promises, ended=ended))
    result.violations += [f"{scenario.name}, killed after {after_s}: {what}" for what in broken]
    return ended


@functools.cache
def _cycle_s(name: str) -> float:
    """How long a run takes here that nobody kills."""
    scenario = find(name)
    with scratch() as folder:
        root = folder / "root"
        root.mkdir()
        scenario.prepare(root)
        begin_s = time.monotonic()
        run_in_child(lambda say: _run(scenario, root, say))
        return time.monotonic() - begin_s


def _run(scenario: Scenario, root: Path, say: Callable[[str], None]) -> list[str]:
    scenario.run(root, say)
    return []
