"""Detections: how many errors an answer is expected to hold, from its boxes' scores. Pure.

Scores become probabilities by one slope for all classes and an offset for each (Platt, "Probabilistic
Outputs for Support Vector Machines", 1999). Candidates below the detector's threshold carry the misses to
be expected.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from vedette.gate.setting import Platt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

# A class with fewer boxes shares the offset of all such classes.
LEAST_OF_A_CLASS = 20
_SURE = 1e-6
_RIDGE = 1e-3
_STEPS = 30


def logit(score: float) -> float:
    """Of a score, held away from 0 and 1."""
    held = min(1.0 - _SURE, max(_SURE, score))
    return math.log(held / (1.0 - held))


def probability(score: float, index: int, platt: Platt) -> float:
    """How likely a box of this class and score is one that the large model sees too."""
    value = platt.slope * logit(score) + platt.offsets.get(index, platt.offset_other)
    return 1.0 / (1.0 + math.exp(-value)) if value >= 0 else math.exp(value) / (1.0 + math.exp(value))


def expected_error(
    boxes: Iterable[tuple[float, int]], threshold: float, platt: Platt, *, count_normalised: bool
) -> float:
    """Expected false positives among the kept boxes, and expected misses among the others.

    Args:
        boxes: Score and class of every candidate. None at all is an uncertainty of 0 like any other value:
            whether 0 is low enough is for the threshold to say.
        threshold: The detector's: boxes from there on are in the answer.
        platt: From scores to probabilities.
        count_normalised: Divide by the kept boxes and a half, for a loss of each picture such as 1 - F1.
    """
    total, kept = 0.0, 0
    for score, index in boxes:
        likely = probability(score, index, platt)
        if score >= threshold:
            kept += 1
            total += 1.0 - likely
        else:
            total += likely
    return total / (kept + 0.5) if count_normalised else total


def fit_platt(scores: NDArray[Any], classes: NDArray[Any], hits: NDArray[Any]) -> Platt:
    """Slope and offsets under which the boxes' fates are likeliest: Newton's method with a small ridge.

    Args:
        scores: (boxes,), 0 to 1.
        classes: (boxes,), indices.
        hits: (boxes,), whether the large model has a box there.
    """
    wanted = np.asarray(hits, np.float64)
    if not wanted.size:
        return Platt()
    held = np.clip(np.asarray(scores, np.float64), _SURE, 1 - _SURE)
    kinds, counts = np.unique(np.asarray(classes, np.int64), return_counts=True)
    own = [int(kind) for kind, count in zip(kinds, counts, strict=True) if count >= LEAST_OF_A_CLASS]
    columns = {kind: column for column, kind in enumerate(own, start=2)}
    column_of = np.array([columns.get(int(kind), 1) for kind in classes])
    design = np.zeros((wanted.size, 2 + len(own)))
    design[:, 0] = np.log(held / (1 - held))
    design[np.arange(wanted.size), column_of] = 1.0
    weights = np.zeros(design.shape[1])
    weights[0] = 1.0
    prior = weights.copy()
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -40, 40)))
        slopes = design.T @ (likely - wanted) + _RIDGE * (weights - prior)
        curvature = (design * (likely * (1 - likely))[:, None]).T @ design + _RIDGE * np.eye(weights.size)
        step = np.linalg.solve(curvature, slopes)
        weights -= step
        if float(np.abs(step).max()) < 1e-9:
            break
    offsets = {kind: float(weights[column]) for kind, column in columns.items()}
    # More boxes at a higher score cannot mean fewer hits; a fit that says so has seen too little.
    return Platt(max(0.0, float(weights[0])), float(weights[1]), offsets)
