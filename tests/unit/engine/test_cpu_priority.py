"""How low a worker goes while it loads, and that it comes back to serve, with rights and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.stubs.running import REPOSITORY

CPUS = len(os.sched_getaffinity(0))
WHILE_LOADING = max(1, CPUS - 1)
NICE = os.getpriority(os.PRIO_PROCESS, 0)
GROUPS = os.path.exists("/proc/self/autogroup")  # noqa: PTH110 - a file of the kernel


def may_rise() -> bool:
    """Whether this run of the tests has the rights of a service that was given them."""
    code = "import os; os.setpriority(os.PRIO_PROCESS, 0, -11)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def walk(pace: str, steps: str = "", *, rights: bool) -> list[dict[str, Any]]:
    """How the stub was scheduled before the first step and after each; in a session of its own."""
    command = [sys.executable, "-m", "tests.stubs.priority_child", pace, "as given" if rights else "none"]
    done = subprocess.run(
        [*command, steps],
        cwd=REPOSITORY,
        capture_output=True,
        timeout=60,
        check=True,
        start_new_session=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: dict[str, Any], *, nice: int, kind: int, cpus: int, group: int) -> None:
    """The process, the thread that a runtime's pool would have, and their session."""
    wanted = {"nice": nice, "class": kind, "cpus": cpus}
    assert {name: found[name] for name in wanted} == wanted
    assert found["pool"] == wanted
    assert found["group"] == (group if GROUPS else None)


def test_without_rights_a_load_is_lowered_by_what_it_can_take_back() -> None:
    """A niceness could not be left again; the session's, the class and the CPUs can."""
    loading, serving = walk("gentle", "loaded", rights=False)
    check(loading, nice=NICE, kind=os.SCHED_BATCH, cpus=WHILE_LOADING, group=10)
    check(serving, nice=NICE, kind=os.SCHED_OTHER, cpus=CPUS, group=0)
    assert loading["can_serve"]
    assert serving["can_serve"]


def test_with_rights_a_load_is_nice_too_and_then_comes_first() -> None:
    """All threads come back, also those that a runtime has started meanwhile."""
    if not may_rise():
        pytest.skip("only root, or LimitNICE, may raise a priority again")
    loading, serving = walk("gentle", "loaded", rights=True)
    check(loading, nice=min(19, NICE + 10), kind=os.SCHED_BATCH, cpus=WHILE_LOADING, group=10)
    check(serving, nice=-10, kind=os.SCHED_OTHER, cpus=CPUS, group=-10)


def test_a_shadow_takes_what_nobody_wants_and_without_rights_can_never_serve() -> None:
    """Its load leaves a CPU to the frames; once it compares it may run on all of them."""
    loading, loaded, beside, asked = walk("background", "loaded,yield_to_all,restore", rights=False)
    check(loading, nice=min(19, NICE + 10), kind=os.SCHED_BATCH, cpus=WHILE_LOADING, group=10)
    assert not loaded["can_serve"]
    assert (loaded["class"], loaded["cpus"]) == (os.SCHED_BATCH, CPUS)
    assert beside["class"] == beside["pool"]["class"] == os.SCHED_IDLE
    assert asked == beside


def test_a_shadow_with_rights_rises_to_serve() -> None:
    """From the idle class, with its pool."""
    if not may_rise():
        pytest.skip("only root, or LimitNICE, may raise a priority again")
    *_, beside, serving = walk("background", "loaded,yield_to_all,restore", rights=True)
    assert (beside["class"], beside["can_serve"]) == (os.SCHED_IDLE, True)
    check(serving, nice=-10, kind=os.SCHED_OTHER, cpus=CPUS, group=-10)


def test_the_worker_that_serves_first_is_never_lowered() -> None:
    """At the start of the daemon nobody is in its way; nothing that comes later lowers it either."""
    for found in walk("normal", "loaded,yield_to_all,restore", rights=False):
        check(found, nice=NICE, kind=os.SCHED_OTHER, cpus=CPUS, group=0)


def test_the_priority_is_chosen_before_what_is_heavy_is_imported() -> None:
    """Half of the CPU time of a small model's load is imports."""
    code = (
        "import sys, vedette.engine.worker_start, vedette.update.limited_start\n"
        "heavy = ('numpy', 'cv2', 'msgspec', 'ctypes', 'pathlib', 'vedette.engine.worker')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
