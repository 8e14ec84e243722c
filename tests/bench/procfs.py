"""What /proc tells of processes: CPU time, memory, descriptors, threads; and of the whole machine."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KIB = 1024
_Part = tuple[bytes, bytes, bytes]
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ (?P<offset>\S+) (?P<device>\S+) (?P<inode>\d+)")


@dataclass(frozen=True)
class MachineTime:
    """Seconds that all CPUs together were busy, and that they existed, since boot."""

    busy_s: float
    total_s: float


def machine_time() -> MachineTime:
    """Read the first line of /proc/stat (resolution: one tick of 10 ms a CPU)."""
    fields = [int(field) for field in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    total = sum(fields)
    return MachineTime((total - fields[3] - fields[4]) / TICKS_PER_S, total / TICKS_PER_S)


def family(root: int) -> list[int]:
    """A process and all its descendants, itself first."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The command name in brackets may hold anything, so count from its end.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds of all living threads of these processes, exact to the nanosecond."""
    spent_ns = 0
    for pid in pids:
        for task in (PROC / str(pid) / "task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                spent_ns += int(task.read_text().split()[0])
    return spent_ns / 1e9


def command_line(pid: int) -> str:
    """The arguments of a process, joined; empty when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def rss_bytes(pid: int) -> int:
    """Resident memory; other processes cannot change it, as they do the proportional share."""
    return _field_bytes((PROC / str(pid) / "smaps_rollup").read_text(), "Rss")


def pss_bytes(pid: int) -> int:
    """Proportional share: what several processes map is divided among them."""
    return _field_bytes((PROC / str(pid) / "smaps_rollup").read_text(), "Pss")


def _field_bytes(text: str, name: str) -> int:
    found = re.search(rf"^{name}: +(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"smaps_rollup has no {name}; this bench needs Linux 4.14 or later")
    return int(found[1]) * KIB


def standalone_bytes(pids: Iterable[int]) -> int:
    """What a tree would take on a box where nobody else runs Python.

    Anonymous memory counts in full; of each part of a file or shared memory the largest residence among the
    processes counts once. Strangers that map the same libraries make `pss_bytes` too small; not this.
    """
    anonymous = 0
    shared: dict[_Part, int] = {}
    for pid in pids:
        for part, resident, own in _mappings(pid):
            anonymous += own
            shared[part] = max(shared.get(part, 0), resident - own)
    return anonymous + sum(shared.values())


def _mappings(pid: int) -> list[tuple[_Part, int, int]]:
    """(device, inode and offset; resident bytes, anonymous bytes of them) of each mapping."""
    found = []
    part: _Part = (b"", b"", b"")
    resident = 0
    for line in (PROC / str(pid) / "smaps").read_bytes().splitlines():
        header = _MAPPING.match(line)
        if header is not None:
            part = (header["device"], header["inode"], header["offset"])
        elif line.startswith(b"Rss:"):
            resident = int(line.split()[1]) * KIB
        elif line.startswith(b"Anonymous:"):
            found.append((part, resident, int(line.split()[1]) * KIB))
    return found


def open_descriptors(pid: int) -> int:
    """How many descriptors a process has."""
    return sum(1 for _ in (PROC / str(pid) / "fd").iterdir())


def threads(pid: int) -> int:
    """How many threads a process has."""
    return sum(1 for _ in (PROC / str(pid) / "task").iterdir())
