"""What a person at a terminal sees while a release is encoded."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.unit.fleet.stand import Desk, bundle

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-c", "from vedette_fleet.cli.main import main; main()"]


def test_a_bar_on_a_terminal_and_only_the_table_on_standard_output(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    arguments = ["release", str(bundle(tmp_path, "1")), "--repo", str(desk.repository.path)]
    master, terminal = pty.openpty()
    try:
        ran = subprocess.run(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=terminal, check=True, timeout=30
        )
        os.close(terminal)
        shown = os.read(master, 1 << 16).decode(errors="replace")
    finally:
        os.close(master)
    assert "3/3" in shown
    assert "published models-demo 2" in shown
    assert ran.stdout.startswith(b"file")
    assert b"\x1b" not in ran.stdout


def test_a_reader_who_leaves_is_no_bug(tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [*COMMAND, "keys", "list", "--repo", str(desk.repository.path)],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        timeout=30,
    )
    os.close(write)
    assert ran.returncode == 69
    assert b"standard output was closed" in ran.stderr
