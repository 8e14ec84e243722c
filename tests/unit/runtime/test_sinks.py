"""Result lines on a descriptor: whole, in order, and never waiting for a consumer that is not there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from vedette.clock import ManualClock
from vedette.errors import UnavailableError
from vedette.runtime.sinks import LineSink, SinkClosedError, UndeliveredError
from vedette.wire.messages import Failure, ModelRef, Result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODEL = ModelRef("tiny", "1", "0" * 64)


def result(seq: int, *, detail: str = "") -> Result:
    return Result(1, "front", seq, 7, MODEL, "classify", failed=Failure("infer", detail))


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe of one page, the smallest there is."""
    read_fd, write_fd = os.pipe()
    fcntl.fcntl(write_fd, fcntl.F_SETPIPE_SZ, 4096)
    yield read_fd, write_fd
    for fd in (read_fd, write_fd):
        with contextlib.suppress(OSError):  # the test may have closed its end
            os.close(fd)


def gather(fd: int, into: bytearray) -> threading.Thread:
    def read() -> None:
        while piece := os.read(fd, 517):
            into.extend(piece)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_results_are_one_json_line_each_in_order(pipe: tuple[int, int]) -> None:
    """Far more than the pipe holds, read slowly: all of it, whole, in order."""
    read_fd, write_fd = pipe
    output = bytearray()
    reader = gather(read_fd, output)
    sink = LineSink(write_fd, threading.Event())
    sink.write([result(seq) for seq in range(1, 101)])
    sink.write([result(101)])
    os.close(write_fd)
    reader.join(10)
    lines = [json.loads(line) for line in bytes(output).splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, 102))
    assert output.endswith(b"\n")


def test_a_line_longer_than_a_pipe_takes_at_once_arrives_whole(pipe: tuple[int, int]) -> None:
    """Raw tensors make long lines; they are cut into pieces on the way, not on arrival."""
    read_fd, write_fd = pipe
    output = bytearray()
    reader = gather(read_fd, output)
    LineSink(write_fd, threading.Event()).write([result(1, detail="x" * 50_000), result(2)])
    os.close(write_fd)
    reader.join(10)
    assert [len(json.loads(line)["failed"]["detail"]) for line in bytes(output).splitlines()] == [50_000, 0]


def test_a_consumer_that_went_away_is_told_as_such(pipe: tuple[int, int]) -> None:
    """A closed pipe is no failure of ours."""
    read_fd, write_fd = pipe
    os.close(read_fd)
    with pytest.raises(SinkClosedError, match="went away"):
        LineSink(write_fd, threading.Event()).write([result(1)])


def test_a_consumer_that_does_not_read_is_left_when_the_agent_stops(pipe: tuple[int, int]) -> None:
    """The wait ends with the stop, and what lies in the pipe are whole lines."""
    read_fd, write_fd = pipe
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(UndeliveredError, match="does not read") as caught:
        LineSink(write_fd, stopping).write([result(seq) for seq in range(1, 101)])
    assert not isinstance(caught.value, SinkClosedError)
    left = os.read(read_fd, 1 << 16)
    assert left.endswith(b"\n")
    assert [json.loads(line)["seq"] for line in left.splitlines()] == list(range(1, left.count(b"\n") + 1))
    assert left.count(b"\n") == caught.value.delivered > 5


def test_a_descriptor_that_somebody_made_non_blocking_still_works(pipe: tuple[int, int]) -> None:
    """A shell shares our standard output and its flags: a full pipe is then an error code, not a loss."""
    read_fd, write_fd = pipe
    os.set_blocking(write_fd, False)
    output = bytearray()
    sink = LineSink(write_fd, threading.Event())
    reader = gather(read_fd, output)
    sink.write([result(seq, detail="y" * 300) for seq in range(1, 101)])
    os.close(write_fd)
    reader.join(10)
    assert output.count(b"\n") == 100


def test_a_full_disk_is_an_error_with_the_system_s_reason() -> None:
    """Not a consumer that had enough: the daemon must not end as if all were well."""
    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(UnavailableError, match="No space left on device") as caught:
            LineSink(fd, threading.Event()).write([result(1)])
    finally:
        os.close(fd)
    assert not isinstance(caught.value, SinkClosedError)
    assert caught.value.cure is not None


def test_a_file_is_appended_to_and_closed(tmp_path: Path) -> None:
    """A restart goes on where the last run ended."""
    path = tmp_path / "results.jsonl"
    for seq in (1, 2):
        sink = LineSink.to_file(path, threading.Event(), say=print)
        sink.write([result(seq)])
        sink.close()
    assert [json.loads(line)["seq"] for line in path.read_text(encoding="utf-8").splitlines()] == [1, 2]


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """The path and the reason."""
    with pytest.raises(UnavailableError, match=r"missing/results\.jsonl: No such file"):
        LineSink.to_file(tmp_path / "missing" / "results.jsonl", threading.Event(), say=print)


@pytest.mark.parametrize("room_bytes", [700, 4096, 5000, 9000])
def test_a_disk_that_fills_up_leaves_whole_lines_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int
) -> None:
    """Wherever it gets full, also inside a long line: what counts as delivered is there, and nothing more."""
    path = tmp_path / "results.jsonl"
    write = os.write
    left = [room_bytes]

    def write_while_there_is_room(fd: int, data: memoryview) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = write(fd, data[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr("vedette.runtime.sinks.os.write", write_while_there_is_room)
    sink = LineSink.to_file(path, threading.Event(), say=print)
    lines = [result(seq, detail="z" * (7000 if seq % 3 == 0 else 200)) for seq in range(1, 10)]
    with pytest.raises(UndeliveredError, match="No space left") as caught:
        sink.write(lines)
    sink.close()
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert [json.loads(line)["seq"] for line in text.splitlines()] == list(
        range(1, caught.value.delivered + 1)
    )


def test_a_file_that_ends_inside_a_line_is_gone_on_with_on_a_new_one(tmp_path: Path) -> None:
    """After a power cut: the cut line stays alone, it is said, and an untouched file is not changed."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'{"seq":1}\n{"seq":2,"top":[')
    said: list[str] = []
    for seq in (3, 4):
        sink = LineSink.to_file(path, threading.Event(), say=said.append)
        sink.write([result(seq)])
        sink.close()
    lines = path.read_bytes().splitlines()
    assert lines[:2] == [b'{"seq":1}', b'{"seq":2,"top":[']
    assert [json.loads(line)["seq"] for line in lines[2:]] == [3, 4]
    assert len(said) == 1
    assert "ends inside a line" in said[0]


def test_a_fifo_without_a_reader_is_waited_for_and_a_stop_ends_the_wait(tmp_path: Path) -> None:
    """No blocking open: the wait is said, has an end, and sees the stop."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    said: list[str] = []
    stopping = threading.Event()
    with pytest.raises(UnavailableError, match="nobody opened"):
        LineSink.to_file(path, stopping, say=said.append, clock=ManualClock(), reader_wait_s=0)
    assert "waiting for somebody to read the results" in said[0]
    stopping.set()
    with pytest.raises(UnavailableError, match="told to stop"):
        LineSink.to_file(path, stopping, say=said.append)


def test_a_fifo_is_written_to_as_soon_as_somebody_reads(tmp_path: Path) -> None:
    """The reader comes after the agent has begun to wait."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    readers: list[int] = []

    def say(_text: str) -> None:
        readers.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK))

    sink = LineSink.to_file(path, threading.Event(), say=say)
    try:
        sink.write([result(1)])
        assert json.loads(os.read(readers[0], 65536))["seq"] == 1
    finally:
        sink.close()
        os.close(readers[0])
