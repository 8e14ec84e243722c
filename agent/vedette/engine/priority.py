"""How much of the CPU a worker claims: a candidate must not be felt by the frames of the live model.

Half of the work of a load is the imports of numeric libraries, so a process chooses its priority before them;
this module imports next to nothing itself. A priority that was lowered may be so for ever: without
CAP_SYS_NICE or `LimitNICE=` neither a niceness nor SCHED_IDLE can be left again (sched(7), setpriority(2)).
These can, by anybody:

- the niceness of the session's group, between 0 and 19; where the kernel groups tasks by session (autogroup)
  it is what counts, and the niceness and class of a task compare only within its session (measured: a hog
  at niceness 19, or in SCHED_IDLE, takes as much of a core from another session as one at 0);
- SCHED_BATCH, whose tasks never take the CPU from one that runs by waking up;
- the CPUs that a task may run on.
"""

from __future__ import annotations

import contextlib
import os
import threading
from enum import Enum

from vedette.frame.cpu_share import GROUP_TRIES, put_frames_first, set_group_nice

# A tenth of the weight of a normal process: on a busy box a load takes long, and it does end.
LOAD_NICE_STEPS = 10
LOWEST_NICE = 19


class Pace(str, Enum):
    """How a worker loads and runs until it serves."""

    NORMAL = "normal"
    GENTLE = "gentle"  # as low as it can come back from
    BACKGROUND = "background"  # at low priority, even if it can then never serve


class CpuPriority:
    """This process's priority: low while it loads, lowest beside a live model, normal when it serves.

    While it compares it is in the idle class: a thread of the live worker that wakes takes the CPU at once,
    where it would wait for the end of the time slice of a merely nice thread. `can_restore` is found out by
    trying, on a thread of no importance, since limits and capabilities do not tell the whole truth in a
    container.
    """

    def __init__(self, pace: Pace) -> None:
        """Take the priority of loading. Threads that are started from now on inherit it."""
        self._pace = pace
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        self._class = os.sched_getscheduler(0)
        self._cpus = os.sched_getaffinity(0)
        self._lowered = pace is not Pace.NORMAL
        normal_class = self._class in {os.SCHED_OTHER, os.SCHED_BATCH}
        self.can_restore = not self._lowered or (normal_class and _may_come_back(self._nice))
        self._is_nice = pace is Pace.BACKGROUND or (self._lowered and self.can_restore)
        if self._lowered:
            steps = LOAD_NICE_STEPS if self._is_nice else 0
            _stand_back(min(LOWEST_NICE, self._nice + steps))
        else:
            put_frames_first()

    @property
    def can_serve(self) -> bool:
        """It is at its normal priority, or can return to it."""
        return not self._is_nice or self.can_restore

    def loaded(self) -> None:
        """The load is over: a worker that serves next is at its normal priority, any other has all CPUs."""
        if self._pace is Pace.GENTLE:
            self.restore()
        _run_on(self._cpus)

    def yield_to_all(self) -> None:
        """From now on only time that nobody else wants; nothing where it was never lowered."""
        if self._lowered:
            _set_class(os.SCHED_IDLE)
            set_group_nice(LOWEST_NICE)

    def restore(self) -> None:
        """Back to where the process began; nothing when it was never lowered, or the system forbids it."""
        if not self._lowered or not self.can_serve:
            return
        self._lowered = False
        if self._is_nice:
            for thread in _threads():
                with contextlib.suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, thread, self._nice)
        _set_class(self._class)
        _run_on(self._cpus)
        if not put_frames_first(_threads()):
            set_group_nice(0, tries=GROUP_TRIES)


def stand_back() -> None:
    """For a process that never comes back: the lowest niceness, which still gets its share on a busy box."""
    _stand_back(LOWEST_NICE)


def _stand_back(nice: int) -> None:
    # The group's niceness stays at a step from which a load ends on a busy box: it counts between sessions.
    set_group_nice(LOAD_NICE_STEPS, tries=GROUP_TRIES)
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    if os.sched_getscheduler(0) == os.SCHED_OTHER:
        _set_class(os.SCHED_BATCH)
    cpus = os.sched_getaffinity(0)
    if len(cpus) > 1:  # one is left to the frames
        _run_on(cpus - {min(cpus)})


def _set_class(policy: int) -> None:
    for thread in _threads():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setscheduler(thread, policy, os.sched_param(0))


def _run_on(cpus: set[int]) -> None:
    """Allow all threads these CPUs. Where none of them is left, the kernel has chosen others itself."""
    for thread in _threads():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cpus)


def _threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208 - pathlib imports slowly


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
        file = os.open(f"/proc/{name}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return int(os.read(file, 256).split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    finally:
        os.close(file)
