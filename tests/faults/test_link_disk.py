"""The outbox on a real disk that is full: update state gets what is held back, all else is told (case 36)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_SMALL_DISK = 'mount -t tmpfs -o size=1m tmpfs "$1" && shift && exec "$@"'


def on_small_disk(folder: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command that sees a file system of one megabyte in `folder`."""
    rights = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    unshare = ["unshare", *rights, "--", "sh", "-c", _SMALL_DISK, "sh", str(folder), *command]
    return subprocess.run(unshare, capture_output=True, timeout=60.0, check=False)


def test_on_a_full_disk_update_state_is_still_kept_and_nothing_is_lost_silently(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if on_small_disk(disk, "true").returncode:
        pytest.skip("a small file system of its own cannot be mounted here: allow unshare(1) and tmpfs")
    done = on_small_disk(disk, sys.executable, "-m", "tests.stubs.full_disk", str(disk))
    assert done.returncode == 0, done.stderr.decode()
    met = json.loads(done.stdout)
    assert met["reserve_at_first"]
    assert met["report"] == "no_space"
    assert met["newest"] == "", "an event that may be dropped is dropped"
    assert met["newest_dropped"] > 90, "and counted"
    assert met["always_from_the_reserve"] >= 1, "room was held back for those that may not be"
    assert not met["reserve_when_full"]
    assert met["always"] == "no_space"
    assert met["waiting_when_full"] == met["kept"], "what was taken is there, what was refused is not"
    assert met["reserve_again"]
    assert met["afterwards"] == ""
    assert met["waiting_at_last"] == met["kept_at_last"]
