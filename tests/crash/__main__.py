"""Proves every registered crash scenario, or soaks them in random kills.

`python -m tests.crash [--scenario NAME] [--jobs N] [--sample SHARE]` runs the cases of `scenario`;
`python -m tests.crash --soak N` kills N runs at random instants. Exit 1 on any violation.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.crash.proof import Case, Verdict, cases_of, prove, reference_of
from tests.crash.registry import ALL
from tests.crash.soak import soak

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SHOWN = 20
_HEAD = "{:<14}{:>8}{:>8}{:>8}{:>10}{:>12}{:>10}{:>8}{:>12}"


def prove_case(case: Case) -> Verdict:
    """Run one case in a worker."""
    return prove(reference_of(case.scenario), case)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say by the exit code whether all was well."""
    options = _parse(arguments)
    names = options.scenario or [scenario.name for scenario in ALL]
    if options.soak:
        return _soak(names, options.soak, options.jobs, options.seed)
    begin_s = time.monotonic()
    cases = [case for name in names for case in cases_of(reference_of(name))]
    if options.sample < 1:
        cases = random.Random(options.seed).sample(cases, round(len(cases) * options.sample))  # noqa: S311
    verdicts = _in_parallel(cases, options.jobs)
    violations = _report(names, verdicts)
    print(f"{time.monotonic() - begin_s:.0f} s", file=sys.stderr)  # noqa: T201
    return 1 if violations else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    names = [scenario.name for scenario in ALL]
    parser.add_argument("--scenario", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sample", type=float, default=1.0, help="share of the cases, 0 to 1")
    parser.add_argument("--soak", type=int, default=0, metavar="N", help="N random kills instead")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def _in_parallel(cases: list[Case], jobs: int) -> list[Verdict]:
    verdicts = []
    shown = sys.stderr.isatty()
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for verdict in pool.imap_unordered(prove_case, cases, chunksize=8):
            verdicts.append(verdict)
            if shown and len(verdicts) % 20 == 0:
                print(f"\r{len(verdicts)} of {len(cases)} cases", end="", file=sys.stderr)  # noqa: T201
    if shown:
        print(file=sys.stderr)  # noqa: T201
    return verdicts


def _report(names: list[str], verdicts: list[Verdict]) -> int:
    by_scenario: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_scenario[verdict.case.scenario].append(verdict)
    lines = [
        _HEAD.format(
            "scenario", "points", "steps", "kills", "images", "kill+image", "distinct", "errnos", "violations"
        )
    ]
    total: Counter[str] = Counter()
    for name in names:
        steps = reference_of(name).recorder.steps
        row = Counter(points=len({(step.point, step.kind) for step in steps}), steps=len(steps))
        for verdict in by_scenario[name]:
            how = verdict.case.how
            row["errno" if how not in {"kill", "cut", "kill+cut"} else how] += verdict.images
            row["distinct"] += verdict.distinct if "cut" in how else 0
            row["violations"] += len(verdict.violations)
        total += row
        lines.append(_line(name, row))
    lines.append(_line("all", total))
    print("\n".join(lines))  # noqa: T201
    _show_violations(verdicts)
    return total["violations"]


def _line(name: str, row: Counter[str]) -> str:
    columns = ("points", "steps", "kill", "cut", "kill+cut", "distinct", "errno", "violations")
    return _HEAD.format(name, *(row[column] for column in columns))


def _show_violations(verdicts: list[Verdict]) -> None:
    broken = [(verdict.case, what) for verdict in verdicts for what in verdict.violations]
    for case, what in broken[:MAX_SHOWN]:
        steps = reference_of(case.scenario).recorder.steps
        step = steps[case.step] if case.step < len(steps) else None
        at = f"{step.point.value} {step.kind.value} {step.path}" if step else "the end"
        print(f"\n{case.scenario}, {case.how} at step {case.step} ({at}):\n  {what}")  # noqa: T201
    if len(broken) > MAX_SHOWN:
        print(f"\n… and {len(broken) - MAX_SHOWN} more")  # noqa: T201


def _soak(names: list[str], kills: int, jobs: int, seed: int) -> int:
    shares = [(names, kills // jobs + (job < kills % jobs), seed + job) for job in range(jobs)]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        results = pool.starmap(soak, shares)
    total = sum((result.counts for result in results), Counter())
    broken = [what for result in results for what in result.violations]
    print(  # noqa: T201
        f"{total['kills']} random kills of {len(names)} scenarios, {total['ends']} ran to their end, "
        f"{len(broken)} violations; seed {seed}"
    )
    for what in broken[:MAX_SHOWN]:
        print(f"\n{what}")  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
