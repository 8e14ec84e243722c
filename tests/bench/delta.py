"""Deltas of real model pairs against other tools, and what applying takes: `python -m tests.bench.delta`.

Pairs are made under `build/` once: networks trained on the demo clips, the head of a shipped model tuned (see
`model_pairs`). A folder of larger pairs is given with --data or VEDETTE_DELTA_DATA. What follows from the
pairs (float16, pruned) is derived. Sizes are shares of the new file. `entropy` is the order-0 entropy of what
our predictors leave, with its raw bits and parameters: about the least without contexts.

`ours` is what a release would ship: the tensor codec's delta, or bsdiff4's where that is smaller.

Bars: ours at most 2 % or FLOOR_BYTES above the best other, whose absence counts as a miss; of fine-tunes
(`small` and `large`) of a megabyte and more at most 3 % above that entropy, below it fixed costs weigh;
geometric mean against bsdiff4 by kind, over fine-tunes and pruned models; memory over idle at most 16 MiB and
the largest part of a tensor that a frame holds; processor time at most 3 times that of copying the new file
compressed (gzip -6) in the same kind of child, rounds alternating.
Wall times, which include the disk's sync, and `unzstd`, the full encoding unpacked, are for information.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tests.bench.model_pairs import Pair, derive, find_pairs, make_pairs
from tests.bench.rival_deltas import HOW_TO_GET, RIVALS, TOOL_TIMEOUT_S
from tests.bench.verdict import Verdict, options, table

from vedette.delta.layout import MAX_FRAME_BYTES
from vedette.errors import UsageError, VedetteError
from vedette_fleet.delta.choose import Chooser
from vedette_fleet.delta.code_tokens import entropy_bits
from vedette_fleet.delta.encode import encode_delta
from vedette_fleet.delta.tensor_delta import choose_operations
from vedette_fleet.zstd_bytes import pack_zstd

REPOSITORY = Path(__file__).parents[2]
MADE = REPOSITORY / "build" / "delta-pairs"
SHIPPED = REPOSITORY / "models" / "imagenet" / "effl0_int8.tflite"
MEAN_BARS = {"int8": 0.52, "fp16": 0.55, "fp32": 0.65, "pruned": 0.2}
MEMORY_BAR_BYTES = (16 << 20) + MAX_FRAME_BYTES
TIME_BAR = 3.0
SLACK = 1.02
FLOOR_BYTES = 256  # a header, and less than those of one HTTP request: no patch is told from another by that
ENTROPY_SLACK, ENTROPY_LEAST_BYTES = 1.03, 1_000_000
FACTOR_BITS = 24  # of a float32 whose exponent says little
ROUNDS = 3
NO_RIVAL = "absent"


@dataclass(frozen=True)
class Spent:
    """What a child took: the most memory over its idle, and the least time of a few rounds."""

    grown_bytes: int
    cpu_s: float
    wall_s: float

    @property
    def busy_s(self) -> float:
        """Processor time; a kernel that counts it in ticks may count more than passed."""
        return min(self.cpu_s, self.wall_s)


@dataclass(frozen=True)
class Figures:
    """One pair: sizes in bytes, and what applying ours takes beside two other ways to the same file."""

    rivals: dict[str, int | None]
    entropy_bytes: float
    codec: str
    ours_bytes: int
    new_bytes: int
    apply: Spent
    gzip: Spent
    unzstd: Spent

    @property
    def best_rival_bytes(self) -> int:
        """Of those that are here."""
        return min(size for size in self.rivals.values() if size is not None)


def residual_entropy(old: bytes, new: bytes) -> float:
    """Bytes of the order-0 entropy of all residuals, tensor by tensor, with raw bits and parameters."""
    chooser = Chooser(old, new)
    bits = 0.0
    for choice in choose_operations(old, new):
        if choice.op.coded:
            tokens, widths, _, _ = chooser.tokens(choice)
            bits += float(entropy_bits(np.bincount(tokens.ravel(), minlength=256))) + float(widths.sum())
            bits += FACTOR_BITS * choice.factors.size
            bits += float(entropy_bits(np.bincount(choice.directions.ravel().astype(np.int64) + 128)))
    return bits / 8


def measure_children(pair: Pair, blobs: dict[str, bytes]) -> dict[str, Spent]:
    """Decode each blob in children that take turns; `gzip` copies the new file instead."""
    new = pair.new.read_bytes()
    tiny = b"warm" * 250
    warm = {name: encode_delta(tiny, tiny, name)[1] for name in ("bsdiff4", "tensor")}
    warm |= {"gzip": b"", "zstd": pack_zstd(tiny)}
    answers: dict[str, list[Spent]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "warm.base").write_bytes(tiny)
        for _ in range(ROUNDS):
            for codec, blob in blobs.items():
                (folder / "blob").write_bytes(blob)
                (folder / "warm").write_bytes(warm[codec])
                base = pair.new if codec == "gzip" else pair.old
                command = [
                    sys.executable, "-m", "tests.bench.apply_delta", codec, str(folder / "blob"), str(base),
                    str(folder / "out"), str(len(new)), str(folder / "warm"),
                ]  # fmt: skip
                answer = subprocess.run(
                    command,
                    cwd=REPOSITORY,
                    check=True,
                    capture_output=True,
                    text=True,
                    timeout=TOOL_TIMEOUT_S,
                )
                answers[codec].append(Spent(**json.loads(answer.stdout)))
                if codec != "gzip" and (folder / "out").read_bytes() != new:
                    raise RuntimeError(f"{pair.name}: {codec} made another file")
    return {codec: quietest(spent) for codec, spent in answers.items()}


def quietest(rounds: list[Spent]) -> Spent:
    """The most memory, the least times."""
    return Spent(
        max(spent.grown_bytes for spent in rounds),
        min(spent.cpu_s for spent in rounds),
        min(spent.wall_s for spent in rounds),
    )


def measure(pair: Pair) -> Figures:
    """All sizes, and what applying ours takes."""
    old, new = pair.old.read_bytes(), pair.new.read_bytes()
    codec, ours = encode_delta(old, new)
    spent = measure_children(pair, {codec.value: ours, "gzip": b"", "zstd": pack_zstd(new)})
    return Figures(
        {name: make(old, new) for name, make in RIVALS.items()},
        residual_entropy(old, new),
        codec.value,
        len(ours),
        len(new),
        spent[codec.value],
        spent["gzip"],
        spent["zstd"],
    )


def judge(verdict: Verdict, found: dict[Pair, Figures]) -> None:
    """All bars."""
    ratios: dict[str, list[float]] = defaultdict(list)
    lacking = {name for figures in found.values() for name, size in figures.rivals.items() if size is None}
    for name in sorted(lacking):
        print(f"      {name} is not installed ({HOW_TO_GET[name]})")
    verdict.equal("tools compared with", len(RIVALS) - len(lacking), len(RIVALS))
    for pair, figures in found.items():
        best = figures.best_rival_bytes
        slack = max(SLACK, 1 + FLOOR_BYTES / best)
        verdict.at_most(f"{pair.name}: ours / best other", figures.ours_bytes / best, slack)
        grown, took = figures.apply.grown_bytes / 2**20, figures.apply.busy_s / figures.gzip.busy_s
        verdict.at_most(f"{pair.name}: memory over idle", grown, MEMORY_BAR_BYTES / 2**20, " MiB")
        verdict.at_most(f"{pair.name}: time / copying compressed", took, TIME_BAR)
        if pair.judged:
            plain = figures.rivals["bsdiff4"]
            assert plain is not None
            ratios[pair.kind].append(figures.ours_bytes / plain)
        large = figures.new_bytes >= ENTROPY_LEAST_BYTES
        if pair.judged and pair.kind in {"int8", "fp16", "fp32"} and large:
            share = figures.ours_bytes / figures.entropy_bytes
            verdict.at_most(f"{pair.name}: ours / residual entropy", share, ENTROPY_SLACK)
    for kind, values in sorted(ratios.items()):
        mean = math.exp(sum(map(math.log, values)) / len(values))
        what = f"{len(values)} pairs, {kind}: geometric mean of ours / bsdiff4"
        if kind in MEAN_BARS:
            verdict.at_most(what, mean, MEAN_BARS[kind])
        else:
            print(f"      {what}: {mean:.2f}, no bar")


def row(pair: Pair, figures: Figures) -> list[str]:
    """One line of the table."""
    sizes = [*figures.rivals.values(), figures.entropy_bytes, figures.ours_bytes]
    shares = [NO_RIVAL if size is None else f"{size / figures.new_bytes:.4f}" for size in sizes]
    apply, gzip = figures.apply, figures.gzip
    times = [apply.busy_s, gzip.busy_s, figures.unzstd.busy_s, apply.wall_s, gzip.wall_s]
    return [
        pair.name,
        f"{figures.new_bytes / 1e6:.2f}",
        *shares,
        figures.codec,
        f"{figures.ours_bytes / figures.best_rival_bytes:.3f}",
        f"{apply.grown_bytes / 2**20:.1f}",
        *(f"{seconds * 1e3:.0f}" for seconds in times),
    ]


def collect(data: str | None) -> list[Pair]:
    """The pairs made here, those of a folder, and what follows from either.

    Raises:
        UsageError: The folder is not there.
        BadInputError: What pairs are made of is not there.
    """
    if not MADE.is_dir():
        print(f"training and quantising small models into {MADE}, once (a minute) ...", file=sys.stderr)
        make_pairs(MADE, SHIPPED)
    folders = [MADE]
    if data is None:
        print("only pairs made here; larger ones: --data FOLDER or VEDETTE_DELTA_DATA", file=sys.stderr)
    elif Path(data).is_dir():
        folders.append(Path(data))
    else:
        raise UsageError(f"no folder {data}", cure="name a folder of MODEL.VARIANT.KIND.FORMAT files")
    derived = MADE.with_name("delta-derived")
    for folder in folders:
        derive(folder, derived)
    return find_pairs(*folders, derived)


def main() -> int:
    """Measure every pair, then judge."""
    parser = options("deltas of real model pairs", rounds=ROUNDS)
    parser.add_argument("--data", default=os.environ.get("VEDETTE_DELTA_DATA"), help="folder of more pairs")
    parser.add_argument("--only", default="", help="pairs whose name holds this")
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)  # ONNX Runtime's quantiser advises at every model
    try:
        pairs = [pair for pair in collect(arguments.data) if arguments.only in pair.name]
    except VedetteError as error:
        print(error.diagnostics(), file=sys.stderr)
        return error.exit_code
    verdict = Verdict("Deltas: shares of the new file (MB); memory in MiB over idle, times in ms")
    found = {}
    for number, pair in enumerate(pairs, 1):
        print(f"{number}/{len(pairs)} {pair.name}", file=sys.stderr)
        found[pair] = measure(pair)
    head = ("pair", "MB", *RIVALS, "entropy", "ours", "codec", "ours/best", "memory")
    times = ("apply", "gzip", "unzstd", "apply wall", "gzip wall")
    table((*head, *times), [row(pair, figures) for pair, figures in found.items()])
    judge(verdict, found)
    return verdict.exit_status(strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
