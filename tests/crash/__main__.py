"""Proves every registered crash scenario, or soaks them in random kills.

`python -m tests.crash [--scenario NAME] [--jobs N] [--sample SHARE]` runs the cases of `scenario`;
`python -m tests.crash --self-check` makes mistakes on purpose, and sees to it that they are found;
`python -m tests.crash --soak N` kills N runs at random instants. Exit 1 on any violation.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tests.crash.disk_model import VARIANTS
from tests.crash.invariants import INVARIANTS
from tests.crash.mutations import MUTATIONS, careless_findings, find_mistake
from tests.crash.proof import SECOND_CUTS, Case, Verdict, cases_of, prove, reference_of
from tests.crash.registry import ALL
from tests.crash.side_by_side import StalledError, side_by_side
from tests.crash.soak import SoakJob, soak, soak_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crash.soak import SoakResult

MAX_SHOWN = 20
_COLUMNS = ("points", "steps", "kill", "cut", "kill+cut", "errno", "restarts", "violations")
_HEAD = ("points", "steps", "kills", "images", "kill+image", "errnos", "restarts", "violations")
_ROW = "{:<16}{:>8}{:>8}{:>8}{:>9}{:>12}{:>8}{:>10}{:>12}"


def prove_cases(cases: list[Case]) -> list[Verdict]:
    """Run the cases of one step in a worker."""
    return [prove(reference_of(case.scenario), case) for case in cases]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say by the exit code whether all was well."""
    options = _parse(arguments)
    names = options.scenario or [scenario.name for scenario in ALL]
    begin_s = time.monotonic()
    try:
        if options.self_check:
            violations = _self_check()
        elif options.soak:
            violations = _soak(names, options.soak, options.jobs, options.seed)
        else:
            violations = _prove(names, options)
    except StalledError as error:
        print(f"stalled: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{time.monotonic() - begin_s:.0f} s", file=sys.stderr)  # noqa: T201
    return 1 if violations else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    names = [scenario.name for scenario in ALL]
    parser.add_argument("--scenario", action="append", choices=names, help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--sample", type=float, default=1.0, help="share of the cases, 0 to 1")
    parser.add_argument("--self-check", action="store_true", help="make mistakes, which must be found")
    parser.add_argument("--soak", type=int, default=0, metavar="N", help="N random kills instead")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


# Proofs ---------------------------------------------------------------------------------------------------


def _prove(names: list[str], options: argparse.Namespace) -> int:
    cases = [case for name in names for case in cases_of(reference_of(name))]
    if options.sample < 1:
        chosen = random.Random(options.seed).sample(range(len(cases)), round(len(cases) * options.sample))  # noqa: S311
        cases = [cases[index] for index in sorted(chosen)]
    jobs = [list(job) for _, job in itertools.groupby(cases, key=lambda case: (case.scenario, case.step))]
    proven = side_by_side(prove_cases, jobs, processes=options.jobs, what="steps")
    return _report(names, [verdict for verdicts in proven for verdict in verdicts])


def _report(names: list[str], verdicts: list[Verdict]) -> int:
    by_scenario: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_scenario[verdict.case.scenario].append(verdict)
    lines = [_ROW.format("scenario", *_HEAD)]
    total: Counter[str] = Counter()
    for name in names:
        steps = reference_of(name).recorder.steps
        row = Counter(points=len({(step.point, step.kind) for step in steps}), steps=len(steps))
        for verdict in by_scenario[name]:
            how = verdict.case.how
            row["errno" if how not in {"kill", "cut", "kill+cut"} else how] += verdict.images
            row["restarts"] += verdict.distinct
            row["violations"] += len(verdict.violations)
        total += row
        lines.append(_line(name, row))
    lines.append(_line("all", total))
    print("\n".join(lines))  # noqa: T201
    _show_violations(verdicts)
    states = sum(total[how] for how in ("kill", "cut", "kill+cut", "errno"))
    print(  # noqa: T201
        f"{total['steps']} durable steps of {len(names)} scenarios, each killed at, cut at ({len(VARIANTS)} "
        f"disk images) and failed at, with {SECOND_CUTS} drawn cuts after each kill: {states} states, of "
        f"which {total['restarts']} differ and were started from; violations of {next(iter(INVARIANTS))} to "
        f"{[*INVARIANTS][-1]}: {total['violations']}"
    )
    return total["violations"]


def _line(name: str, row: Counter[str]) -> str:
    return _ROW.format(name, *(row[column] for column in _COLUMNS))


def _show_violations(verdicts: list[Verdict]) -> None:
    broken = [(verdict.case, what) for verdict in verdicts for what in verdict.violations]
    for case, what in broken[:MAX_SHOWN]:
        steps = reference_of(case.scenario).recorder.steps
        step = steps[case.step] if case.step < len(steps) else None
        at = f"{step.point.value} {step.kind.value} {step.path}" if step else "the end"
        print(f"\n{case.scenario}, {case.how} at step {case.step} ({at}):\n  {what}")  # noqa: T201
    if len(broken) > MAX_SHOWN:
        print(f"\n… and {len(broken) - MAX_SHOWN} more")  # noqa: T201


# Mistakes -------------------------------------------------------------------------------------------------


def _self_check() -> int:
    """How many mistakes were not found."""
    missed = 0
    for how, violation in careless_findings().items():
        missed += not violation
        _tell(f"overwritten in place: {how}", violation)
    for mutation in MUTATIONS:
        found = find_mistake(mutation)
        missed += found is None
        _tell(str(mutation), "" if found is None else found.violation)
    print(f"{len(MUTATIONS)} mistakes, {missed} not found")  # noqa: T201
    return missed


def _tell(mistake: str, violation: str) -> None:
    print(f"{mistake:<44} {violation.splitlines()[0][:120] if violation else 'NOT FOUND'}")  # noqa: T201


# Random kills ---------------------------------------------------------------------------------------------


def soak_share(job: SoakJob) -> SoakResult:
    """A share of the kills in a worker."""
    return soak(job)


def _soak(names: list[str], kills: int, processes: int, seed: int) -> int:
    for name in names:
        reference_of(name)  # what is published, and all code, is in memory before the processes part
    jobs = soak_jobs(names, kills, seed)
    results = list(side_by_side(soak_share, jobs, processes=processes, what=f"shares of {kills} kills"))
    total: Counter[str] = sum((result.counts for result in results), Counter())
    broken = [what for result in results for what in result.violations]
    print(  # noqa: T201
        f"{total['kills']} random kills of {len(names)} scenarios; {total['ends']} lives ran to their end "
        f"and {total['hashed']} bundles of their stores were hashed whole; "
        f"{len(broken)} violations; seed {seed}"
    )
    for what in broken[:MAX_SHOWN]:
        print(f"\n{what}")  # noqa: T201
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
