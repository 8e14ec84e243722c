"""Switching models on a live daemon: `python -m tests.bench.swap`.

Two cameras at 30 fps, a real model and the same model under another version. Measured are

- the switch: the longest time between two results of a camera from the wish until the trial is confirmed, in
  frame intervals; frames lost and answered twice, by sequence number; the same beside a lossless source that
  takes all that is left of the worker;
- the way back: SIGKILL of the model on trial to the next answer of the previous one;
- the shadow: p95 from capture to answer with and without one, in alternating phases side by side.

What loads, fetches and child processes do to frames is measured by `tests.bench.update_latency`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml
from tests.bench.path import MODELS
from tests.bench.quiet import QUIET_SHARE, ForeignCpu, quietest, wait_for_quiet
from tests.bench.verdict import Verdict, options, table

from vedette.bundle.folder import seal
from vedette.clock import SystemClock
from vedette.engine.messages import WorkerSpec
from vedette.errors import InternalError
from vedette.runtime.daemon import Daemon, Stopping
from vedette.runtime.plan import CameraPlan, RunPlan
from vedette.runtime.swap_table import SwapState
from vedette.source.port import SourceSpec
from vedette.wire.messages import LatencyMs, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

FPS = 30
LIVE = f"synthetic:640x480@{FPS}"
INTERVAL_MS = 1000 / FPS
PHASES = ("alone", "shadow")
MAX_GAP_INTERVALS = 2.0
MAX_P95_RATIO = 1.2
MAX_BACK_S = 2.0
WAIT_S = 60.0
LOOK_S = 0.002


class Records:
    """Keeps every result."""

    def __init__(self) -> None:
        self.results: list[Result] = []

    def write(self, results: Sequence[Result]) -> None:
        """See Sink."""
        self.results.extend(results)

    def close(self) -> None:
        """Nothing is open."""


class Serving:
    """A daemon on a thread of this process, which does little else."""

    def __init__(self, bundle: Path, cameras: dict[str, bool]) -> None:
        self.records = Records()
        self._stopping = Stopping()
        plans = (CameraPlan(SourceSpec(name, LIVE, live=live)) for name, live in cameras.items())
        plan = RunPlan(worker=WorkerSpec(bundle=str(bundle)), cameras=tuple(plans))
        self.daemon = Daemon(
            plan, sink=self.records, clock=SystemClock(), stopping=self._stopping, say=lambda _: None
        )
        self._thread = threading.Thread(target=self.daemon.run)

    def __enter__(self) -> Serving:  # noqa: PYI034 - Self is in typing from Python 3.11 on
        self._thread.start()
        wait_for(lambda: len(self.records.results) > 2 * FPS, "the first two seconds of answers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.ask("measured")
        self._thread.join(WAIT_S)

    def of(self, camera: str) -> list[Result]:
        """One camera's results so far."""
        return [result for result in list(self.records.results) if result.camera == camera]

    def answers(self) -> int:
        """How many results there are."""
        return len(self.records.results)

    def let_run(self, frames: int) -> None:
        """Until so many more results are there."""
        more = self.answers() + frames
        wait_for(lambda: self.answers() >= more, f"{frames} more results")

    def switch(self, bundle: Path) -> None:
        """Into the trial, some frames there, and confirmed."""
        self.daemon.live.switch(bundle, trial=True)
        wait_for(lambda: self.daemon.live.serving() == bundle, f"{bundle.name} serves")
        self.let_run(6)
        self.daemon.live.confirm()
        wait_for(lambda: self.daemon.swap.state is SwapState.IDLE, "the trial is over")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Look again and again; a minute is far too long for anything here."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise InternalError(f"bench: not within {WAIT_S:.0f} s: {what}")
        time.sleep(LOOK_S)


def answered_ms(result: Result) -> float:
    """When a result left the worker, CLOCK_MONOTONIC."""
    latency = result.latency_ms
    return result.captured_ns / 1e6 + (latency.total if isinstance(latency, LatencyMs) else 0.0)


