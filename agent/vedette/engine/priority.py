"""How much of the CPU a worker claims: a candidate must not be felt by the frames of the live model."""

from __future__ import annotations

import contextlib
import os
import threading
from enum import Enum
from pathlib import Path

from vedette.frame.lifeline import put_frames_first, set_group_nice

# A tenth of the weight of a normal process: on a busy box a load takes long, and it does end.
LOAD_NICE_STEPS = 10
LOWEST_NICE = 19


class Pace(str, Enum):
    """How a worker loads and runs until it serves."""

    NORMAL = "normal"
    GENTLE = "gentle"  # at low priority, where the system lets it come back from there
    BACKGROUND = "background"  # at low priority, even if it can then never serve


class CpuPriority:
    """This process's priority: low while it loads, lowest beside a live model, normal when it serves.

    While it compares it is in the idle class: a thread of the live worker that wakes takes the CPU at once,
    where it would wait for the end of the time slice of a merely nice thread. Returning needs `LimitNICE=` or
    CAP_SYS_NICE. `can_restore` is found out by trying, on a thread of no importance, since limits and
    capabilities do not tell the whole truth in a container.
    """

    def __init__(self, pace: Pace) -> None:
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        normal_class = os.sched_getscheduler(0) in {os.SCHED_OTHER, os.SCHED_BATCH}
        self.can_restore = pace is Pace.NORMAL or (normal_class and _may_come_back(self._nice))
        self._lowered = pace is Pace.BACKGROUND or (pace is Pace.GENTLE and self.can_restore)
        if self._lowered:
            # Threads started from now on inherit it.
            os.setpriority(os.PRIO_PROCESS, 0, min(LOWEST_NICE, self._nice + LOAD_NICE_STEPS))
            set_group_nice(LOAD_NICE_STEPS)
        else:
            put_frames_first()

    @property
    def can_serve(self) -> bool:
        """It is at its normal priority, or can return to it."""
        return not self._lowered or self.can_restore

    def yield_to_all(self) -> None:
        """From now on only time that nobody else wants; nothing where it was never lowered."""
        if self._lowered:
            self._set_class(os.SCHED_IDLE)
            set_group_nice(LOWEST_NICE)

    def restore(self) -> None:
        """Back to where the process began; nothing when it was never lowered, or the system forbids it."""
        if self._lowered and self.can_restore:
            self._lowered = False
            for thread in _threads():
                with contextlib.suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, thread, self._nice)
            self._set_class(os.SCHED_OTHER)
            put_frames_first(_threads())

    @staticmethod
    def _set_class(policy: int) -> None:
        for thread in _threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(thread, policy, os.sched_param(0))


def _threads() -> list[int]:
    return [int(thread.name) for thread in Path("/proc/self/task").iterdir()]


def _may_come_back(nice: int) -> bool:
    answers: list[bool] = []

    def there_and_back() -> None:
        # On Linux the priority is the thread's own.
        os.setpriority(os.PRIO_PROCESS, 0, min(LOWEST_NICE, nice + 1))
        try:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
        except PermissionError:
            answers.append(False)
        else:
            answers.append(True)

    trial = threading.Thread(target=there_and_back, name="priority-trial")
    trial.start()
    trial.join(5.0)
    return answers == [True]


def cpu_wait_ns(pid: int | None = None) -> int:
    """Nanoseconds that a thread was ready to run and had no CPU: the calling one, or a process's first.

    From /proc (Documentation/scheduler/sched-stats in the kernel); 0 where the kernel does not tell.
    """
    name = "thread-self" if pid is None else str(pid)
    try:
        return int(Path(f"/proc/{name}/schedstat").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
