"""Memory, start-up and growth of the running agent: `python -m tests.bench.footprint`.

Memory is that of the whole tree: daemon, engine worker, one source child. With the cifar bundle, whose file
is 0.1 MB, it counts as the agent without a model, engine runtime included; what another bundle takes beyond
that is the model's own share. Two figures, the larger one is judged: PSS from smaps_rollup, which is too
small while other programs map the same libraries, and `alone`, computed as if nobody else ran.

Start-up is from starting `vedette-agent pipe` to its first line, less the loading of the model as the engine
reports it. Growth is a straight line through the samples after a warm-up, over FRAMES frames and over
RESTARTS killed workers: at most MARGIN_MB in the whole of the window, descriptors and threads the same.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from tests.bench.agent_process import AGENT, AgentProcess
from tests.bench.path import MODELS
from tests.bench.procfs import open_descriptors, pss_bytes, rss_bytes, standalone_bytes, threads
from tests.bench.quiet import wait_for_quiet
from tests.bench.verdict import Verdict, options, table

if TYPE_CHECKING:
    from collections.abc import Sequence

BUNDLES = ("cifar", "person", "face", "imagenet", "imagenet-onnx")
WITHOUT_MODEL = "cifar"
MEMORY_MB = 150.0
START_S = 1.5
FRAMES, WARM_UP_FRAMES, SAMPLE_FRAMES = 20_000, 4_000, 1_000
RESTARTS, WARM_UP_RESTARTS = 20, 2
MARGIN_MB = 1.0
MB = 1e6


class Sample(msgspec.Struct, frozen=True):
    """One process at one moment."""

    rss_mb: float
    descriptors: int
    threads: int


def configuration(bundle: str, camera: str) -> str:
    """One camera; workers that die are started again at once, as often as they die."""
    return (
        f"model: {{factory: {MODELS / bundle}}}\n"
        "engine: {threads: 1, restart: {budget: 1000, backoff_min_s: 0.05, backoff_max_s: 0.1}}\n"
        f"cameras: {{front: {camera}}}\n"
    )


LIVE = "{input: 'synthetic:640x480@30', live: true}"
LOSSLESS = "{input: 'synthetic:640x480@30', live: false}"


def sample(pid: int) -> Sample:
    """Look at a process."""
    return Sample(rss_bytes(pid) / MB, open_descriptors(pid), threads(pid))


def memory(verdict: Verdict) -> None:
    """PSS of the tree, by bundle and by process."""
    rows, without_mb = [], 0.0
    for bundle in BUNDLES:
        with AgentProcess(configuration(bundle, LIVE)) as agent:
            agent.wait_for(60)
            tree = agent.processes()
            pss_mb = {role: pss_bytes(pid) / MB for role, pid in tree.items()}
            alone_mb = standalone_bytes(tree.values()) / MB
        larger_mb = max(sum(pss_mb.values()), alone_mb)
        if bundle == WITHOUT_MODEL:
            without_mb = larger_mb
        parts = [pss_mb["daemon"], pss_mb["worker"], pss_mb["source"], sum(pss_mb.values()), alone_mb]
        rows.append([bundle, *(f"{part:.1f}" for part in parts), f"{larger_mb - without_mb:+.1f}"])
    table(("MB", "daemon", "worker", "source", "PSS", "alone", "model's share"), rows)
    verdict.at_most("memory of the tree without a model", without_mb, MEMORY_MB, " MB")


def start_up(verdict: Verdict, rounds: int) -> None:
    """Seconds from starting `pipe` to the first line."""
    rows, starts = [], []
    for bundle in ("person", "imagenet"):
        runs = []
        for _ in range(rounds):
            wait_for_quiet(2.0)
            runs.append(first_answer_s(bundle))
        total_s, load_s = (float(np.median(column)) for column in zip(*runs, strict=True))
        rest_s = float(np.median([total - load for total, load in runs]))
        starts.append(rest_s)
        rows.append([bundle, f"{total_s:.2f}", f"{load_s:.2f}", f"{rest_s:.2f}"])
    table(("seconds, median", "to the first answer", "model load", "the rest"), rows)
    for bundle, rest_s in zip(("person", "imagenet"), starts, strict=True):
        verdict.at_most(f"start to first answer without model load, {bundle}", rest_s, START_S, " s")


def first_answer_s(bundle: str) -> tuple[float, float]:
    """(start to first line, loading of the model) in seconds."""
    with tempfile.TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        geometry = ["--format", "rawvideo", "--size", "640x480", "--pix-fmt", "bgr24"]
        command = [str(AGENT), "pipe", "--model", str(MODELS / bundle), *geometry, "--quiet"]
        start_s = time.monotonic()
        process = subprocess.Popen(
            [*command, "--summary-json", str(summary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.ExitStack() as stack:
            stack.callback(process.wait, 20)
            stack.callback(process.stdin.close)
            process.stdin.write(bytes(640 * 480 * 3))
            process.stdin.flush()
            line = process.stdout.readline()
            taken_s = time.monotonic() - start_s
        process.stdout.close()
        if not line:
            raise SystemExit(f"vedette-agent pipe ended with {process.returncode} and no answer")
        return taken_s, msgspec.json.decode(summary.read_bytes())["engine"]["load_ms"] / 1e3


def growth_over_frames(verdict: Verdict) -> None:
    """Twenty thousand frames as fast as they go."""
    with AgentProcess(configuration("person", LOSSLESS)) as agent:
        agent.wait_for(WARM_UP_FRAMES)
        tree = agent.processes()
        seen: dict[str, list[Sample]] = {role: [] for role in tree}
        for _ in range((FRAMES - WARM_UP_FRAMES) // SAMPLE_FRAMES + 1):
            for role, pid in tree.items():
                seen[role].append(sample(pid))
            agent.wait_for(SAMPLE_FRAMES)
    judge_growth(verdict, f"{FRAMES:,} frames", seen)


def growth_over_restarts(verdict: Verdict) -> None:
    """Twenty engine workers killed one after another; daemon and source stay."""
    seen: dict[str, list[Sample]] = {"daemon": [], "source": []}
    with AgentProcess(configuration("person", LIVE)) as agent:
        agent.wait_for(30)
        for number in range(RESTARTS + WARM_UP_RESTARTS):
            agent.kill_worker()
            if number >= WARM_UP_RESTARTS - 1:
                tree = agent.processes()
                for role, samples in seen.items():
                    samples.append(sample(tree[role]))
    judge_growth(verdict, f"{RESTARTS} worker restarts", seen)


def judge_growth(verdict: Verdict, over: str, seen: dict[str, list[Sample]]) -> None:
    """Table and bars of one kind of growth."""
    rows = []
    for role, samples in seen.items():
        rss_mb = [entry.rss_mb for entry in samples]
        handles = {(entry.descriptors, entry.threads) for entry in samples}
        grown_mb = grown(rss_mb)
        shown = ", ".join(f"{descriptors}/{count}" for descriptors, count in sorted(handles))
        rows.append([role, f"{rss_mb[0]:.1f}", f"{rss_mb[-1]:.1f}", f"{grown_mb:+.2f}", shown])
    table((f"over {over}", "RSS first, MB", "RSS last, MB", "fitted growth, MB", "fds/threads"), rows)
    for role, samples in seen.items():
        verdict.at_most(f"{role}: growth over {over}", grown([s.rss_mb for s in samples]), MARGIN_MB, " MB")
        handles = {(entry.descriptors, entry.threads) for entry in samples}
        verdict.equal(f"{role}: different counts of descriptors or threads over {over}", len(handles), 1)


def grown(values: Sequence[float]) -> float:
    """The rise of the least-squares line from the first to the last sample."""
    slope = float(np.polynomial.Polynomial.fit(np.arange(len(values)), values, 1).convert().coef[-1])
    return slope * (len(values) - 1)


def main() -> int:
    """All four parts."""
    parser = options("memory, start-up and growth of the running agent", rounds=5)
    arguments = parser.parse_args()
    verdict = Verdict("Footprint: the whole tree, one 640x480 camera")
    memory(verdict)
    start_up(verdict, arguments.rounds)
    growth_over_frames(verdict)
    growth_over_restarts(verdict)
    return verdict.exit_status(strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
