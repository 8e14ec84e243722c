"""Does the gate keep its promise for boxes? `python -m tests.bench.detection`.

Scenes of up to four pictures of a pool (see `model_pair`) side by side. Each is a candidate box with the
class and probability that the small model gives it, a little out of place; candidates from 0.5 on are its
answer. The large model's boxes are made in the same way. The loss of a scene is 1 - F1 of one answer against
the other, and F1 against the truth is the quality: large models often give boxes no score, which mAP needs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.bench.model_pair import load_pool
from tests.bench.verdict import Verdict, options, table

from vedette.gate.betting import error_threshold
from vedette.gate.expected_error import expected_error, fit_platt
from vedette.gate.matching import loss_between, matched

if TYPE_CHECKING:
    from tests.bench.model_pair import Pool

    from vedette.gate.setting import Platt

Array = NDArray[Any]
Found = tuple[str, tuple[float, float, float, float]]
SCENES, FITTED, SAMPLES, DRAWS = 6000, 500, 1000, 300
MOST_OBJECTS = 4
BOX_THRESHOLD = 0.5
LEAST_SCORE = 0.05
SIDE, OFF = 28.0, 4.0
EPSILON, DELTA = 0.05, 0.05


class Scene(NamedTuple):
    """Candidates of the small model, best first, as score, class, hit; its loss, both models' right boxes."""

    candidates: list[tuple[float, int, bool]]
    loss: float
    right: Array  # true positives, boxes and objects of the small model's answer, then of the large one's


def _boxes(logits: Array, rng: np.random.Generator) -> list[tuple[float, int, Found]]:
    """Score, class and box of each object, best first."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    scores = 1.0 / weights.sum(axis=1)
    found = []
    for place, (score, index) in enumerate(zip(scores, logits.argmax(axis=1), strict=True)):
        x, y = place * 2 * SIDE + rng.uniform(-OFF, OFF), rng.uniform(-OFF, OFF)
        if score >= LEAST_SCORE:
            found.append((float(score), int(index), (str(index), (x, y, x + SIDE, y + SIDE))))
    return sorted(found, reverse=True)


def _scene(pool: Pool, rng: np.random.Generator) -> Scene:
    picked = rng.integers(0, len(pool.truth), rng.integers(0, MOST_OBJECTS + 1))
    small, large = _boxes(pool.small[picked], rng), _boxes(pool.large[picked], rng)
    local = [box for score, _, box in small if score >= BOX_THRESHOLD]
    cloud = [box for score, _, box in large if score >= BOX_THRESHOLD]
    truth: list[Found] = [
        (str(index), (place * 2 * SIDE, 0.0, place * 2 * SIDE + SIDE, SIDE))
        for place, index in enumerate(pool.truth[picked])
    ]
    hits = matched([box for *_, box in small], cloud)
    counts = [[sum(matched(answer, truth)), len(answer), len(truth)] for answer in (local, cloud)]
    candidates = [(score, index, hit) for (score, index, _), hit in zip(small, hits, strict=True)]
    return Scene(candidates, loss_between(local, cloud), np.array(counts))


def _f1(scenes: list[Scene], asked: Array) -> float:
    right, boxes, objects = sum(scene.right[int(away)] for scene, away in zip(scenes, asked, strict=True))
    return float(2 * right / (boxes + objects))


def _uncertainties(scenes: list[Scene], platt: Platt) -> Array:
    return np.array(
        [
            expected_error([box[:2] for box in s.candidates], BOX_THRESHOLD, platt, count_normalised=True)
            for s in scenes
        ]
    )


def _broken(uncertainties: Array, losses: Array, rng: np.random.Generator) -> tuple[float, float]:
    """The share of promises broken, and the mean share of scenes that is escalated."""
    broken, escalated = 0, []
    for _ in range(DRAWS):
        picked = rng.integers(0, len(losses), SAMPLES)
        level = error_threshold(uncertainties[picked], losses[picked], epsilon=EPSILON, delta=DELTA)
        kept = uncertainties <= (-1.0 if level is None else level)
        broken += float(np.where(kept, losses, 0.0).mean()) > EPSILON
        escalated.append(1.0 - float(kept.mean()))
    return broken / DRAWS, float(np.mean(escalated))


def main() -> int:
    """Measure, show, judge."""
    arguments = options("the gate's promise for boxes", rounds=1).parse_args()
    pool, rng = load_pool(), np.random.default_rng(42)
    scenes = [_scene(pool, rng) for _ in range(FITTED + SCENES)]
    boxes = [box for scene in scenes[:FITTED] for box in scene.candidates]
    scores, classes, hits = (np.array(column) for column in zip(*boxes, strict=True))
    platt = fit_platt(scores, classes, hits)
    scenes = scenes[FITTED:]
    verdict = Verdict(f"The gate's promise for boxes: scenes of {pool.name}, {len(scenes):,}")
    losses = np.array([scene.loss for scene in scenes])
    uncertainties = _uncertainties(scenes, platt)
    broken, escalated = _broken(uncertainties, losses, rng)
    order = np.argsort(uncertainties, kind="stable")
    best = int((np.cumsum(losses[order]) / len(losses) <= EPSILON).sum())
    half = len(scenes) // 2
    doubtful, worst_box = np.zeros(len(scenes), bool), np.zeros(len(scenes), bool)
    doubtful[order[half:]] = True
    lowest = np.array([min((s for s, *_ in scene.candidates), default=1.0) for scene in scenes])
    worst_box[np.argsort(lowest, kind="stable")[:half]] = True
    low, high = (_f1(scenes, np.full(len(scenes), away)) for away in (False, True))
    gained = {
        "expected error": (_f1(scenes, doubtful) - low) / (high - low),
        "lowest score": (_f1(scenes, worst_box) - low) / (high - low),
        "at random": (_f1(scenes, rng.random(len(scenes)) < 0.5) - low) / (high - low),
    }
    table(
        ("half of the scenes escalated, by", "of what the large model adds"),
        [[name, f"{share:.1%}"] for name, share in gained.items()],
    )
    print(f"      F1 alone: {low:.3f} small, {high:.3f} large; mean loss between them {losses.mean():.3f}\n")
    verdict.at_most(f"promises broken (epsilon {EPSILON:.0%}, {SAMPLES:,} audits)", broken, 0.07)
    hindsight = 1.0 - best / len(scenes)
    print(f"      escalated {escalated:.1%}, in hindsight {hindsight:.1%} would do")
    verdict.at_most("escalated over hindsight, mean", escalated / hindsight, 1.35)
    missed = 1.0 - _f1(scenes, doubtful) / high
    verdict.at_most("of the large model's F1 missed, half escalated", missed, 0.1)
    verdict.at_most("of what the large model adds missed, half escalated", 1 - gained["expected error"], 0.1)
    return verdict.exit_status(strict=arguments.strict)


if __name__ == "__main__":
    sys.exit(main())
