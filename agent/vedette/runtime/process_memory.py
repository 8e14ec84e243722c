"""Memory that a process has to itself, as the kernel counts it (proc_pid_status(5))."""

from __future__ import annotations

from pathlib import Path


def anonymous_bytes(pid: int) -> int:
    """Resident memory that is no file's and not shared, so no frames; 0 when nobody knows."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
