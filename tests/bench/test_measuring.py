"""The benches' own instruments: a figure is worth what its measuring is."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.bench import procfs, quiet
from tests.bench.footprint import grown
from tests.bench.quiet import figures_of, quietest
from tests.bench.update_latency import family_s
from tests.bench.update_steps import Paced
from tests.bench.verdict import EXIT_MISSED, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


def round_of(share: float, ns: int) -> tuple[float, dict[str, NDArray[np.int64]]]:
    return share, {"only": np.full(4, ns, np.int64)}


def test_all_quiet_rounds_are_kept_and_the_others_are_not() -> None:
    """Enough rounds below the limit: those, whole."""
    taken = [round_of(share, index) for index, share in enumerate((0.0, 0.5, 0.1, 0.02, 0.9))]
    assert [int(times["only"][0]) for _, times in quietest(taken)] == [0, 3, 2]


def test_the_quietest_third_is_kept_on_a_busy_machine() -> None:
    """No round was quiet: three of nine, the least disturbed, and their share of noise is still told."""
    taken = [round_of(share / 10, share) for share in (9, 8, 7, 6, 5, 4, 3, 2, 9)]
    assert [share for share, _ in quietest(taken)] == [0.2, 0.3, 0.4]


def test_percentiles_are_in_microseconds_and_subtract_one_by_one() -> None:
    """Nanoseconds in, microseconds out."""
    figures = figures_of(np.arange(0, 101_000, 1_000, dtype=np.int64))
    assert (figures.p50, figures.p95, figures.p99) == pytest.approx((50, 95, 99))
    assert (figures - figures_of(np.full(9, 10_000, np.int64))).p95 == pytest.approx(85)


def test_own_work_is_not_taken_for_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 3 busy seconds out of 4, 2 are the bench's own: a quarter of the machine is foreign."""
    machine = iter((procfs.MachineTime(10.0, 50.0), procfs.MachineTime(13.0, 54.0)))
    own_s = iter((1.0, 3.0))
    monkeypatch.setattr(quiet, "machine_time", lambda: next(machine))
    monkeypatch.setattr(quiet, "cpu_s", lambda _pids: next(own_s))
    with quiet.ForeignCpu() as foreign:
        pass
    assert foreign.share == pytest.approx(0.25)


def test_cpu_time_is_that_of_all_threads() -> None:
    """A thread that worked for a while is in the sum, exactly enough to see a twentieth of a second."""
    release = threading.Event()

    def work() -> None:
        end_s = time.thread_time() + 0.05
        while time.thread_time() < end_s:
            pass
        done.set()
        release.wait(10)

    done = threading.Event()
    before_s = procfs.cpu_s([os.getpid()])
    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert done.wait(10)
        assert procfs.cpu_s([os.getpid()]) - before_s >= 0.045
    finally:
        release.set()
        thread.join(10)


def test_growth_is_the_rise_of_the_fitted_line() -> None:
    """A leak of .1 in each of ten steps is 1; a single peak is hardly anything."""
    assert grown([5 + 0.1 * step for step in range(11)]) == pytest.approx(1.0)
    assert abs(grown([5, 5, 5, 5, 6, 5, 5, 5, 5])) < 1e-9


def test_memory_that_two_mappings_share_counts_once() -> None:
    """Two maps of one file page are one page when the process stands alone."""
    size = 8 << 20
    before = procfs.standalone_bytes([os.getpid()])
    fd = os.memfd_create("measured")
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as first, mmap.mmap(fd, size) as second:
        for offset in range(0, size, 4096):  # no large buffer: malloc might keep it and be measured too
            first[offset] = 1
        assert second[::4096].count(1) == size // 4096
        grown_bytes = procfs.standalone_bytes([os.getpid()]) - before
    os.close(fd)
    assert size * 0.9 <= grown_bytes <= size * 1.5


def test_threads_and_descriptors_are_counted() -> None:
    """One more of each is one more."""
    pid = os.getpid()
    before = procfs.threads(pid), procfs.open_descriptors(pid)
    release = threading.Event()
    thread = threading.Thread(target=release.wait, args=(10,))
    thread.start()
    fd = os.dup(0)
    try:
        assert (procfs.threads(pid), procfs.open_descriptors(pid)) == (before[0] + 1, before[1] + 1)
    finally:
        os.close(fd)
        release.set()
        thread.join(10)


def test_a_missed_bar_fails_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The machine may be shared: by default MISS is printed and the status is 0."""
    verdict = Verdict("bars")
    verdict.at_most("cost", 2.0, 1.0, " ms")
    verdict.equal("leaks", 0, 0)
    assert verdict.exit_status(strict=False) == 0
    assert verdict.exit_status(strict=True) == EXIT_MISSED
    printed = capsys.readouterr().out
    assert "MISS  cost: 2.00 ms, bar 1.00 ms" in printed
    assert "PASS  leaks" in printed


def test_cpu_time_of_children_is_our_own_also_once_they_are_buried() -> None:
    """An update's children come and go within a phase; they are no strangers."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    before_s = family_s()
    subprocess.run([sys.executable, "-c", burn], check=True, timeout=60)
    assert family_s() - before_s > 0.29


class Pieces:
    """Gives bytes at once."""

    def metadata(self, path: str, max_bytes: int) -> Iterator[bytes]:
        raise NotImplementedError(path, max_bytes)

    def blob(self, sha256: str, start: int, end: int) -> Iterator[bytes]:
        del sha256
        yield from [bytes(100_000)] * ((end - start) // 100_000)


def test_a_paced_fetch_takes_the_time_of_its_line() -> None:
    """1.2 MB at 12.5 MB/s."""
    began_s = time.monotonic()
    assert sum(len(piece) for piece in Paced(Pieces()).blob("", 0, 1_200_000)) == 1_200_000
    assert time.monotonic() - began_s >= 0.096
