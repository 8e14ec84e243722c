"""From audited frames to a setting's threshold. Pure.

Temperature and slopes are fitted on other samples than the threshold is chosen on: a threshold on samples
that shaped the scores would promise too much. Of a scene one sample counts, since near-duplicates of one
frame are no independent draws. Whoever calibrates again and again until something passes breaks the promise,
so each look spends a part of delta: see `Promise.of_look`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vedette.gate.betting import error_threshold
from vedette.gate.binomial import least_samples
from vedette.gate.confidence import fit_temperature, scores_of
from vedette.gate.expected_error import expected_error, fit_platt
from vedette.gate.setting import GateMode, Platt, Score
from vedette.gate.thresholds import agreement_threshold, selective_threshold
from vedette.wire.escalation import Guarantee

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEAST_FITTED = 100
MOST_FITTED = 500
SELECTIVE_FACTOR = 1.6


class Promise(NamedTuple):
    """What is wanted: `epsilon` may go wrong, and the promise itself with probability `delta`."""

    epsilon: float
    delta: float = 0.05
    selective: bool = False

    def of_look(self, number: int) -> Promise:
        """What the `number`th calibration of one model file may spend, the first being 1.

        Parts of delta * 6 / (pi * number)^2 add up to delta over all looks there will ever be, so that the
        promise is about all of them together; the samples that are needed grow with the logarithm only.

        Raises:
            ValueError: `number` is below 1.
        """
        if number < 1:
            raise ValueError(f"look {number}; the first one is 1")
        return self._replace(delta=self.delta * 6.0 / (math.pi * number) ** 2)


class Calibration(NamedTuple):
    """What a setting takes from here; `samples` the threshold rests on, of `needed` at least."""

    mode: GateMode
    guarantee: Guarantee
    threshold: float
    temperature: float
    platt: Platt
    samples: int
    needed: int


class AuditedBoxes(NamedTuple):
    """One audited frame of a detector.

    Every candidate's score, class index, and whether the large model has a box there; then 1 - F1 of the
    answer against the large model's.
    """

    candidates: tuple[tuple[float, int, bool], ...]
    loss: float


def samples_needed(promise: Promise) -> int:
    """How many audits a threshold can rest on at the least.

    A selective promise is proven on those alone that are kept, strictest first, and the first test has some
    errors to bear: with fewer than 1.6 times the least it would most often prove nothing.
    """
    least = least_samples(promise.epsilon, promise.delta)
    return math.ceil(SELECTIVE_FACTOR * least) if promise.selective else least


def calibrate_classes(
    logits: NDArray[Any],
    local: NDArray[Any],
    cloud: NDArray[Any],
    scenes: Sequence[str],
    *,
    promise: Promise,
    score: Score = Score.MAX_SOFTMAX,
) -> Calibration:
    """Calibrate a classification.

    Args:
        logits: (samples, classes) of the deployed model file, oldest first.
        local: (samples,), its classes.
        cloud: (samples,), the large model's; negative, and so another, where it named no class of ours.
        scenes: (samples,), equal for near-duplicates.
        promise: What is wanted.
        score: What stands for confidence.
    """
    chosen = _first_of_each(scenes)
    needed = samples_needed(promise)
    fitted, held = _split(chosen, needed)
    temperature = fit_temperature(logits[fitted], cloud[fitted]) if fitted.size else 1.0
    find = selective_threshold if promise.selective else agreement_threshold
    threshold = None
    if held.size:
        scores = scores_of(logits[held], score, temperature)
        differs = local[held] != cloud[held]
        threshold = find(scores, differs, epsilon=promise.epsilon, delta=promise.delta)
    if threshold is None:
        return Calibration(
            GateMode.UNCALIBRATED,
            Guarantee.NONE,
            1.0 - promise.epsilon,
            temperature,
            Platt(),
            int(held.size),
            needed,
        )
    guarantee = Guarantee.SELECTIVE if promise.selective else Guarantee.AGREEMENT
    return Calibration(
        GateMode.CALIBRATED, guarantee, threshold, temperature, Platt(), int(held.size), needed
    )


def calibrate_boxes(
    audited: Sequence[AuditedBoxes], scenes: Sequence[str], promise: Promise, box_threshold: float
) -> Calibration:
    """Calibrate a detector; the promise is on the mean of 1 - F1 that comes from what is kept.

    Args:
        audited: Oldest first.
        scenes: Equal for near-duplicates.
        promise: What is wanted; `selective` is not to be had for detectors.
        box_threshold: The score from which on a box is in the answer.

    Raises:
        ValueError: `selective` is wanted.
    """
    if promise.selective:
        raise ValueError("detectors have no selective promise")
    needed = samples_needed(promise)
    fitted, held = _split(_first_of_each(scenes), needed)
    boxes = [box for index in fitted for box in audited[index].candidates]
    platt = Platt()
    if boxes:
        scores, classes, hits = (np.array(column) for column in zip(*boxes, strict=True))
        platt = fit_platt(scores, classes, hits)
    uncertainties = np.array(
        [
            expected_error(
                [box[:2] for box in audited[index].candidates], box_threshold, platt, count_normalised=True
            )
            for index in held
        ]
    )
    losses = np.array([audited[index].loss for index in held])
    threshold = error_threshold(uncertainties, losses, epsilon=promise.epsilon, delta=promise.delta)
    if threshold is None:
        return Calibration(
            GateMode.UNCALIBRATED, Guarantee.NONE, promise.epsilon, 1.0, platt, int(held.size), needed
        )
    return Calibration(
        GateMode.CALIBRATED, Guarantee.AGREEMENT, threshold, 1.0, platt, int(held.size), needed
    )


def _first_of_each(scenes: Sequence[str]) -> NDArray[np.intp]:
    seen: dict[str, int] = {}
    for index, scene in enumerate(scenes):
        seen.setdefault(scene, index)
    return np.array(sorted(seen.values()), np.intp)


def _split(chosen: NDArray[np.intp], needed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Samples to fit on and samples for the threshold, interleaved in time so that both saw the same days."""
    spare = chosen.size - needed
    if spare < LEAST_FITTED:
        return chosen[:0], chosen
    fitted = min(MOST_FITTED, max(LEAST_FITTED, chosen.size // 5))
    picks = np.linspace(0, chosen.size - 1, fitted).round().astype(np.intp)
    mask = np.zeros(chosen.size, bool)
    mask[picks] = True
    return chosen[mask], chosen[~mask]
