"""Cameras and GPUs of this box, and who may use them."""

from __future__ import annotations

import glob
import grp
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PATTERNS = {
    "camera": ("dev/video[0-9]*",),
    "GPU": (
        "dev/dri/renderD*",
        "dev/nvhost-gpu",
        "dev/nvhost-ctrl-gpu",
        "dev/nvmap",
        "dev/nvidia[0-9]*",
        "dev/nvidia-uvm",
        "dev/nvidiactl",
    ),
}
GROUPS = frozenset({"video", "render"})


class Device(NamedTuple):
    """`fault` says why a service of the groups `video` and `render` may not use it; empty where it may."""

    kind: str
    path: Path
    group: str
    fault: str


def devices(root: Path = Path("/")) -> Iterator[Device]:
    """Every camera and GPU node below `root`."""
    for kind, patterns in PATTERNS.items():
        for pattern in patterns:
            for name in sorted(glob.glob(str(root / pattern))):  # noqa: PTH207 - sorted, and absolute
                yield _device(kind, Path(name))


def _device(kind: str, path: Path) -> Device:
    try:
        found = path.stat()
    except OSError as error:
        return Device(kind, path, "", error.strerror or str(error))
    try:
        group = grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        group = str(found.st_gid)
    everybody = found.st_mode & (stat.S_IROTH | stat.S_IWOTH) == stat.S_IROTH | stat.S_IWOTH
    of_group = found.st_mode & (stat.S_IRGRP | stat.S_IWGRP) == stat.S_IRGRP | stat.S_IWGRP
    if everybody or (of_group and group in GROUPS):
        return Device(kind, path, group, "")
    cure = (
        f"add it with SupplementaryGroups={group}" if of_group else "let its group read and write it (udev)"
    )
    return Device(kind, path, group, f"group {group} owns it, the service is not in it; {cure}")
