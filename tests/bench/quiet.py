"""Timing on a machine that others use too: wait for quiet, alternate, keep the quietest rounds.

A round times every contender once, in turn, the order reversed every other round. Rounds are kept or thrown
away as a whole, so that figures which are compared were taken side by side.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from tests.bench.procfs import cpu_s, family, machine_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

QUIET_SHARE = 0.10
LOOK_S = 0.1
WAIT_FOR_QUIET_S = 0.6
BLOCK_S = 0.25
MIN_CALLS = 20
MIN_KEPT = 3
WARM_UP_CALLS = 10


@dataclass(frozen=True)
class Figures:
    """Microseconds."""

    p50: float
    p95: float
    p99: float

    def __sub__(self, other: Figures) -> Figures:
        """Percentile by percentile."""
        return Figures(self.p50 - other.p50, self.p95 - other.p95, self.p99 - other.p99)


@dataclass(frozen=True)
class Rounds:
    """What was kept: figures of each contender, `kept` rounds of `taken`, share of foreign CPU in those."""

    figures: dict[str, Figures]
    kept: int
    taken: int
    foreign: float
    foreign_in_all: float

    @property
    def noisy(self) -> bool:
        """Even the rounds that were kept were disturbed."""
        return self.foreign > QUIET_SHARE

    @property
    def noise(self) -> str:
        """In words, for under a table."""
        return (
            f"kept the {self.kept} quietest of {self.taken} rounds; other programs took "
            f"{self.foreign:.0%} of the CPUs in those, {self.foreign_in_all:.0%} in all"
        )


@final
class ForeignCpu:
    """Share of all CPUs that processes outside of this one's family took during the block."""

    def __enter__(self) -> ForeignCpu:
        self._pids = family(os.getpid())
        self._machine, self._own_s = machine_time(), cpu_s(self._pids)
        self.share = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        own_s = cpu_s(self._pids) - self._own_s
        machine = machine_time()
        busy_s = machine.busy_s - self._machine.busy_s
        self.share = max(0.0, busy_s - own_s) / max(1e-9, machine.total_s - self._machine.total_s)


def wait_for_quiet(timeout_s: float) -> float:
    """Wait until other programs take less than QUIET_SHARE of the CPUs.

    Returns:
        Their share when last looked at, which is higher after a timeout.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        with ForeignCpu() as foreign:
            time.sleep(LOOK_S)
        if foreign.share < QUIET_SHARE or time.monotonic() >= deadline_s:
            return foreign.share


def figures_of(taken_ns: NDArray[np.int64]) -> Figures:
    """Percentiles of durations."""
    p50, p95, p99 = (float(value) for value in np.percentile(taken_ns / 1e3, (50, 95, 99)))
    return Figures(p50, p95, p99)


def time_calls(once: Callable[[], object], calls: int) -> NDArray[np.int64]:
    """Nanoseconds of each of `calls` calls, after a few that do not count."""
    for _ in range(WARM_UP_CALLS):
        once()
    taken_ns = np.empty(calls, np.int64)
    for index in range(calls):
        start_ns = time.perf_counter_ns()
        once()
        taken_ns[index] = time.perf_counter_ns() - start_ns
    return taken_ns


def compare(contenders: Mapping[str, Callable[[], object]], *, rounds: int) -> Rounds:
    """Time all contenders in alternating rounds of about BLOCK_S each."""
    calls = {name: _calls_in_block(once) for name, once in contenders.items()}
    gc.collect()
    gc.freeze()
    taken: list[tuple[float, dict[str, NDArray[np.int64]]]] = []
    for number in range(rounds):
        sys.stderr.write(f"round {number + 1} of {rounds}, waiting for the machine to be quiet first\n")
        order = list(contenders) if number % 2 == 0 else list(contenders)[::-1]
        times, noisiest = {}, 0.0
        for name in order:
            wait_for_quiet(WAIT_FOR_QUIET_S)
            with ForeignCpu() as foreign:
                times[name] = time_calls(contenders[name], calls[name])
            noisiest = max(noisiest, foreign.share)
        taken.append((noisiest, times))
    gc.unfreeze()
    kept = quietest(taken)
    return Rounds(
        {name: figures_of(np.concatenate([times[name] for _, times in kept])) for name in contenders},
        kept=len(kept),
        taken=len(taken),
        foreign=float(np.mean([share for share, _ in kept])),
        foreign_in_all=float(np.mean([share for share, _ in taken])),
    )


def quietest(
    taken: Sequence[tuple[float, dict[str, NDArray[np.int64]]]],
) -> list[tuple[float, dict[str, NDArray[np.int64]]]]:
    """The rounds below QUIET_SHARE, or the quietest third where there are too few of them."""
    ordered = sorted(taken, key=lambda entry: entry[0])
    quiet = [entry for entry in ordered if entry[0] <= QUIET_SHARE]
    least = min(len(ordered), max(MIN_KEPT, len(ordered) // 3))
    return quiet if len(quiet) >= least else ordered[:least]


def _calls_in_block(once: Callable[[], object]) -> int:
    per_call_ns = float(np.median(time_calls(once, MIN_CALLS)))
    return max(MIN_CALLS, round(BLOCK_S * 1e9 / per_call_ns))
