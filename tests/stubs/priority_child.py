"""A process that loads and serves nothing: `python -m tests.stubs.priority_child PACE RIGHTS STEPS`.

RIGHTS `none` gives up first what lets a priority rise. STEPS are methods of CpuPriority, by commas; before
the first and after each one a JSON line says how this process and a thread of its pool are scheduled.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import threading
from pathlib import Path

from vedette.engine.priority import CpuPriority, Pace

# CAP_SYS_ADMIN and CAP_SYS_NICE are lost with the next exec (prctl(2)).
RISING = (21, 23)
PR_CAPBSET_DROP = 24


def without_rights() -> None:
    """Begin anew as a program that may not raise its priority."""
    for capability in RISING:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NICE, (0, 0))
    pace, _, steps = sys.argv[1:]
    again = [sys.executable, "-m", "tests.stubs.priority_child", pace, "as given", steps]
    os.execv(sys.executable, again)  # noqa: S606 - there is no shell to be had


def scheduled(thread: int) -> dict[str, int]:
    """One thread's niceness, class and CPUs."""
    return {
        "nice": os.getpriority(os.PRIO_PROCESS, thread),
        "class": os.sched_getscheduler(thread),
        "cpus": len(os.sched_getaffinity(thread)),
    }


def group_nice() -> int | None:
    """The niceness of the session's group, None where there are none."""
    try:
        return int(Path("/proc/self/autogroup").read_text(encoding="ascii").split()[-1])
    except OSError:
        return None


def main() -> None:
    """Walk through the steps."""
    pace, rights, steps = sys.argv[1:]
    if rights == "none":
        without_rights()
    priority = CpuPriority(Pace(pace))
    ended = threading.Event()
    pool = threading.Thread(target=ended.wait, args=(60.0,))
    pool.start()
    for step in ("", *filter(None, steps.split(","))):
        if step:
            getattr(priority, step)()
        found = {
            **scheduled(0),
            "pool": scheduled(pool.native_id or 0),
            "group": group_nice(),
            "can_serve": priority.can_serve,
        }
        sys.stdout.write(json.dumps(found) + "\n")
    ended.set()


if __name__ == "__main__":
    main()
