"""CPU time and memory of processes: our own, living ones, and a /proc that is played."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from vedette.telemetry.processes import MAX_THREAD_NAMES, ProcessReader
from vedette.wire.telemetry import OTHER, ProcessFigures

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000


class PlayedProc:
    """A /proc with the files that are read."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def thread(self, pid: int, thread: int, name: str, spent_ns: int) -> None:
        folder = self.root / str(pid) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "schedstat").write_text(f"{spent_ns} 1234 56\n")

    def memory(self, pid: int, text: str, file: str = "smaps_rollup") -> None:
        (self.root / str(pid) / file).write_text(text)


def test_threads_are_told_by_name_since_the_last_look(tmp_path: Path) -> None:
    proc, reader = PlayedProc(tmp_path), ProcessReader(tmp_path)
    proc.thread(7, 7, "python3", 100 * MS)
    proc.thread(7, 8, "results", 40 * MS)
    proc.thread(7, 9, "link", 0)
    proc.memory(7, "00400000-7fff ---p 00000000 00:00 0 [rollup]\nRss:  5000 kB\nPss:  3000 kB\n")
    assert reader.read({"daemon": 7}) == {
        "daemon": ProcessFigures(140, 5000, 3000, {"python3": 100, "results": 40})
    }
    proc.thread(7, 8, "results", 65 * MS)
    proc.thread(7, 10, "results", 5 * MS)  # a second one of that name
    assert reader.read({"daemon": 7})["daemon"] == ProcessFigures(30, 5000, 3000, {"results": 30})


def test_a_worker_that_was_replaced_begins_at_zero(tmp_path: Path) -> None:
    proc, reader = PlayedProc(tmp_path), ProcessReader(tmp_path)
    proc.thread(7, 7, "worker", 9000 * MS)
    proc.memory(7, "Rss: 10 kB\n")
    proc.thread(8, 8, "worker", 20 * MS)
    proc.memory(8, "VmRSS:\t 10 kB\n", "status")
    reader.read({"worker": 7})
    assert reader.read({"worker": 8}) == {"worker": ProcessFigures(20, 10)}


def test_a_process_that_is_gone_is_absent(tmp_path: Path) -> None:
    assert ProcessReader(tmp_path).read({"worker": 4711}) == {}


def test_an_older_kernel_tells_resident_memory_only(tmp_path: Path) -> None:
    proc = PlayedProc(tmp_path)
    proc.thread(7, 7, "a name ) with (\nlines", 5 * MS)
    proc.memory(7, "Name:\tx\nVmRSS:     4321 kB\nThreads: 1\n", "status")
    assert ProcessReader(tmp_path).read({"daemon": 7}) == {"daemon": ProcessFigures(5, 4321)}


def test_many_threads_are_the_busiest_and_the_others(tmp_path: Path) -> None:
    proc = PlayedProc(tmp_path)
    for thread in range(30):
        proc.thread(7, thread, f"pool-{thread}", thread * 10 * MS)
    proc.memory(7, "Rss: 1 kB\n")
    threads = ProcessReader(tmp_path).read({"daemon": 7})["daemon"].threads
    assert len(threads) == MAX_THREAD_NAMES + 1
    assert sum(threads.values()) == sum(range(30)) * 10
    assert threads[OTHER] == sum(range(18)) * 10


def test_real_processes_are_read() -> None:
    """This process with a busy thread, and a child."""
    release, done = threading.Event(), threading.Event()

    def work() -> None:
        end_s = time.thread_time() + 0.05
        while time.thread_time() < end_s:
            pass
        done.set()
        release.wait(10)

    reader = ProcessReader()
    reader.read({"daemon": os.getpid()})
    thread = threading.Thread(target=work)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        thread.start()
        try:
            assert done.wait(10)
            figures = reader.read({"daemon": os.getpid(), "worker": child.pid})
        finally:
            release.set()
            thread.join(10)
            child.kill()
    assert figures["daemon"].cpu_ms >= 45
    assert figures["daemon"].rss_kib > 5000
    assert figures["worker"].rss_kib > 500
