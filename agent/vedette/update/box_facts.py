"""What this box is, as plans need to know it: read from the system once."""

from __future__ import annotations

import importlib.util
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import vedette
from vedette.bundle.compatibility import opset_range
from vedette.engine.registry import DISTRIBUTIONS, installed_runtime
from vedette.update.plan import Box
from vedette.wire.release import Codec

if TYPE_CHECKING:
    from collections.abc import Mapping

# Its numbers began anew with LiteRT, so the old ones say nothing.
_ANCESTOR = "tflite-runtime"


def read_box(*, accelerators: tuple[str, ...], plugins: Mapping[str, str]) -> Box:
    """The facts; `accelerators` is the configured ladder. An engine from a plug-in has version 0 at least."""
    runtimes: dict[str, str] = {}
    opsets = None
    for engine in (*DISTRIBUTIONS, *plugins):
        found = installed_runtime(engine)
        if found is not None:
            runtimes[engine] = "0" if found[0] == _ANCESTOR else found[1]
        elif engine in plugins:
            runtimes[engine] = "0"
        if engine == "onnx" and found is not None:
            opsets = opset_range(found[1])
    return Box(
        arch=platform.machine(),
        agent=vedette.__version__,
        runtimes=runtimes,
        opsets=opsets,
        accelerators=accelerators,
        memory_mb=memory_mb(),
    )


def usable_codecs() -> frozenset[Codec]:
    """What can be decoded here; zstd needs a package."""
    try:
        found = importlib.util.find_spec("backports.zstd")
    except ModuleNotFoundError:  # nothing of the namespace is there
        found = None
    return frozenset(set(Codec) if found else set(Codec) - {Codec.ZSTD})


def memory_mb() -> int:
    """All the memory that this box has, or that its control group may take, in millions of bytes."""
    found = [_meminfo_bytes(), _cgroup_bytes()]
    known = [size for size in found if size]
    return min(known) // 1_000_000 if known else 0


def boot_id() -> str:
    """The kernel's name for this boot; empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _meminfo_bytes() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")), 0)


def _cgroup_bytes() -> int:
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            text = (Path("/sys/fs/cgroup") / name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return 0
