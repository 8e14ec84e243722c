"""Who gets a tight budget's tokens? `python -m tests.bench.budget`.

Frames of a pool (see `model_pair`) at 10 a second, tokens for one frame in ten. The gain of a frame is what
the large model gets right and the small one does not. Offline best knows all frames beforehand and asks
about the most uncertain tenth. First come spends each token as soon as it is there. Bursty: every fifth
minute brings six times as many frames.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from tests.bench.model_pair import load_pool
from tests.bench.verdict import Verdict, options, table

from vedette.gate.coverage import held_epsilon
from vedette.gate.gate import Evidence, Gate
from vedette.gate.setting import GateMode, GateSetting
from vedette.wire.escalation import UNMET, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.model_pair import Pool

Array = NDArray[Any]
SHARE = 0.1
FPS = 10.0
SECONDS = 1200
CAPACITY_S = 300.0
EPSILON = 0.02
UNSURE = 0.3  # the share of frames below the threshold


def frames(pool: Pool, rng: np.random.Generator, *, bursty: bool) -> Iterator[tuple[int, int]]:
    """Time in nanoseconds and which picture."""
    for second in range(SECONDS):
        many = round(FPS * (6 if bursty and second // 60 % 5 == 4 else 1))
        for number in range(many):
            yield round((second + number / many) * 1e9), int(rng.integers(0, len(pool.truth)))


def spend(
    pool: Pool, stream: list[tuple[int, int]], threshold: float, *, paced: bool
) -> tuple[set[int], float]:
    """The places in the stream that were asked about, and the share of frames that should have been, too."""
    gate = Gate(lambda: 1.0)
    rate_per_s = SHARE * len(stream) / SECONDS
    capacity = CAPACITY_S * rate_per_s
    tokens, second, unmet = capacity / 2, -1, 0
    asked: set[int] = set()
    for place, (at_ns, index) in enumerate(stream):
        if at_ns // 1_000_000_000 > second:
            tokens = min(capacity, tokens + rate_per_s * (at_ns // 1_000_000_000 - second))
            second = at_ns // 1_000_000_000
            gate.use(
                GateSetting(
                    number=second + 2,
                    model_sha256="",
                    mode=GateMode.THRESHOLD,
                    threshold=threshold,
                    tokens=int(tokens),
                    rate_per_s=rate_per_s,
                    fill=tokens / capacity,
                    paced=paced,
                )
            )
        verdict = gate.judge("front", str(place), Evidence(pool.small[index]), at_ns)
        if verdict.reason is Reason.UNCERTAIN:
            tokens -= 1
            asked.add(place)
        unmet += verdict.declined in UNMET
    return asked, unmet / len(stream)


def main() -> int:
    """Measure, show, judge."""
    arguments = options("who gets a budget's tokens", rounds=6).parse_args()
    pool = load_pool()
    verdict = Verdict(f"A budget for one frame in ten: {pool.name}")
    gain = (pool.cloud == pool.truth).astype(int) - (pool.local == pool.truth).astype(int)
    top = np.exp(pool.small - pool.small.max(axis=1, keepdims=True))
    uncertainty = 1 - 1 / top.sum(axis=1)
    threshold = 1 - float(np.quantile(uncertainty, 1 - UNSURE))
    rows, mean = [], {}
    for name, bursty in (("steady", False), ("bursty", True)):
        shares: dict[str, list[float]] = {"paced": [], "first come": []}
        spent, unmet_share = [], []
        for seed in range(arguments.rounds):
            stream = list(frames(pool, np.random.default_rng(seed), bursty=bursty))
            pictures = np.array([index for _, index in stream])
            for how, found in shares.items():
                asked, unmet = spend(pool, stream, threshold, paced=how == "paced")
                best = np.argsort(-uncertainty[pictures], kind="stable")[: len(asked)]
                places = np.fromiter(asked, int)
                found.append(float(gain[pictures[places]].sum() / gain[pictures[best]].sum()))
                if how == "paced":
                    spent.append(len(asked) / len(stream))
                    unmet_share.append(unmet)
        mean[name] = float(np.mean(shares["paced"]))
        held = held_epsilon(EPSILON, float(np.mean(unmet_share)))
        figures = [float(np.mean(found)) for found in shares.values()]
        rows.append([name, *(f"{f:.2f}" for f in figures), f"{np.mean(spent):.1%}", f"{held:.0%}"])
        verdict.at_most(f"{name}: share of frames asked about", float(np.mean(spent)), SHARE * 1.1)
    table(("of the offline best's gain", "paced", "first come", "spent", "what is left of 2 %"), rows)
    verdict.at_most("steady: what paced misses of the offline best", 1 - mean["steady"], 0.05)
    verdict.at_most("bursty: what paced misses of the offline best", 1 - mean["bursty"], 0.10)
    return verdict.exit_status(strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
