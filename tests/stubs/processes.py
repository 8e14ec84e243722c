"""What /proc tells about processes: children, whether one lives, open descriptors."""

from __future__ import annotations

import os
from pathlib import Path


def children_of(pid: int) -> dict[int, str]:
    """Living children of a process, pid -> command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent_of(int(entry.name)) == pid:
            found[int(entry.name)] = command_of(int(entry.name))
    return found


def child_running(pid: int, module: str) -> int | None:
    """The pid of the child that runs `-m module`, if there is one."""
    return next((child for child, command in children_of(pid).items() if module in command), None)


def command_of(pid: int) -> str:
    """A process's command line, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody reaped yet does not."""
    return _stat(pid)[:1] not in ([], ["Z"], ["X"])


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the count, not the paths


def _parent_of(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 and fields[0] not in "ZX" else -1


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent and so on."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return []
