"""Children of the update with limits: they crash, hang and swell, and only that is known afterwards."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.stubs.running import REPOSITORY
from tests.stubs.waiting import until
from tests.unit.update.box import Box

from vedette.clock import SystemClock
from vedette.update.causes import Cause, Result
from vedette.update.effects_making import MAKING_MODULE, death_cause
from vedette.update.jobs import Ended, Limits
from vedette.update.limited_child import ChildProcesses
from vedette.update.settings import UpdateSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.update.jobs import Child

WORK = "tests.stubs.limited_work"
LIMITS = Limits(wall_s=20.0, cpu_s=20, memory_bytes=64 << 20, address_bytes=4 << 30)


@pytest.fixture(autouse=True)
def _stubs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


def ended(child: Child) -> Ended:
    """Drive a child to its end."""
    while True:
        try:
            wait = next(child)
        except StopIteration as end:
            result: Ended = end.value
            return result
        select.select([] if wait.fd is None else [wait.fd], [], [], wait.seconds)


def play(word: str, **limits: Any) -> Ended:  # noqa: ANN401 - fields of Limits
    heard: list[bytes] = []
    run = ChildProcesses(SystemClock())(WORK, word.encode(), LIMITS._replace(**limits), heard.append)
    result = ended(run)
    assert tuple(heard) == result.lines
    return result


@pytest.mark.parametrize(
    ("word", "limits", "cause"),
    [
        ("crash", {}, Cause.CRASH_LOOP),
        ("raise", {}, Cause.CRASH_LOOP),
        ("hang", {"wall_s": 1.0}, Cause.WATCHDOG),
        ("spin", {"cpu_s": 1}, Cause.WATCHDOG),
        ("swell", {}, Cause.OOM),
        ("swell", {"memory_bytes": 0, "address_bytes": 256 << 20}, Cause.OOM),
    ],
)
def test_every_death_has_a_cause(word: str, limits: dict[str, float], cause: Cause) -> None:
    """What it told before is kept."""
    result = play(word, **limits)
    assert result.lines == (b"begun",)
    assert death_cause(result) is cause


def test_a_child_stands_back_behind_everybody() -> None:
    """Lowest priority, no core dumps, first to go when memory runs out."""
    assert play("limits").lines == (b"begun", b"19", b"0", b"1000", b"ended")


def test_a_child_that_talks_too_much_is_ended() -> None:
    """What it tells is bounded, what it complains of is kept at its end."""
    assert play("flood").status < 0
    shouted = play("shout")
    assert (shouted.status, shouted.last_words, shouted.lines[-1]) == (0, "last words", b"ended")


def test_a_job_that_is_dropped_takes_its_child_along() -> None:
    """An abort does not leave a decoder running."""
    run = ChildProcesses(SystemClock())(WORK, b"hang", LIMITS, lambda _line: None)
    assert next(run).fd is not None
    until(lambda: len(_children()) == 1, "the child is there")
    run.close()
    assert _children() == []


def _children() -> list[str]:
    """This process's children that do the stub's work."""
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return [pid for pid in found if b"limited_work" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def real_box(tmp_path: Path, **settings: Any) -> Box:  # noqa: ANN401 - fields of UpdateSettings
    """A box whose children are processes."""
    box = Box(tmp_path, settings=UpdateSettings(**settings))
    box.ports["run_child"] = ChildProcesses(box.clock)
    return box.start()


def test_a_delta_is_made_and_tried_in_children(tmp_path: Path) -> None:
    """The happy path with real processes."""
    box = real_box(tmp_path)
    box.offer(1, base=box.factory)
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"


@pytest.mark.parametrize(
    ("candidate", "cause", "words"),
    [
        ({"crash_on": "2"}, Cause.CRASH_LOOP, "killed by signal 11, while warming up"),
        ({"load_hang": "yes"}, Cause.WATCHDOG, "no end after 6 s, while loading"),
        ({"oom_on": "1+"}, Cause.OOM, "memory"),
        ({"answer": "nan"}, Cause.PREFLIGHT_GOLDEN, "usable answer"),
        ({"run_s": "0.08"}, Cause.PREFLIGHT_BUDGET, "an answer takes 8"),
    ],
)
def test_a_candidate_that_cannot_be_tried_is_condemned_over_restarts(
    tmp_path: Path, candidate: dict[str, str], cause: Cause, words: str
) -> None:
    """Casebook 5 and 37: what kills the child is its verdict, on disk before anything else."""
    # The child stands back behind everybody, so on a busy machine even its imports take seconds.
    box = real_box(tmp_path, preflight_timeout_s=6.0 if cause is Cause.WATCHDOG else 60.0)
    box.offer(1, play=candidate)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, cause)
    assert words in report.detail
    box.restart().until_looked()
    assert len(box.results()) == 1
    assert box.serving == "0"


def dying(child: Callable[..., Child], times: int) -> Callable[..., Child]:
    """The first makings crash at their first file."""
    left = [times]

    def run(module: str, spec: bytes, limits: Limits, on_line: Callable[[bytes], None]) -> Child:
        if module != MAKING_MODULE or left[0] == 0:
            return (yield from child(module, spec, limits, on_line))
        left[0] -= 1
        return Ended((), -11, "")

    return run


def test_a_decoder_that_crashes_costs_a_full_download_and_no_more(tmp_path: Path) -> None:
    """A hostile patch may kill its child; the other files are made by the next one."""
    box = Box(tmp_path)
    box.ports["run_child"] = dying(ChildProcesses(box.clock), 1)
    box.start()
    box.offer(1)
    assert box.until_result().result is Result.SUCCESS
    box.ports["run_child"] = dying(ChildProcesses(box.clock), 99)
    box.restart()
    box.offer(2)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.CRASH_LOOP)
    assert box.serving == "1"