def longest_gap_ms(results: Sequence[Result], since_ms: float, until_ms: float) -> float:
    """The longest time between consecutive results that overlaps the span."""
    times = [answered_ms(result) for result in results]
    return max(
        (after - before for before, after in pairwise(times) if after >= since_ms and before <= until_ms),
        default=0.0,
    )


def measure_switches(bundles: Sequence[Path], swaps: int, cameras: dict[str, bool], verdict: Verdict) -> None:
    """Back and forth between the bundles, under load."""
    spans = []
    with Serving(bundles[0], cameras) as serving:
        for number in range(swaps):
            wait_for_quiet(0.4)
            serving.let_run(4)
            began_ms = time.monotonic_ns() / 1e6
            serving.switch(bundles[(number + 1) % 2])
            spans.append((began_ms, time.monotonic_ns() / 1e6))
        serving.let_run(8)
    rows = []
    for camera, live in cameras.items():
        results = serving.of(camera)
        gaps = np.array([longest_gap_ms(results, *span) for span in spans])
        moves = np.array(
            [
                answered_ms(after) - answered_ms(before)
                for before, after in pairwise(results)
                if before.model != after.model
            ]
        )
        seqs = [result.seq for result in results]
        doubled = len(seqs) - len(set(seqs))
        lost = sum(
            after.seq - before.seq - 1 for before, after in pairwise(results) if before.model != after.model
        ) + sum(bool(result.failed) for result in results)
        missed = seqs[-1] - seqs[0] + 1 - len(set(seqs)) - lost
        rows.append(
            [
                camera,
                f"{len(moves)}",
                *_in_intervals(moves),
                *_in_intervals(gaps),
                f"{lost}",
                f"{doubled}",
                f"{missed}",
            ]
        )
        verdict.equal(f"{camera}: frames lost in {swaps} switches", lost, 0)
        verdict.equal(f"{camera}: frames answered twice", doubled, 0)
        if live:
            verdict.at_most(
                f"{camera}: longest gap at a switch, frame intervals",
                moves.max() / INTERVAL_MS,
                MAX_GAP_INTERVALS,
            )
    table(
        (
            f"{swaps} switches; gaps in intervals of {INTERVAL_MS:.0f} ms",
            "moves",
            "gap at the switch p50",
            "max",
            "longest gap, load to confirm p50",
            "max",
            "lost",
            "doubled",
            "superseded at other times",
        ),
        rows,
    )


def _in_intervals(gaps_ms: NDArray[np.float64]) -> list[str]:
    return [f"{np.median(gaps_ms) / INTERVAL_MS:.2f}", f"{gaps_ms.max() / INTERVAL_MS:.2f}"]


def measure_way_back(bundles: Sequence[Path], times: int, verdict: Verdict) -> None:
    """Kill the model on trial."""
    taken_s = []
    with Serving(bundles[0], {"front": True}) as serving:
        for _ in range(times):
            serving.daemon.live.switch(bundles[1], trial=True)
            wait_for(lambda: serving.daemon.live.serving() == bundles[1], "the trial begins")
            serving.let_run(3)
            worker = serving.daemon.generation.worker
            if worker is None:
                raise InternalError("bench: nobody serves")
            killed_ms = time.monotonic_ns() / 1e6
            os.kill(worker.child.pid, signal.SIGKILL)
            wait_for(lambda: serving.daemon.live.serving() == bundles[0], "the previous model serves")
            serving.let_run(2)
            first = next(r for r in serving.of("front") if not r.failed and answered_ms(r) > killed_ms)
            taken_s.append((answered_ms(first) - killed_ms) / 1e3)
    table(
        ("crash on trial to the previous model's answer", "p50 ms", "max ms"),
        [[f"{times} kills", f"{np.median(taken_s) * 1e3:.0f}", f"{max(taken_s) * 1e3:.0f}"]],
    )
    verdict.at_most("crash to previous model serving", max(taken_s), MAX_BACK_S, " s")


