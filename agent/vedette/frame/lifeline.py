"""What every child process of the daemon does first: die with it, leave signals to it, keep a pulse."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from typing import NamedTuple

PR_SET_PDEATHSIG = 1
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
