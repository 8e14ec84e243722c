"""`vedette-fleet plumbing diff` and `vedette-agent plumbing patch`, through the real entry points."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.unit.codecs import pairs

from vedette.cli import main as agent
from vedette_fleet.cli import main as fleet

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = pairs.STORIES["fine-tune int8"]


def run(shell: object, *arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        shell.main([str(argument) for argument in arguments])  # type: ignore[attr-defined]
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old").write_bytes(OLD)
    (tmp_path / "new").write_bytes(NEW)
    return tmp_path


@pytest.mark.parametrize("codec", ["auto", "bsdiff4", "tensor"])
def test_what_diff_makes_patch_applies(folder: Path, codec: str) -> None:
    assert run(fleet, "plumbing", "diff", folder / "old", folder / "new", folder / "p", "--codec", codec) == 0
    assert run(agent, "plumbing", "patch", folder / "old", folder / "p", folder / "made") == 0
    assert (folder / "made").read_bytes() == NEW
    assert sorted(path.name for path in folder.iterdir()) == ["made", "new", "old", "p"]


def test_a_damaged_patch_is_bad_input_and_leaves_the_old_result(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fleet, "plumbing", "diff", folder / "old", folder / "new", folder / "p") == 0
    blob = bytearray((folder / "p").read_bytes())
    blob[len(blob) // 2] ^= 1
    (folder / "p").write_bytes(blob)
    (folder / "made").write_bytes(b"what was there before")
    assert run(agent, "plumbing", "patch", folder / "old", folder / "p", folder / "made") == 65
    assert (folder / "made").read_bytes() == b"what was there before"
    assert sorted(path.name for path in folder.iterdir()) == ["made", "new", "old", "p"]
    assert "cure: " in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["old", "p"])
def test_a_missing_file_is_bad_input(folder: Path, missing: str) -> None:
    (folder / "p").write_bytes(b"x")
    (folder / missing).unlink()
    assert run(agent, "plumbing", "patch", folder / "old", folder / "p", folder / "made") == 65
    assert run(fleet, "plumbing", "diff", folder / "gone", folder / "new", folder / "p") == 65


def test_the_device_s_codecs_need_nothing_of_the_publisher() -> None:
    """Import weight: neither bsdiff4 nor the fleet's package."""
    import subprocess

    code = (
        "import sys, vedette.update.codecs.decode;"
        "print([m for m in ('bsdiff4', 'vedette_fleet', 'tuf', 'backports.zstd') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "[]"
