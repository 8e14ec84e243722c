"""Runs one case of a crash scenario: something goes wrong at one step, then check, finish, check.

What a restart makes of a state depends on that state and on what was promised, and on nothing else. So each
distinct pair is started from once, and what came of it is shared by all cases, in all processes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import os
import random
import tempfile
import traceback
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from tests.crash.child import run_in_child
from tests.crash.disk_model import VARIANTS, DiskModel, fingerprint, read_tree, write_tree
from tests.crash.registry import find
from tests.crash.traces import ERRNOS, FailAt, KillAt, Recorder

from vedette.errors import VedetteError
from vedette.fsops import traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.crash.disk_model import Tree
    from tests.crash.scenario import Scenario

SECOND_CUTS = 3  # instants of the second run at which the power goes, for each kill of the first
_RAM_DISK = Path("/dev/shm")  # noqa: S108 - a place, no file; every case makes its own private folder in it


class Case(NamedTuple):
    """What goes wrong in a scenario: `how` is `kill`, `cut`, `kill+cut` or the name of an errno."""

    scenario: str
    how: str
    step: int


class Verdict(NamedTuple):
    """What one case showed; so many of its `images` were like none before, and were started from."""

    case: Case
    images: int
    distinct: int
    violations: tuple[str, ...]


@dataclass(frozen=True)
class Reference:
    """The scenario without a fault: its start, its steps, its promises."""

    scenario: Scenario
    start: Tree
    recorder: Recorder


class Restarts:
    """What came of each state that was started from: scenario, disk and promises -> what broke.

    Every process has its own, and they share what they find in a folder, if there is one.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._known: dict[str, tuple[str, ...]] = {}

    def find(self, key: str) -> tuple[str, ...] | None:
        """What broke; None when nobody has tried yet."""
        if key not in self._known and self.folder is not None:
            with contextlib.suppress(FileNotFoundError):
                content = (self.folder / key).read_bytes()
                self._known[key] = msgspec.json.decode(content, type=tuple[str, ...])
        return self._known.get(key)

    def keep(self, key: str, broken: tuple[str, ...]) -> None:
        """Remember it, for all."""
        self._known[key] = broken
        if self.folder is not None:
            mine = self.folder / f"{key}.{os.getpid()}"
            mine.write_bytes(msgspec.json.encode(broken))
            mine.rename(self.folder / key)


