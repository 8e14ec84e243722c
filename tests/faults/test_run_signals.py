"""How `run` ends: signals, consumers that go away or do not read, full disks; no child is left behind."""

from __future__ import annotations

import array
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import termios
from typing import TYPE_CHECKING, Any

import pytest
from tests.stubs.commands import (
    AGENT,
    CALLS_BEFORE_RUN_FRAMES,
    SOURCE,
    WORKER,
    Command,
    agent,
    check_books,
    environment,
    whole_lines,
    write_config,
)
from tests.stubs.processes import alive
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

TWO_CAMERAS: dict[str, dict[str, Any]] = {
    "left": {"input": "synthetic:64x48@40", "live": True},
    "right": {"input": "synthetic:64x48?frames=1000000"},
}
STOP_S = 10.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_serving_ends_in_time_with_everything_accounted_for(
    bundle: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Exit 0 within three seconds, tables on stderr, whole lines on stdout, books that balance, no child."""
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={"run_s": "0.01"})
    summary = tmp_path / "summary.json"
    with Command("run", "--config", config, "--summary-json", summary) as command:
        command.until_lines(20)
        children = command.children()
        assert len(children) == 3
        command.signal(number)
        assert command.end(within_s=STOP_S) == 0
        assert not any(map(alive, children))
        assert f"stopped: {number.name}" in command.said
        assert "answers from 2 cameras" in command.said
        books = check_books(summary, whole_lines(command.stdout))
    dropped = [camera["dropped"] for camera in books["cameras"]]
    assert all(set(causes) <= {"superseded", "no_worker", "stale", "shutdown"} for causes in dropped)


def test_a_signal_to_the_whole_control_group_is_no_fault_of_the_children(
    bundle: Path, tmp_path: Path
) -> None:
    """Systemd's default way to stop a service: children that get SIGTERM first leave it to the daemon."""
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={"run_s": "0.01"})
    summary = tmp_path / "summary.json"
    with Command("run", "--config", config, "--summary-json", summary) as command:
        command.until_lines(20)
        children = command.children()
        for pid in (*children, command.pid):
            os.kill(pid, signal.SIGTERM)
        assert command.end(within_s=STOP_S) == 0
        assert not any(map(alive, children))
        books = check_books(summary, whole_lines(command.stdout))
    assert [camera["failed"] for camera in books["cameras"]] == [{}, {}]
    assert books["worker_restarts"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_model_loads_ends_in_time(
    bundle: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """A load that would never end is no reason to wait: exit 0, no child."""
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={"load_hang": "yes"})
    with Command("run", "--config", config) as command:
        command.until_said("loading tiny")
        children = command.children()
        command.signal(number)
        assert command.end(within_s=STOP_S) == 0
        assert not any(map(alive, children))
        assert command.stdout == b""
        assert "Traceback" not in command.said


def test_a_signal_while_a_frame_hangs_ends_in_time_and_that_frame_has_failed(
    bundle: Path, tmp_path: Path
) -> None:
    """The frame in hand cannot be finished: it is in the books, and in the results, as hung."""
    options = {"hang_on": str(CALLS_BEFORE_RUN_FRAMES + 3)}
    cameras = {"front": {"input": "synthetic:64x48?frames=1000"}}
    config = write_config(tmp_path, bundle, cameras, options=options)
    summary = tmp_path / "summary.json"
    with Command("run", "--config", config, "--summary-json", summary) as command:
        command.until_lines(2)
        command.signal(signal.SIGTERM)
        assert command.end(within_s=STOP_S) == 0
        results = whole_lines(command.stdout)
        check_books(summary, results)
    assert [result["seq"] for result in results] == [1, 2, 3]
    assert results[2]["failed"]["cause"] == "worker_hung"
    assert "told to stop" in results[2]["failed"]["detail"]


def test_a_second_ctrl_c_does_not_wait(bundle: Path, tmp_path: Path) -> None:
    """Somebody who presses twice wants out: exit 130, no traceback, no child."""
    options = {"hang_on": str(CALLS_BEFORE_RUN_FRAMES + 2)}
    cameras = {"front": {"input": "synthetic:64x48?frames=1000"}}
    config = write_config(tmp_path, bundle, cameras, options=options)
    with Command("run", "--config", config) as command:
        command.until_lines(1)
        children = [command.until_child(WORKER), command.until_child(SOURCE)]
        command.signal(signal.SIGINT)
        until(lambda: not alive(children[1]), "the source is told to stop")
        command.signal(signal.SIGINT)
        status = command.end(within_s=10.0)
        until(lambda: not any(map(alive, children)), "the children end")
        assert "Traceback" not in command.said
    assert status == 130


@pytest.mark.parametrize("with_stderr", [False, True], ids=["results", "results and remarks"])
def test_a_consumer_that_goes_away_ends_the_daemon_and_its_exit_code_says_so(
    bundle: Path,
    tmp_path: Path,
    with_stderr: bool,  # noqa: FBT001 - parametrised
) -> None:
    """`| head -1`, with and without `2>&1`: no traceback; exit 69, since a service must not end so unseen."""
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={})
    stderr = subprocess.STDOUT if with_stderr else subprocess.PIPE
    with Command("run", "--config", config, read_stdout=False, stderr=stderr) as command:
        stdout = command.process.stdout
        assert stdout is not None
        first = stdout.readline()
        children = command.children()
        stdout.close()
        assert command.end(within_s=10) == 69
        assert not any(map(alive, children))
        assert b"Traceback" not in first
        assert "Traceback" not in command.said
        if not with_stderr:
            assert "stopped: the reader of the results went away" in command.said
            assert re.search(
                r"vedette-agent: .* went away; \d+ answers? (was|were) not delivered", command.said
            )


