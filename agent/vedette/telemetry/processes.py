"""CPU time and memory of our processes, from /proc."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.wire.telemetry import OTHER, ProcessFigures

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_THREADS = 256  # of one process; more are not looked at
MAX_THREAD_NAMES = 12
_MAX_BYTES = 1 << 14
_NS_PER_MS = 1_000_000
_KIB = re.compile(rb"^(Rss|Pss|VmRSS):\s+([0-9]+) kB", re.MULTILINE)


class ProcessReader:
    """Reads the processes that it is given; CPU time is what was spent since the last look at them."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._spent_ns: dict[str, tuple[int, dict[int, int]]] = {}

    def read(self, pids: Mapping[str, int]) -> dict[str, ProcessFigures]:
        """Figures by role; a process that is gone is absent.

        Args:
            pids: Process ids by role, such as `daemon`, `worker person`, `source front`. Spent time begins at
                zero when a role has a new process.
        """
        figures = {}
        spent_ns: dict[str, tuple[int, dict[int, int]]] = {}
        for role, pid in pids.items():
            memory = self._memory_kib(pid)
            if memory is None:
                continue
            known_pid, before = self._spent_ns.get(role, (0, {}))
            threads = self._threads(pid)
            spent_ns[role] = pid, {thread: spent for thread, (_, spent) in threads.items()}
            by_name = _grown(threads, before if known_pid == pid else {})
            figures[role] = ProcessFigures(
                sum(by_name.values()) // _NS_PER_MS, *memory, _named(by_name) if len(by_name) > 1 else {}
            )
        self._spent_ns = spent_ns
        return figures

    def _threads(self, pid: int) -> dict[int, tuple[str, int]]:
        """Name and CPU nanoseconds of each living thread."""
        found: dict[int, tuple[str, int]] = {}
        folder = self._proc / str(pid) / "task"
        try:
            thread_ids = [int(entry.name) for entry in islice(folder.iterdir(), MAX_THREADS)]
        except (OSError, ValueError):
            return found
        for thread in thread_ids:
            spent = _read(folder / str(thread) / "schedstat").split()
            name = _read(folder / str(thread) / "comm").decode("utf-8", "replace").strip()
            if spent and spent[0].isdigit():
                found[thread] = name, int(spent[0])
        return found

    def _memory_kib(self, pid: int) -> tuple[int, int] | None:
        """Resident and proportional memory; None when the process is gone."""
        folder = self._proc / str(pid)
        sizes = {name: int(kib) for name, kib in _KIB.findall(_read(folder / "smaps_rollup"))}
        if b"Rss" in sizes:
            return sizes[b"Rss"], sizes.get(b"Pss", 0)
        # Older kernels, and processes that dropped to another user.
        sizes = {name: int(kib) for name, kib in _KIB.findall(_read(folder / "status"))}
        return (sizes[b"VmRSS"], 0) if b"VmRSS" in sizes else None


def _grown(threads: dict[int, tuple[str, int]], before: Mapping[int, int]) -> dict[str, int]:
    """Nanoseconds spent since, by name of thread; a thread id that was given anew begins at zero."""
    by_name: dict[str, int] = {}
    for thread, (name, spent) in threads.items():
        then = before.get(thread, 0)
        by_name[name] = by_name.get(name, 0) + (spent - then if spent >= then else spent)
    return by_name


def _named(by_name: Mapping[str, int]) -> dict[str, int]:
    """Milliseconds of the busiest threads, the others together; none that did nothing."""
    busiest = sorted(by_name.items(), key=lambda entry: -entry[1])
    named = {name: spent // _NS_PER_MS for name, spent in busiest[:MAX_THREAD_NAMES]}
    rest = sum(spent for _, spent in busiest[MAX_THREAD_NAMES:]) // _NS_PER_MS
    named[OTHER] = named.get(OTHER, 0) + rest
    return {name: spent_ms for name, spent_ms in named.items() if spent_ms}


def _read(path: Path) -> bytes:
    """The beginning of a file of the kernel; empty when there is none, or it must not be read."""
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(_MAX_BYTES) or b""
    except OSError:
        return b""
