"""Thread counts come from what the process may use (case 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.engine.threads import (
    CpuLimits,
    cgroup_paths,
    quota_v1,
    quota_v2,
    read_limits,
    threads_for,
    usable_cpus,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("affinity", "quota", "cap", "usable"),
    [
        (64, None, None, 64),
        (1, None, None, 1),  # taskset -c 0 on any machine
        (64, 1.5, None, 2),
        (64, 0.2, None, 1),
        (4, 8.0, None, 4),
        (64, None, 3, 3),
        (64, 2.0, 3, 2),
        (8, None, 0, 1),
    ],
)
def test_the_smallest_of_mask_quota_and_cap_binds(
    affinity: int, quota: float | None, cap: int | None, usable: int
) -> None:
    """Case 3: never the machine's count."""
    assert usable_cpus(CpuLimits(affinity, quota), cap=cap) == usable


@pytest.mark.parametrize(
    ("usable", "models", "threads"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 1, 3), (5, 1, 4), (64, 1, 4), (64, 2, 2)],
)
def test_auto_leaves_room_for_cameras(usable: int, models: int, threads: int) -> None:
    """One on a small box, else all but one, at most four, shared among the models."""
    assert threads_for("auto", usable, models=models) == threads


@given(
    setting=st.one_of(st.just("auto"), st.integers(1, 256)),
    usable=st.integers(1, 256),
    models=st.integers(1, 16),
)
def test_models_together_never_oversubscribe(setting: int | str, usable: int, models: int) -> None:
    """Case 3: each gets at least one thread, and beyond that they share."""
    threads = threads_for(setting, usable, models=models)  # type: ignore[arg-type] # the strategy gives only "auto"
    assert threads >= 1
    assert threads == 1 or threads * models <= usable


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("150000 100000\n", 1.5),
        ("max 100000\n", None),
        ("", None),
        ("0 100000", None),
        ("x y", None),
        ("1 0", None),
    ],
)
def test_cgroup_v2_quota(text: str, cpus: float | None) -> None:
    """`max` and nonsense are no limit."""
    assert quota_v2(text) == cpus


def test_cgroup_v1_quota() -> None:
    """-1 is no limit."""
    assert quota_v1("50000\n", "100000\n") == 0.5
    assert quota_v1("-1\n", "100000\n") is None


def test_paths_in_both_hierarchies() -> None:
    """A hybrid system lists both; `cpu` shares its v1 hierarchy with `cpuacct`."""
    text = "12:cpu,cpuacct:/docker/x\n3:cpuset:/other\n0::/system.slice/vedette.service\n"
    assert cgroup_paths(text) == ("/system.slice/vedette.service", "/docker/x")


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def test_a_parents_quota_binds_too(tmp_path: Path) -> None:
    """Systemd sets CPUQuota= on a slice; the unit's own file says max."""
    write(tmp_path, "proc/self/cgroup", "0::/edge.slice/vedette.service\n")
    write(tmp_path, "sys/fs/cgroup/edge.slice/vedette.service/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/edge.slice/cpu.max", "120000 100000\n")
    assert read_limits(tmp_path).quota_cpus == 1.2


def test_in_a_container_the_mount_is_the_own_group(tmp_path: Path) -> None:
    """The path is the host's and does not exist inside; the quota lies at the mount."""
    write(tmp_path, "proc/self/cgroup", "0::/docker/0123\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    assert read_limits(tmp_path).quota_cpus == 0.5


def test_cgroup_v1_files_are_read(tmp_path: Path) -> None:
    """JetPack 5 and older Docker hosts."""
    write(tmp_path, "proc/self/cgroup", "4:cpu,cpuacct:/box\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "300000\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n")
    assert read_limits(tmp_path).quota_cpus == 3.0


def test_nothing_readable_is_no_limit_but_the_mask(tmp_path: Path) -> None:
    """A system without /proc and cgroups still gives a count."""
    limits = read_limits(tmp_path)
    assert limits.quota_cpus is None
    assert limits.affinity >= 1
