"""What every child process of the daemon does first: die with it, leave signals to it, keep a pulse."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
FRAMES_NICE = -10
# The kernel lets the unprivileged set a group's niceness once in a tenth of a second (sched/autogroup.c).
GROUP_EVERY_S = 0.1
GROUP_TRIES = 10
PULSE_BYTES = 4096
W_ALIVE_NS, W_BUSY_SINCE_NS = 0, 1
# The frame in hand: its number, when it was captured, and the length of its file's name in the second half.
W_HELD_SEQ, W_HELD_CAPTURED_NS, W_HELD_FILE_BYTES = 8, 9, 10
HELD_FILE_OFFSET = PULSE_BYTES // 2


class HeldFrame(NamedTuple):
    """The frame that a child had in hand last; all zero before the first."""

    seq: int
    captured_ns: int
    file: str


def tie_to_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when the daemon's thread that started it ends.

    Exits at once when the parent is already gone.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Both reach the whole control group when a service is stopped; only the daemon knows the right order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if os.getppid() != parent_pid:
        sys.exit(0)


def put_frames_first(threads: Iterable[int] = (0,)) -> bool:
    """Ask the scheduler to run these threads before the daemon's housekeeping; allowed or not, nothing fails.

    0 is the calling thread; those that it starts later inherit.

    Without it a thread that keeps the daemon busy can hold a CPU for a whole time slice while a frame waits.

    Returns:
        Whether their session's group comes first, now or in a moment: False where that is not allowed.
    """
    with contextlib.suppress(OSError):
        for thread in threads:
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
        time.sleep(random.uniform(0, 2 * GROUP_EVERY_S))  # noqa: S311 - jitter, not secrets
    return done is True


def _try_group_nice(nice: int) -> bool | None:
    """None: not just now; False: not allowed, or this kernel has no such groups."""
    try:
        Path("/proc/self/autogroup").write_text(str(nice), encoding="ascii")
    except BlockingIOError:
        return None
    except OSError:
        return False
    return True


class Pulse:
    """One page shared by a child and the daemon: when it was last alive, since when it is busy.

    Times are CLOCK_MONOTONIC nanoseconds; 0 in the second word means "not busy".
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._map = mmap.mmap(fd, PULSE_BYTES)
        self._words = memoryview(self._map).cast("Q")

    @classmethod
    def create(cls) -> Pulse:
        """A new page; the descriptor is inherited by the child."""
        fd = os.memfd_create("vedette-pulse", os.MFD_CLOEXEC)
        os.ftruncate(fd, PULSE_BYTES)
        return cls(fd)

    @property
    def alive_ns(self) -> int:
        """When the child last said that it lives."""
        return self._words[W_ALIVE_NS]

    @property
    def busy_since_ns(self) -> int:
        """When the child began the frame in its hand, or 0."""
        return self._words[W_BUSY_SINCE_NS]

    def beat(self, now_ns: int) -> None:
        """Child side: alive and idle."""
        self._words[W_ALIVE_NS] = now_ns
        self._words[W_BUSY_SINCE_NS] = 0

    def busy(self, now_ns: int) -> None:
        """Child side: a frame is begun."""
        self._words[W_BUSY_SINCE_NS] = now_ns

    def hold(self, seq: int, captured_ns: int, file: str) -> None:
        """Child side: note the frame in hand; its slot is given back, and used anew, before its answer."""
        words = self._words
        words[W_HELD_SEQ] = 0
        if file or words[W_HELD_FILE_BYTES]:
            name = file.encode()[: PULSE_BYTES - HELD_FILE_OFFSET]
            words[W_HELD_FILE_BYTES] = len(name)
            self._map[HELD_FILE_OFFSET : HELD_FILE_OFFSET + len(name)] = name
        words[W_HELD_CAPTURED_NS] = captured_ns
        words[W_HELD_SEQ] = seq

    @property
    def held(self) -> HeldFrame:
        """What a child that is dead had in hand last."""
        words = self._words
        name_bytes = min(words[W_HELD_FILE_BYTES], PULSE_BYTES - HELD_FILE_OFFSET)
        name = self._map[HELD_FILE_OFFSET : HELD_FILE_OFFSET + name_bytes]
        return HeldFrame(words[W_HELD_SEQ], words[W_HELD_CAPTURED_NS], name.decode("utf-8", "replace"))

    def close(self) -> None:
        """Unmap and close."""
        self._words.release()
        self._map.close()
        os.close(self.fd)