def test_a_consumer_that_does_not_read_holds_nothing_up(bundle: Path, tmp_path: Path) -> None:
    """Pipe full, workers waiting: SIGTERM still ends in time, and what got out are whole lines.

    What did not get out is no answer: exit 69, the number on stderr, and `failed(undelivered)` in the books.
    """
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={})
    summary = tmp_path / "summary.json"
    arguments = ("run", "--config", config, "--summary-json", summary)
    with Command(*arguments, read_stdout=False) as command:
        assert command.process.stdout is not None
        fd = command.process.stdout.fileno()
        command.until_said("warming up")
        queued = [0]

        def fills_no_more() -> bool:
            queued.append(_queued_bytes(fd))
            return queued[0] < queued[-1] == queued[-min(len(queued), 50)]

        until(fills_no_more, "the pipe is full: no byte more for 50 looks")
        children = command.children()
        command.signal(signal.SIGTERM)
        assert command.end(within_s=STOP_S) == 69
        assert not any(map(alive, children))
        output = b""
        while piece := os.read(fd, 65536):
            output += piece
    results = whole_lines(output)
    assert len(results) > 10
    books = check_books(summary, results)
    lost = sum(camera["failed"]["undelivered"] for camera in books["cameras"] if camera["failed"])
    assert lost > 0
    assert f"the reader of the results does not read; {lost:,} answer" in command.said
    assert "answers from 2 cameras" in command.said


@pytest.mark.parametrize("to", ["/dev/full", "| head -1"])
def test_a_pipe_s_results_that_nobody_gets_are_not_ok(bundle: Path, tmp_path: Path, to: str) -> None:
    """`pipe` into a full disk is exit 69; into `head -1`, which saw enough, exit 0. Both say how many."""
    frames = tmp_path / "frames.raw"
    frames.write_bytes(bytes(64 * 48 * 3 * 400))
    summary = tmp_path / "summary.json"
    raw = ("--format", "rawvideo", "--size", "64x48", "--pix-fmt", "bgr24")
    command = shlex.join(map(str, (AGENT, "pipe", "--model", bundle, *raw, "--summary-json", summary)))
    into = f"> {to}" if to.startswith("/") else to
    script = f"{command} < {shlex.quote(str(frames))} {into}; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["/bin/bash", "-c", script], capture_output=True, timeout=60, check=False, env=environment()
    )
    books = json.loads(summary.read_text(encoding="utf-8"))
    camera = books["cameras"][0]
    lost = camera["failed"]["undelivered"]
    assert books["imbalance"] == {}
    assert f"; {lost:,} answer".encode() in ended.stderr
    if to.startswith("/"):
        assert ended.returncode == 69
        assert camera["ok"] == 0
        assert b"No space left on device" in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr.decode()
        assert b"the reader of the results went away" in ended.stderr
        assert len(whole_lines(ended.stdout)) == 1


