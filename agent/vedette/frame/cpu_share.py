"""A process's share of the CPUs: its niceness, and that of its session's group. Imports next to nothing.

Where the kernel groups tasks by session (autogroup), a task's own niceness and class count only within its
session, and every child of the daemon is a session of its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

FRAMES_NICE = -10
# The kernel lets the unprivileged set a group's niceness once in a tenth of a second (sched/autogroup.c).
GROUP_EVERY_S = 0.1
GROUP_TRIES = 10
_GROUP = "/proc/self/autogroup"


def put_frames_first(threads: list[int] | tuple[int, ...] = (0,)) -> bool:
    """Ask the scheduler to run these threads before the daemon's housekeeping; allowed or not, nothing fails.

    0 is the calling thread; those that it starts later inherit.

    Without it a thread that keeps the daemon busy can hold a CPU for a whole time slice while a frame waits.

    Returns:
        Whether their session's group comes first, now or in a moment: False where that is not allowed.
    """
    for thread in threads:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, FRAMES_NICE)
    allowed = _try_group_nice(FRAMES_NICE)
    if allowed is None:  # frames must not wait for this
        threading.Thread(
            target=set_group_nice, args=(FRAMES_NICE,), kwargs={"tries": GROUP_TRIES}, daemon=True
        ).start()
    return allowed is not False


def set_group_nice(nice: int, *, tries: int = 1) -> bool:
    """Set the niceness of this session's group: where there are groups, a task's own counts only inside.

    Anybody may set it from 0 to 19; but without CAP_SYS_ADMIN the whole box may do so only ten times a
    second, so more `tries` may be worth their time.

    Returns:
        Whether it is so now.
    """
    while (done := _try_group_nice(nice)) is None and tries > 1:
        tries -= 1
        jitter = int.from_bytes(os.urandom(2), "big") / 0xFFFF
        time.sleep(2 * GROUP_EVERY_S * jitter)
    return done is True


def _try_group_nice(nice: int) -> bool | None:
    """None: not just now; False: not allowed, or this kernel has no such groups."""
    try:
        file = os.open(_GROUP, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(file, str(nice).encode())
    except BlockingIOError:
        return None
    except OSError:
        return False
    finally:
        os.close(file)
    return True
