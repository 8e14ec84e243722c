"""The front doors as people really use them: wrong calls, missing files, names, remarks and help."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from tests.stubs.commands import (
    AGENT,
    CALLS_BEFORE_RUN_FRAMES,
    agent,
    environment,
    whole_lines,
    write_config,
)
from tests.stubs.frames import RAW_VIDEO, Y4M_BYTES, raw_frames, y4m_frames

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system


def test_a_pipe_announces_itself_without_format(bundle: Path) -> None:
    """y4m needs no option, also where it comes in drips."""
    ended = agent("pipe", "--model", bundle, frames=y4m_frames(7))
    assert ended.returncode == 0, ended.stderr.decode()
    assert len(whole_lines(ended.stdout)) == 7


def test_size_and_pixel_format_mean_raw_video(bundle: Path) -> None:
    """As for ingest-check, whose printed line stays the longer one."""
    ended = agent("pipe", "--model", bundle, *RAW_VIDEO[2:], frames=raw_frames(3))
    assert ended.returncode == 0, ended.stderr.decode()
    assert len(whole_lines(ended.stdout)) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "rawvideo"), b"--size WxH and --pix-fmt missing"),
        (("--format", "rawvideo", "--size", "64x48"), b"together"),
        ((*RAW_VIDEO, "--stride", "100"), b"below the 192 bytes"),
        ((*RAW_VIDEO[:3], "64x48", "--pix-fmt", "nv12", "--stride", "64"), b"2 planes, 1 stride was given"),
        ((*RAW_VIDEO, "--padded-height", "40"), b"padded height 40 is below"),
        ((*RAW_VIDEO[:3], "30000x30000", "--pix-fmt", "bgra"), b"above the limit"),
        (("--format", "y4m", "--size", "64x48"), b"do nothing with --format y4m"),
        (("--format", "y4m", "--max-age-ms", "100"), b"goes with --live"),
        (("--format", "y4m", "--fps", "nan"), b"nan"),
        (("--format", "y4m", "--fps", "inf"), b"inf"),
        (("--format", "y4m", "--live", "--max-age-ms", "inf"), b"inf"),
        (("--format", "y4m", "--camera", ""), b"no usable name"),
        (("--format", "y4m", "--camera", "a/b c"), b"no usable name"),
        (("--format", "y4m", "--camera", "a\nb\x1b[31m"), b"no usable name"),
        (("--format", "y4m", "--ring-memory", "100"), b"with its unit"),
    ],
)
def test_a_wrong_call_is_exit_2_before_anything_starts(
    bundle: Path, options: tuple[str, ...], said: bytes
) -> None:
    """Nothing loads, no empty table, one message; our own messages name a cure."""
    ended = agent("pipe", "--model", bundle, *options, frames=raw_frames(1))
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert said in ended.stderr
    assert b"loading" not in ended.stderr
    assert b"answers from" not in ended.stderr
    assert b"cure:" in ended.stderr or b"Error: Invalid value" in ended.stderr


@pytest.mark.parametrize("command", [("probe",), ("pipe", "--format", "y4m", "--model")])
def test_a_path_that_is_no_text_is_a_wrong_call(command: tuple[str, ...], tmp_path: Path) -> None:
    """A byte that is no UTF-8 cannot reach the worker; that is no bug of ours."""
    path = os.fsdecode(bytes(tmp_path) + b"/p\xff")
    ended = agent(*command, path, frames=y4m_frames(1))
    assert ended.returncode == 2
    assert b"no UTF-8 text" in ended.stderr


def test_a_locale_of_ascii_is_no_bug_of_ours(bundle: Path) -> None:
    """A camera's name is refused as in the configuration, whatever the locale makes of it."""
    ended = subprocess.run(
        [AGENT, "pipe", "--model", bundle, "--camera", "\u00e4"],
        input=y4m_frames(1),
        capture_output=True,
        timeout=30,
        check=False,
        env={**environment(), "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    assert ended.returncode == 2
    assert b"no usable name" in ended.stderr


def test_raw_video_that_nobody_described_is_asked_for(bundle: Path) -> None:
    """Exit 2, since in `pipe` the command line is all the configuration there is; no empty table."""
    ended = agent("pipe", "--model", bundle, frames=raw_frames(3))
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"neither y4m nor MJPEG" in ended.stderr
    assert b"--format rawvideo --size WxH --pix-fmt F" in ended.stderr
    assert b"answers from" not in ended.stderr
    assert b"! no model" not in ended.stderr


def test_a_film_in_place_of_frames_is_named(bundle: Path) -> None:
    """Bad input, not a wrong call: exit 65."""
    ended = agent("pipe", "--model", bundle, frames=b"\x00\x00\x00\x18ftypisom" + bytes(9000))
    assert ended.returncode == 65
    assert b"holds an MP4 or MOV file" in ended.stderr


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ((*RAW_VIDEO[:3], "65x48", *RAW_VIDEO[4:]), raw_frames(88)),
        (("--format", "y4m"), y4m_frames(0, tail_bytes=Y4M_BYTES // 3)),
    ],
    ids=["wrong width", "a header and a cut frame"],
)
def test_an_input_that_ends_inside_a_frame_is_said(
    bundle: Path, options: tuple[str, ...], frames: bytes
) -> None:
    """The pipe itself proves that something is wrong; a number in a table is not enough."""
    ended = agent("pipe", "--model", bundle, *options, frames=frames)
    assert ended.returncode == 0
    assert b"pipe: the input ended" in ended.stderr


def test_memory_for_frames_can_be_had_from_the_command_line(bundle: Path) -> None:
    """The cure names options that this command has, and following it helps."""
    raw = ("--size", "1920x1080", "--pix-fmt", "bgr24")
    refused = agent("pipe", "--model", bundle, *raw, "--ring-memory", "1MB", frames=bytes(1920 * 1080 * 3))
    assert refused.returncode == 2
    found = re.search(rb"at least (\d+B) \(pipe: --ring-memory\)", refused.stderr)
    assert found is not None
    assert b"--slots" in refused.stderr
    room = ("--ring-memory", found[1].decode())
    ended = agent("pipe", "--model", bundle, *raw, *room, frames=bytes(1920 * 1080 * 3))
    assert ended.returncode == 0, ended.stderr.decode()
    assert len(whole_lines(ended.stdout)) == 1


@pytest.mark.parametrize("missing", ["model", "input", "state_dir"])
def test_what_a_configuration_names_and_is_not_there_is_exit_78(
    bundle: Path, tmp_path: Path, missing: str
) -> None:
    """A service manager must not start it again and again."""
    model = tmp_path / "none" if missing == "model" else bundle
    source = str(tmp_path / "none.mp4") if missing == "input" else "synthetic:64x48?frames=3"
    state = {"state_dir": "/proc/nope"} if missing == "state_dir" else {}
    config = write_config(tmp_path, model, {"a": {"input": source}}, options={}, **state)
    ended = agent("run", "--config", config)
    assert (ended.returncode, ended.stdout) == (78, b"")
    assert b"loading" not in ended.stderr
    assert (b"/proc/nope" if missing == "state_dir" else b"none") in ended.stderr


def test_a_configuration_may_come_from_the_shell(bundle: Path, tmp_path: Path) -> None:
    """`run --config <(cat agent.yaml)`."""
    config = write_config(tmp_path, bundle, {"a": {"input": "synthetic:64x48?frames=3"}}, options={})
    script = f"{shlex.quote(str(AGENT))} run --config <(cat {shlex.quote(str(config))})"
    ended = subprocess.run(
        ["/bin/bash", "-c", script], capture_output=True, timeout=30, check=False, env=environment()
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert len(whole_lines(ended.stdout)) == 3


def test_the_pictures_of_a_folder_can_be_told_apart(bundle: Path, tmp_path: Path) -> None:
    """Each result carries its file; damaged ones are named once, whatever comes of them; the crash, too."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in (1, 3, 4, 10):
        cv2.imwrite(str(folder / f"p{number}.png"), np.full((48, 64, 3), number, np.uint8))
    (folder / "p2.png").write_bytes(b"no picture")
    crash = {"crash_on": str(CALLS_BEFORE_RUN_FRAMES + 3)}
    config = write_config(tmp_path, bundle, {"a": {"input": str(folder)}}, options=crash)
    ended = agent("run", "--config", config)
    assert ended.returncode == 0, ended.stderr.decode()
    results = whole_lines(ended.stdout)
    assert [result["file"] for result in results] == ["p1.png", "p3.png", "p4.png", "p10.png"]
    assert ["failed" in result for result in results] == [False, False, True, False]
    assert ended.stderr.count(b"a: p2.png cannot be used: ") == 1


def test_ctrl_c_while_the_program_still_imports_is_no_traceback() -> None:
    """The first tenth of a second belongs to imports; an interrupt there ends like any other: 130."""
    script = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from vedette.cli.main import main\n"
        "main(['--help'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30, check=False)
    assert ended.returncode == 130
    assert ended.stderr == b"vedette-agent: interrupted\n"


@pytest.mark.parametrize("name", ["pipe", "ingest-check"])
def test_the_examples_of_the_help_keep_their_lines(name: str) -> None:
    """No literal backslash, and each example on one line, ready to be pasted."""
    shown = agent(name, "--help").stdout.decode()
    assert "\\b" not in shown
    assert "| vedette-agent " + name in shown