RESTARTS = Restarts()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder of its own, in memory where there is such a place."""
    with tempfile.TemporaryDirectory(
        prefix="vedette-crash-", dir=_RAM_DISK if _RAM_DISK.is_dir() else None
    ) as folder:
        yield Path(folder)


def record(scenario: Scenario) -> Reference:
    """Prepare a scenario and run it once without a fault.

    Raises:
        AssertionError: It already breaks an invariant of its own.
    """
    with scratch() as folder:
        root = folder / "root"
        root.mkdir()
        scenario.prepare(root)
        start = read_tree(root)
    recorder, broken = _restart(scenario, start, [])
    assert not broken, f"{scenario.name} without a fault: {broken}"
    return Reference(scenario, start, recorder)


@functools.cache
def reference_of(name: str) -> Reference:
    """The reference run of a registered scenario; kept for the life of the process."""
    return record(find(name))


def cases_of(reference: Reference) -> list[Case]:
    """Every case of a scenario, step by step.

    A disk that fails for good fails at the first step that it refuses: beginning earlier is the same case.
    """
    name, steps = reference.scenario.name, len(reference.recorder.steps)
    cases = [Case(name, how, step) for step in range(steps + 1) for how in ("kill", "cut")]
    cases += [Case(name, "kill+cut", step) for step in range(steps)]
    for code in ERRNOS:
        cases += [Case(name, errno.errorcode[code], step) for step in reference.recorder.refused[code]]
    return sorted(cases, key=lambda case: case.step)


def prove(reference: Reference, case: Case) -> Verdict:
    """Run one case."""
    if case.how == "kill":
        return Verdict(case, 1, 1, tuple(_second_run(reference, case.step).broken))
    if case.how in {"cut", "kill+cut"}:
        found = _Images(reference)
        after = found.after_cut if case.how == "cut" else found.after_kill_and_cut
        after(case.step)
        return Verdict(case, found.images, found.distinct, tuple(found.violations))
    return _after_errno(reference, case)


def _restart(scenario: Scenario, state: Tree, promises: Sequence[str]) -> tuple[Recorder, list[str]]:
    """Check what a crash left, run to the end, check again."""
    with scratch() as folder:
        looked_at, root = (
            folder / "looked-at",
            folder / "root",
        )  # a check may write, and its steps are not seen
        recorder = Recorder(root)
        try:
            write_tree(state, looked_at)
            broken = [f"after the crash: {what}" for what in scenario.check(looked_at, promises, ended=False)]
            write_tree(state, root)
            with traced(recorder):
                scenario.run(root, recorder.promise)
            words = [*promises, *(word for _begun, word in recorder.promises)]
            broken += [f"at the end: {what}" for what in scenario.check(root, words, ended=True)]
        except VedetteError as error:
            broken = [f"the restart failed: {error.cause}"]
        except Exception:  # noqa: BLE001 - whatever it was, the restart failed
            broken = [f"the restart failed: {traceback.format_exc()}"]
    return recorder, broken


def _judged(scenario: Scenario, state: Tree, promises: list[str]) -> tuple[tuple[str, ...], bool]:
    """What a restart from a state breaks, and whether it had to be tried."""
    key = _key(scenario, state, promises)
    known = RESTARTS.find(key)
    if known is not None:
        return known, False
    broken = tuple(_restart(scenario, state, promises)[1])
    RESTARTS.keep(key, broken)
    return broken, True


def _key(scenario: Scenario, state: Tree, promises: list[str]) -> str:
    return hashlib.sha256(f"{scenario.name}\0{fingerprint(state)}\0{promises}".encode()).hexdigest()


class _SecondRun(NamedTuple):
    """The run after a kill: what the first had said, what the second did, what broke."""

    said: list[str]
    recorder: Recorder
    broken: list[str]


_LATEST: dict[tuple[int, int], _SecondRun] = {}  # the one of the case before; `kill+cut` goes on from it


def _second_run(reference: Reference, step: int) -> _SecondRun:
    key = (id(reference), step)
    if key not in _LATEST:
        _LATEST.clear()
        _LATEST[key] = _kill_and_restart(reference, step)
    return _LATEST[key]


def _kill_and_restart(reference: Reference, step: int) -> _SecondRun:
    with scratch() as folder:
        root = folder / "root"
        write_tree(reference.start, root)

        def run(say: Callable[[str], None]) -> list[str]:
            with traced(KillAt(step)):
                reference.scenario.run(root, say)
            return []

        outcome = run_in_child(run)
        state = read_tree(root)
    last = step == len(reference.recorder.steps)
    if last != (outcome.killed_by is None) or outcome.error is not None:
        broken = [f"the run is not deterministic: killed by {outcome.killed_by}, {outcome.error}"]
        return _SecondRun(outcome.said, Recorder(root), broken)
    recorder, broken = _restart(reference.scenario, state, outcome.said)
    RESTARTS.keep(_key(reference.scenario, state, outcome.said), tuple(broken))
    return _SecondRun(outcome.said, recorder, broken)


@dataclass
class _Images:
    """Disks that are made of one case; `distinct` were like none before, `seen` are their fingerprints."""

    reference: Reference
    images: int = 0
    distinct: int = 0
    seen: set[str] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    def after_cut(self, step: int) -> None:
        """The power goes before a step."""
        recorder = self.reference.recorder
        model = DiskModel(self.reference.start)
        for done in recorder.steps[:step]:
            model.apply(done)
        self._start_from(model, recorder.promised(step), f"cut {step}")

    def after_kill_and_cut(self, step: int) -> None:
        """The second run acts on what the first left in the cache only; then that is lost."""
        said, second, _broken = _second_run(self.reference, step)
        model = DiskModel(self.reference.start)
        for done in self.reference.recorder.steps[:step]:
            model.apply(done)
        reached = 0
        for cut in second_cuts(len(second.steps), seed=step):
            for done in second.steps[reached:cut]:
                model.apply(done)
            reached = cut
            self._start_from(model, [*said, *second.promised(cut)], f"then cut at step {cut}")

    def _start_from(self, model: DiskModel, promises: list[str], seed: str) -> None:
        for variant in VARIANTS:
            state = model.image(variant, random.Random(f"{seed} {variant.name}"))  # noqa: S311 - repeatable
            broken, tried = _judged(self.reference.scenario, state, promises)
            self.images += 1
            self.distinct += tried
            key = _key(self.reference.scenario, state, promises)
            if key not in self.seen:
                self.seen.add(key)
                self.violations += [f"{seed}, {variant.name}: {what}" for what in broken]


def second_cuts(steps: int, *, seed: int) -> list[int]:
    """One instant of each third of the second run, drawn anew for each seed."""
    chance = random.Random(f"second {seed}")  # noqa: S311 - repeatable
    bounds = [steps * part // SECOND_CUTS for part in range(SECOND_CUTS + 1)]
    return sorted({chance.randint(low, high) for low, high in itertools.pairwise(bounds)})


def _after_errno(reference: Reference, case: Case) -> Verdict:
    code = getattr(errno, case.how)
    said: list[str] = []
    with scratch() as folder:
        root = folder / "root"
        write_tree(reference.start, root)
        try:
            with traced(FailAt(case.step, code)):
                reference.scenario.run(root, said.append)
        except VedetteError:
            pass  # what it owes: an error of ours, or a good end
        except Exception:  # noqa: BLE001 - that is what is looked for
            unlike = f"the fault was not turned into an error of ours: {traceback.format_exc()}"
            return Verdict(case, 1, 1, (unlike,))
        state = read_tree(root)
    broken, tried = _judged(reference.scenario, state, said)
    return Verdict(case, 1, int(tried), broken)
