"""Runs one case of a crash scenario: something goes wrong at one step, then check, finish, check."""

from __future__ import annotations

import errno
import functools
import hashlib
import random
import shutil
import signal
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash.child import run_in_child
from tests.crash.disk_model import VARIANTS, DiskModel
from tests.crash.registry import find
from tests.crash.traces import ERRNOS, FailAt, KillAt, Recorder

from vedette.errors import VedetteError
from vedette.fsops import traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.crash.child import Outcome
    from tests.crash.scenario import Scenario

    from vedette.fsops import Operation

SECOND_CUTS = 3  # instants of the second run at which the power goes, for each kill of the first
_RAM_DISK = Path("/dev/shm")  # noqa: S108 - a place, no file; every case makes its own private folder in it


@dataclass(frozen=True)
class Case:
    """What goes wrong in a scenario: `how` is `kill`, `cut`, `kill+cut` or the name of an errno."""

    scenario: str
    how: str
    step: int


@dataclass(frozen=True)
class Verdict:
    """What one case showed; so many of its `images` were like none before, and were started from."""

    case: Case
    images: int
    distinct: int
    violations: tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """The scenario without a fault: its start, its steps, its promises."""

    scenario: Scenario
    start: Path
    recorder: Recorder


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of its own, in memory where there is such a place."""
    with tempfile.TemporaryDirectory(
        prefix="vedette-crash-", dir=_RAM_DISK if _RAM_DISK.is_dir() else None
    ) as folder:
        yield Path(folder)


def record(scenario: Scenario, start: Path) -> Reference:
    """Prepare a scenario in `start` and run it once without a fault on a copy.

    Raises:
        AssertionError: It already breaks an invariant of its own.
    """
    scenario.prepare(start)
    with scratch() as folder:
        root = folder / "root"
        shutil.copytree(start, root)
        recorder = Recorder(root)
        with traced(recorder):
            scenario.run(root, recorder.promise)
        words = [word for _begun, word in recorder.promises]
        broken = list(scenario.check(root, words, ended=True))
    assert not broken, f"{scenario.name} without a fault: {broken}"
    return Reference(scenario, start, recorder)


def cases_of(reference: Reference) -> list[Case]:
    """Every case of a scenario."""
    steps = len(reference.recorder.steps)
    name = reference.scenario.name
    cases = [Case(name, how, step) for step in range(steps + 1) for how in ("kill", "cut")]
    cases += [Case(name, "kill+cut", step) for step in range(steps)]
    return cases + [Case(name, errno.errorcode[code], step) for code in ERRNOS for step in range(steps)]


def prove(reference: Reference, case: Case) -> Verdict:
    """Run one case."""
    if case.how == "kill":
        return Verdict(case, 1, 1, tuple(_after_kill(reference, case.step)))
    if case.how not in {"cut", "kill+cut"}:
        return Verdict(case, 1, 1, tuple(_after_errno(reference, case)))
    after = _after_cut if case.how == "cut" else _after_kill_and_cut
    found = after(reference, case.step)
    return Verdict(case, found.images, found.distinct, tuple(found.violations))


@functools.cache
def reference_of(name: str) -> Reference:
    """The reference run of a registered scenario; kept for the life of the process."""
    folder = tempfile.TemporaryDirectory(
        prefix="vedette-crash-", dir=_RAM_DISK if _RAM_DISK.is_dir() else None
    )
    _KEPT.append(folder)
    return record(find(name), Path(folder.name))


_FINISHED: dict[str, tuple[str, ...]] = {}  # state and promises -> what broke; the same is not run twice
_KEPT: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def finish(scenario: Scenario, root: Path, promises: Sequence[str]) -> list[str]:
    """Check what a crash left, run to the end, check again; all in a process of its own."""

    def restart(_say: Callable[[str], None]) -> list[str]:
        words = list(promises)
        broken = [f"after the crash: {what}" for what in scenario.check(root, words, ended=False)]
        scenario.run(root, words.append)
        return broken + [f"at the end: {what}" for what in scenario.check(root, words, ended=True)]

    outcome = run_in_child(restart)
    if outcome.result is None:
        return [outcome.error or f"the restart ended by signal {outcome.killed_by}"]
    return outcome.result


def _after_kill(reference: Reference, step: int) -> list[str]:
    with scratch() as folder:
        root = folder / "root"
        shutil.copytree(reference.start, root)
        outcome = _killed(reference, root, step)
        last = step == len(reference.recorder.steps)
        if last != (outcome.killed_by is None) or outcome.error is not None:
            return [f"the run is not deterministic: killed by {outcome.killed_by}, {outcome.error}"]
        return finish(reference.scenario, root, outcome.said)


def _killed(reference: Reference, root: Path, step: int) -> Outcome:
    def run(say: Callable[[str], None]) -> list[str]:
        with traced(KillAt(step)):
            reference.scenario.run(root, say)
        return []

    return run_in_child(run)


@dataclass
class _Images:
    """Disks that were made of one case; `distinct` were like none before, `seen` are their fingerprints."""

    images: int = 0
    distinct: int = 0
    seen: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)


def _after_cut(reference: Reference, step: int) -> _Images:
    model = DiskModel(reference.start)
    for done in reference.recorder.steps[:step]:
        model.apply(done)
    found = _Images()
    _start_from_images(reference.scenario, model, reference.recorder.promised(step), f"cut {step}", found)
    return found


def _start_from_images(
    scenario: Scenario, model: DiskModel, promises: list[str], seed: str, found: _Images
) -> None:
    for variant in VARIANTS:
        with scratch() as folder:
            root = folder / "root"
            root.mkdir()
            model.image(root, variant, random.Random(f"{seed} {variant.name}"))  # noqa: S311 - repeatable
            found.images += 1
            state = f"{scenario.name} {_fingerprint(root)} {promises}"
            if state not in _FINISHED:
                found.distinct += 1
                _FINISHED[state] = tuple(finish(scenario, root, promises))
            if state not in found.seen:
                found.seen.add(state)
                found.violations += [f"{seed}, {variant.name}: {what}" for what in _FINISHED[state]]


def _after_kill_and_cut(reference: Reference, step: int) -> _Images:
    """The second run acts on what the first left in the cache only; then that is lost."""
    with scratch() as folder:
        root = folder / "root"
        shutil.copytree(reference.start, root)
        said = _killed(reference, root, step).said
        recorder = Recorder(root)
        with traced(recorder):
            reference.scenario.run(root, recorder.promise)
    chance = random.Random(f"second {step}")  # noqa: S311 - repeatable
    cuts = sorted({chance.randint(0, len(recorder.steps)) for _ in range(SECOND_CUTS)})
    found = _Images()
    for cut in cuts:
        model = DiskModel(reference.start)
        steps: list[Operation] = [*reference.recorder.steps[:step], *recorder.steps[:cut]]
        for done in steps:
            model.apply(done)
        words = [*said, *recorder.promised(cut)]
        _start_from_images(reference.scenario, model, words, f"then cut at step {cut}", found)
    return found


def _after_errno(reference: Reference, case: Case) -> list[str]:
    code = getattr(errno, case.how)
    with scratch() as folder:
        root = folder / "root"
        shutil.copytree(reference.start, root)

        def run(say: Callable[[str], None]) -> list[str]:
            with traced(FailAt(case.step, code)):
                try:
                    reference.scenario.run(root, say)
                except VedetteError as error:
                    return [error.cause]
            return []

        outcome = run_in_child(run)
        if outcome.result is None:
            ended = f"signal {outcome.killed_by}" if outcome.killed_by == signal.SIGALRM else outcome.error
            return [f"the fault was not turned into an error of ours: {ended}"]
        return finish(reference.scenario, root, outcome.said)


def _fingerprint(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        digest.update(f"{path.relative_to(root)}\0{path.is_dir()}\0".encode())
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
