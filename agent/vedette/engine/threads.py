"""How many threads a model may use: what this process may run on, not what the box has (casebook 3)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Setting = int | Literal["auto"]

MAX_AUTO = 4


@dataclass(frozen=True)
class CpuLimits:
    """What the kernel grants: CPUs in the affinity mask, and cgroup quota in CPUs (None: no quota)."""

    affinity: int
    quota_cpus: float | None


def usable_cpus(limits: CpuLimits, *, cap: int | None = None) -> int:
    """Whole CPUs worth a thread each: the smallest of mask, quota rounded up, and cap; never below 1."""
    allowed = limits.affinity
    if limits.quota_cpus is not None:
        allowed = min(allowed, math.ceil(limits.quota_cpus))
    if cap is not None:
        allowed = min(allowed, cap)
    return max(1, allowed)


def threads_for(setting: Setting, usable: int, *, models: int = 1) -> int:
    """Threads of one model out of `models` that run at the same time.

    `auto` is 1 on one or two CPUs, since cameras and decoders need the other one and a second thread on
    a busy box was measured to cost far more than it gives (2.4 ms became 583). Above that it leaves one CPU
    free and stops at four, where small vision models stop to gain. A number is obeyed, but not beyond
    the usable CPUs; both are shared among the models.
    """
    wanted = (1 if usable <= 2 else min(MAX_AUTO, usable - 1)) if setting == "auto" else min(setting, usable)
    return max(1, wanted // max(1, models))


def quota_v2(text: str) -> float | None:
    """CPUs granted by a cgroup v2 `cpu.max`, such as "150000 100000"; None for "max" or nonsense."""
    fields = text.split()
    if len(fields) != 2:
        return None
    return _ratio(fields[0], fields[1])


def quota_v1(quota_us: str, period_us: str) -> float | None:
    """CPUs granted by cgroup v1 `cpu.cfs_quota_us` and `cpu.cfs_period_us`; None for -1 or nonsense."""
    return _ratio(quota_us.strip(), period_us.strip())


def _ratio(quota: str, period: str) -> float | None:
    try:
        quota_us, period_us = int(quota), int(period)
    except ValueError:
        return None
    if quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def cgroup_paths(text: str) -> tuple[str | None, str | None]:
    """From /proc/self/cgroup: this process's path in cgroup v2, and in the v1 `cpu` hierarchy."""
    unified: str | None = None
    legacy: str | None = None
    for line in text.splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        hierarchy, controllers, path = fields
        if hierarchy == "0" and not controllers:
            unified = path
        elif "cpu" in controllers.split(","):
            legacy = path
    return unified, legacy


def read_limits(root: Path = Path("/")) -> CpuLimits:
    """Read affinity mask and cgroup quota; what cannot be read sets no limit."""
    unified, legacy = cgroup_paths(_read(root / "proc/self/cgroup") or "")
    mount = root / "sys/fs/cgroup"
    quotas: list[float] = []
    if unified is not None:
        for folder in _chain(mount, unified):
            quotas.extend(_known(quota_v2(_read(folder / "cpu.max") or "")))
    if legacy is not None:
        for folder in (*_chain(mount / "cpu", legacy), *_chain(mount / "cpu,cpuacct", legacy)):
            quota = _read(folder / "cpu.cfs_quota_us") or ""
            quotas.extend(_known(quota_v1(quota, _read(folder / "cpu.cfs_period_us") or "")))
    return CpuLimits(_affinity(), min(quotas) if quotas else None)


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # not Linux
        return os.cpu_count() or 1


def _chain(mount: Path, path: str) -> tuple[Path, ...]:
    """The cgroup's folder and every one above it: a parent's quota binds too."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return tuple(mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _known(value: float | None) -> tuple[float, ...]:
    return () if value is None else (value,)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


def granted_threads(setting: Setting) -> int:
    """`threads_for` on this box, as the kernel limits this process now."""
    return threads_for(setting, usable_cpus(read_limits()))