def measure_shadow(bundles: Sequence[Path], rounds: int, phase_s: float, verdict: Verdict) -> None:
    """Short phases with the shadow running and with its process stopped, by turns."""
    taken: list[tuple[float, dict[str, NDArray[np.int64]]]] = []
    with Serving(bundles[0], {"left": True, "right": True}) as serving:
        serving.daemon.live.start_shadow(bundles[1])
        wait_for(lambda: serving.daemon.live.stats().shadowed > 0, "frames are compared")
        (shadow,) = serving.daemon.swap.others
        for number in range(rounds):
            times, shares = {}, []
            for name in PHASES if number % 2 == 0 else PHASES[::-1]:
                os.kill(shadow.child.pid, signal.SIGCONT if name == "shadow" else signal.SIGSTOP)
                times[name], share = _phase(serving, phase_s)
                shares.append(share)
            os.kill(shadow.child.pid, signal.SIGCONT)
            taken.append((max(shares), times))
        serving.let_run(10)
        stats = serving.daemon.live.stats()
    kept = quietest(taken)
    values = {name: np.concatenate([times[name] for _, times in kept]) / 1e6 for name in PHASES}
    rows = [
        [name, f"{len(ms):,}", *(f"{np.percentile(ms, q):.2f}" for q in (50, 95, 99))]
        for name, ms in values.items()
    ]
    table(("capture to answer, 2 live cameras", "frames", "p50 ms", "p95 ms", "p99 ms"), rows)
    print(
        f"kept {len(kept)} of {len(taken)} rounds, others took up to {kept[-1][0]:.0%} of the CPUs; "
        f"the shadow compared {stats.shadowed}, {stats.disagreed} disagreed, p95 {stats.p95_ms or 0:.2f} ms"
    )
    ratio = float(np.percentile(values["shadow"], 95) / np.percentile(values["alone"], 95))
    verdict.at_most("p95 with a shadow over without", ratio, MAX_P95_RATIO, noisy=kept[-1][0] > QUIET_SHARE)


def _phase(serving: Serving, phase_s: float) -> tuple[NDArray[np.int64], float]:
    """Nanoseconds from capture to answer, and the share of the CPUs that strangers took."""
    wait_for_quiet(0.5)
    start_ns = time.monotonic_ns()
    with ForeignCpu() as foreign:
        time.sleep(phase_s)
    end_ns = time.monotonic_ns()
    time.sleep(0.05)  # the last answers of the phase are still on their way
    totals_ns = np.array(_totals_ms(serving, start_ns, end_ns)) * 1e6
    return totals_ns.astype(np.int64), foreign.share


def _totals_ms(serving: Serving, start_ns: int, end_ns: int) -> list[float]:
    return [
        result.latency_ms.total
        for result in list(serving.records.results)
        if isinstance(result.latency_ms, LatencyMs) and start_ns <= result.captured_ns < end_ns
    ]


def copy_of(bundle: Path, to: Path) -> Path:
    """The same model under another version."""
    shutil.copytree(bundle, to)
    spec = yaml.safe_load((to / "model.yaml").read_text(encoding="utf-8"))
    (to / "model.yaml").write_text(yaml.safe_dump({**spec, "version": to.name}), encoding="utf-8")
    seal(to)
    return to


def main() -> int:
    """Measure and judge."""
    parser = options("switching models on a live daemon", rounds=30)
    parser.add_argument("--swaps", type=int, default=50, help="switches (default %(default)s)")
    parser.add_argument("--bundle", default="person", help="which of models/ (default %(default)s)")
    parser.add_argument("--phase-s", type=float, default=0.8, help="seconds a phase (default %(default)s)")
    arguments = parser.parse_args()
    verdict = Verdict(f"Switching models: {arguments.bundle}, {LIVE}")
    with tempfile.TemporaryDirectory() as folder:
        bundles = [copy_of(MODELS / arguments.bundle, Path(folder) / name) for name in ("a", "b")]
        measure_switches(bundles, arguments.swaps, {"left": True, "right": True}, verdict)
        measure_switches(bundles, max(2, arguments.swaps // 5), {"live": True, "file": False}, verdict)
        measure_way_back(bundles, max(2, arguments.swaps // 5), verdict)
        measure_shadow(bundles, arguments.rounds, arguments.phase_s, verdict)
    return verdict.exit_status(strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