def test_a_fifo_for_results_that_nobody_reads_does_not_hold_a_stop_up(bundle: Path, tmp_path: Path) -> None:
    """The wait for its reader is said, and ends at the first SIGTERM."""
    os.mkfifo(tmp_path / "fifo")
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={}, results={"to": str(tmp_path / "fifo")})
    with Command("run", "--config", config) as command:
        command.until_said("waiting for somebody to read the results")
        command.signal(signal.SIGTERM)
        assert command.end(within_s=STOP_S) == 0
        assert "stopped: SIGTERM" in command.said


def test_frames_that_came_while_no_worker_was_up_are_booked_as_such(bundle: Path, tmp_path: Path) -> None:
    """The worker died and was not started again: the frames were lost to that, not to the end."""
    engine = {"restart": {"backoff_min_s": 3600, "backoff_max_s": 3600}}
    camera = {"input": "synthetic:64x48@40", "live": True}
    config = write_config(tmp_path, bundle, {"left": camera}, options={}, engine=engine)
    summary = tmp_path / "summary.json"
    with Command("run", "--config", config, "--summary-json", summary) as command:
        command.until_lines(3)
        os.kill(command.until_child(WORKER), signal.SIGKILL)
        command.until_said("next start in")
        lines = command.lines()
        command.signal(signal.SIGTERM)
        assert command.end(within_s=STOP_S) == 0
        results = whole_lines(command.stdout)
        books = check_books(summary, results)
    assert len(results) - lines <= 1
    dropped = books["cameras"][0]["dropped"]
    assert set(dropped) <= {"no_worker", "superseded", "stale", "shutdown"}
    assert dropped.get("shutdown", 0) <= 2  # what came in between the signal and the end of the source


def _queued_bytes(fd: int) -> int:
    """What lies in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


def test_a_full_disk_is_an_error_and_not_a_clean_end(bundle: Path, tmp_path: Path) -> None:
    """Results that cannot be written: exit 69, the system's reason and a cure."""
    cameras = {"front": {"input": "synthetic:64x48?frames=5"}}
    config = write_config(tmp_path, bundle, cameras, options={}, results={"to": "/dev/full"})
    ended = agent("run", "--config", config)
    assert ended.returncode == 69
    assert b"No space left on device" in ended.stderr
    assert b"cure:" in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_a_daemon_that_is_killed_takes_its_children_along(bundle: Path, tmp_path: Path) -> None:
    """SIGKILL cannot be caught; the kernel ends the children, whether they serve or hang."""
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={})
    with Command("run", "--config", config) as command:
        command.until_lines(1)
        children = command.children()
        assert len(children) == 3
        command.signal(signal.SIGKILL)
        command.end(within_s=60)
        until(lambda: not any(map(alive, children)), "the children end")


def test_a_daemon_that_is_killed_while_its_children_start_leaves_none(bundle: Path, tmp_path: Path) -> None:
    """The gap before a child has asked the kernel to be killed with its parent is closed as well."""
    config = write_config(tmp_path, bundle, TWO_CAMERAS, options={})
    with Command("run", "--config", config) as command:
        until(command.children, "the first child")
        children = command.children()
        command.signal(signal.SIGKILL)
        command.end(within_s=60)
        until(lambda: not any(map(alive, children)), "the children end")
