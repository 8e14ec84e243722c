"""`run` and `pipe` as installed: ends of pipes, accelerators that are not there, exit codes."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.stubs.commands import AGENT, Command, agent, check_books, whole_lines, write_config
from tests.stubs.frames import HEIGHT, RAW_BYTES, RAW_VIDEO, WIDTH, Y4M_BYTES, raw_frames, y4m_frames

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        (RAW_VIDEO, raw_frames(88, tail_bytes=RAW_BYTES // 3)),
        (("--format", "y4m"), y4m_frames(88, tail_bytes=Y4M_BYTES // 3)),
    ],
    ids=["rawvideo", "y4m"],
)
def test_case_18_88_frames_and_a_third_are_88_lines(
    bundle: Path, tmp_path: Path, options: tuple[str, ...], frames: bytes
) -> None:
    """Case 18: the short tail is dropped and counted, the end is clean; a real engine answers."""
    summary = tmp_path / "summary.json"
    ended = agent("pipe", "--model", bundle, *options, "--summary-json", summary, frames=frames)
    assert ended.returncode == 0, ended.stderr.decode()
    results = whole_lines(ended.stdout)
    assert [result["seq"] for result in results] == list(range(1, 89))
    books = check_books(summary, results)
    assert books["cameras"][0]["dropped"] == {"short": 1}
    assert books["cameras"][0]["frames_in"] == 89


def test_case_18_a_raw_pipe_that_closes_at_once_ends_cleanly(bundle: Path) -> None:
    """Case 18: no frame is no error where the framing has no header, and no line."""
    ended = agent("pipe", "--model", bundle, *RAW_VIDEO)
    assert (ended.returncode, ended.stdout) == (0, b"")


def test_case_18_a_y4m_pipe_that_closes_at_once_says_so(bundle: Path) -> None:
    """Case 18: without the header it was no Y4M: exit 65 with cause, no traceback."""
    ended = agent("pipe", "--model", bundle, "--format", "y4m")
    assert (ended.returncode, ended.stdout) == (65, b"")
    assert b"y4m" in ended.stderr.lower()
    assert b"Traceback" not in ended.stderr


def test_case_15_a_live_pipe_is_drained_while_the_engine_is_slow(bundle: Path, tmp_path: Path) -> None:
    """Case 15: 400 frames, more than a pipe holds, are taken from the producer long before they could be
    answered one by one; what was passed over is counted."""  # noqa: D205, D209 - one sentence
    camera = {
        "input": "-",
        "format": "rawvideo",
        "size": f"{WIDTH}x{HEIGHT}",
        "pix_fmt": "bgr24",
        "live": True,
        "max_age_ms": None,
    }
    config = write_config(tmp_path, bundle, {"front": camera}, options={"run_s": "0.2"})
    summary = tmp_path / "summary.json"
    arguments = ("run", "--config", config, "--summary-json", summary)
    with Command(*arguments, stdin=subprocess.PIPE) as command:
        assert command.process.stdin is not None
        command.process.stdin.write(raw_frames(400))
        command.process.stdin.close()
        assert command.end(within_s=60) == 0
        results = whole_lines(command.stdout)
    counts = check_books(summary, results)["cameras"][0]
    assert counts["frames_in"] == 400
    assert counts["ok"] < 50
    assert results[-1]["seq"] == 400
    assert set(counts["dropped"]) <= {"superseded", "no_worker"}


@pytest.mark.parametrize("policy", ["fail", "warn"])
def test_case_1_cuda_on_a_machine_without_it(bundle: Path, tmp_path: Path, policy: str) -> None:
    """Case 1: `fail` ends with 69 and the reason; `warn` serves, and the summary says degraded, and why."""
    cameras = {"front": {"input": "synthetic:64x48?frames=5"}}
    engine = {"accelerators": ["cuda", "cpu"], "on_fallback": policy}
    config = write_config(tmp_path, bundle, cameras, engine=engine)
    summary = tmp_path / "summary.json"
    ended = agent("run", "--config", config, "--summary-json", summary)
    books = json.loads(summary.read_text(encoding="utf-8"))
    assert b"cuda" in ended.stderr
    if policy == "fail":
        assert ended.returncode == 69
        assert ended.stdout == b""
        assert books["engine"] is None
        return
    assert ended.returncode == 0
    assert len(whole_lines(ended.stdout)) == 5
    assert books["engine"]["degraded"] is True
    assert books["engine"]["effective"] == "cpu"
    assert books["engine"]["skipped"][0]["accelerator"] == "cuda"
    assert books["engine"]["skipped"][0]["reason"]
    assert b"! asked for cuda, cpu and got cpu:" in ended.stderr


def test_a_damaged_bundle_is_exit_65_with_the_file_named(bundle: Path) -> None:
    """One flipped byte, found before anything is interpreted."""
    model = bundle / "tiny.onnx"
    content = bytearray(model.read_bytes())
    content[len(content) // 2] ^= 1
    model.write_bytes(content)
    ended = agent("pipe", "--model", bundle, *RAW_VIDEO, frames=raw_frames(1))
    assert (ended.returncode, ended.stdout) == (65, b"")
    assert b"tiny.onnx" in ended.stderr
    assert b"cure:" in ended.stderr


def test_memory_for_frames_that_is_too_small_is_exit_78(bundle: Path, tmp_path: Path) -> None:
    """Systemd must not restart on it; the figure needed is in the message."""
    cameras = {"front": {"input": "synthetic:1920x1080?frames=5"}}
    config = write_config(tmp_path, bundle, cameras, options={}, limits={"ring_memory": "1MB"})
    ended = agent("run", "--config", config)
    assert (ended.returncode, ended.stdout) == (78, b"")
    assert b"limits.ring_memory to at least 24895488" in ended.stderr


def test_a_summary_that_cannot_be_written_is_said_before_anything_runs(bundle: Path, tmp_path: Path) -> None:
    """Not after a night of frames: exit 2, no line, no traceback."""
    cameras = {"front": {"input": "synthetic:64x48?frames=3"}}
    config = write_config(tmp_path, bundle, cameras, options={})
    ended = agent("run", "--config", config, "--summary-json", tmp_path / "no" / "folder.json")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert b"cannot write the summary" in ended.stderr
    assert b"cure:" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_file_that_ends_badly_is_told_by_the_exit_code(bundle: Path, tmp_path: Path) -> None:
    """A camera that failed is no clean end, though every frame that came was answered."""
    clip = tmp_path / "cut.y4m"
    clip.write_bytes(y4m_frames(3) + b"GARBAGE that is no frame header" * 400)
    config = write_config(tmp_path, bundle, {"front": {"input": str(clip)}}, options={})
    ended = agent("run", "--config", config)
    assert ended.returncode == 65
    assert len(whole_lines(ended.stdout)) == 3
    assert b"vedette-agent: " in ended.stderr


@pytest.mark.parametrize(
    ("closed", "status", "lines"), [("<&-", 2, 0), (">&-", 2, 0), ("2>&-", 0, 10)], ids=["in", "out", "err"]
)
def test_a_standard_stream_that_the_caller_closed_is_never_taken_for_another_file(
    bundle: Path, tmp_path: Path, closed: str, status: int, lines: int
) -> None:
    """What is needed is asked for by name; what is not needed is done without."""
    frames = tmp_path / "frames.raw"
    frames.write_bytes(raw_frames(10))
    command = shlex.join([str(AGENT), "pipe", "--model", str(bundle), *RAW_VIDEO])
    ended = subprocess.run(
        ["/bin/sh", "-c", f"exec {command} <{shlex.quote(str(frames))} {closed}"],
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == status
    assert len(whole_lines(ended.stdout)) == lines
    if closed != "2>&-":
        assert b"is closed" in ended.stderr
        assert b"cure:" in ended.stderr
