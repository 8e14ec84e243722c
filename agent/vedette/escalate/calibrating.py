"""One model's promise as audits come in: when to calibrate, when to stop believing. Pure but for its book."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vedette.escalate.audit_book import MAX_SAMPLES
from vedette.escalate.audit_record import AuditSample, Drifted, Looked
from vedette.gate.agreement import AgreementTally
from vedette.gate.calibrate import (
    AuditedBoxes,
    Calibration,
    Promise,
    calibrate_boxes,
    calibrate_classes,
    samples_needed,
)
from vedette.gate.confidence import score_of
from vedette.gate.drift import Adwin, PageHinkley
from vedette.gate.expected_error import expected_error
from vedette.gate.setting import GateMode, Platt, Score
from vedette.wire.bundle import Task
from vedette.wire.escalation import Guarantee

if TYPE_CHECKING:
    from vedette.config.escalation import PolicyConfig
    from vedette.escalate.asked_model import AskedModel
    from vedette.escalate.audit_book import AuditBook
    from vedette.gate.agreement import Agreement

BURST = 5.0
# Where the box is unsure, errors are frequent, and how frequent depends on what the budget picks: only a leap
# is news. With the parameters for rare errors there would be an alarm every 600 frames (measured at 40 %).
LEAP, LEAP_LIMIT = 0.1, 25.0
LEAST_TOLERANCE = 0.005
# What a plain threshold may keep wrong; nobody promised anything.
USUAL_ERRORS = 0.2
# More samples than at the last look before it is worth its part of delta.
GROWTH = 2


class Happened(NamedTuple):
    """An event: its word, and what there is to say."""

    word: str
    detail: str


class ModelPromise:
    """One model file under one policy; one thread owns it. What it returns is to be told."""

    def __init__(self, model: AskedModel, policy: PolicyConfig, book: AuditBook) -> None:
        self.model = model
        self.book = book
        self._policy = policy
        self._boxes = model.task is Task.DETECT
        epsilon = policy.selective if policy.selective is not None else 1.0 - (policy.target or 1.0)
        self.promise = Promise(epsilon, policy.delta, selective=policy.selective is not None)
        self._scores = Adwin()
        self.tally = AgreementTally()
        self.burst = False
        self._scenes = {sample.scene for sample in book.samples}
        for sample in book.samples:
            self._count(sample)
        self._usable = not (self._boxes and self.promise.selective)
        self.calibration = self._unknown()
        self._next_at = self._needed()
        if book.looked is not None and policy.threshold is None:
            self.calibration = book.looked.calibration
            self._next_at = max(self._needed(), book.looked.scenes * GROWTH)
        self._watch_errors()

    @property
    def fault(self) -> str:
        """Why this policy cannot be kept with this model; empty where it can."""
        return "" if self._usable else "a detector has no selective promise; use `target` or `threshold`"

    @property
    def agreement(self) -> Agreement | None:
        """Of what the box answers with the large model's answers; None before any audit."""
        return self.tally.estimate()

    @property
    def local_agreement(self) -> Agreement | None:
        """Of the local answers alone with the large model's; None before any audit."""
        return self.tally.local()

    def keeps(self, score: float, uncertainty: float) -> bool:
        """Whether an answer is trusted as things stand."""
        threshold = self.calibration.threshold
        return uncertainty <= threshold if self._boxes else score >= threshold

    def audited(self, sample: AuditSample) -> list[Happened]:
        """An audit came back."""
        self._scenes.add(sample.scene)
        self._count(sample)
        drifted = [
            name
            for name, alarm in (
                ("its confidence", self._scores.add(min(1.0, max(0.0, sample.score)))),
                ("how often it is wrong", self._errors.add(float(sample.kept and not sample.agreed))),
            )
            if alarm
        ]
        if drifted:  # the sample that gave the alarm is one of the new world
            happened = self._drift(sample.utc_s, " and ".join(drifted))
            self._scenes.add(sample.scene)
            self._count(sample)
            self.book.append(sample)
            return happened
        self.book.append(sample)
        return self._look_if_due()

    def escalated(self, *, agreed: bool, utc_s: float) -> list[Happened]:
        """A frame that was unsure came back."""
        if self._escalated.add(float(not agreed)):
            return self._drift(utc_s, "how often it is wrong where it is unsure")
        return []

    def _watch_errors(self) -> None:
        """Anew, since another threshold keeps other frames; with the samples there are as what is usual.

        What is watched is what is promised: errors of what is kept. The more of them are usual, the larger a
        change has to be: with one tolerance for all there are 50 false alarms in 100,000 audits at 8 %.
        """
        usual = self.promise.epsilon if self._policy.threshold is None else USUAL_ERRORS
        self._errors = PageHinkley(tolerance=max(LEAST_TOLERANCE, usual / 4))
        self._escalated = PageHinkley(tolerance=LEAP, limit=LEAP_LIMIT)
        for sample in self.book.samples:
            self._errors.add(float(not sample.agreed and self._would_keep(sample)))

    def _would_keep(self, sample: AuditSample) -> bool:
        """Whether the answer of an earlier audit would be trusted as things stand."""
        found = self.calibration
        if self._boxes:
            boxes = (box[:2] for box in sample.candidates)
            level = self.model.box_threshold
            return expected_error(boxes, level, found.platt, count_normalised=True) <= found.threshold
        logits = np.frombuffer(sample.logits, "<f4")
        score = (
            score_of(logits, Score(self._policy.score), found.temperature) if logits.size else sample.score
        )
        return score >= found.threshold

    def _count(self, sample: AuditSample) -> None:
        self.tally.frame(corrected=not sample.kept)
        self.tally.audit(agreed=sample.agreed, inclusion=sample.inclusion, kept=sample.kept)

    def _needed(self) -> int:
        if self._policy.threshold is not None or not self._usable:
            return 0
        return samples_needed(self.promise.of_look(self.book.looks + 1))

    def _unknown(self) -> Calibration:
        """What holds before enough is known."""
        threshold = self._policy.threshold
        if threshold is not None:
            level = 1.0 - threshold if self._boxes else threshold
            return Calibration(GateMode.THRESHOLD, Guarantee.NONE, level, 1.0, Platt(), 0, 0)
        level = self.promise.epsilon if self._boxes else 1.0 - self.promise.epsilon
        mode = GateMode.UNCALIBRATED
        return Calibration(mode, Guarantee.NONE, level, 1.0, Platt(), len(self._scenes), self._needed())

    def _drift(self, utc_s: float, what: str) -> list[Happened]:
        before = self.calibration.mode
        self.calibration = self._unknown()
        self._scenes.clear()
        self.tally = AgreementTally()
        self._scores = Adwin()
        self.burst = self._policy.threshold is None
        self._next_at = self._needed()
        self.book.append(Drifted(utc_s, what, self.book.looks))
        self._watch_errors()
        ends = "; no promise holds until it is calibrated anew" if before is GateMode.CALIBRATED else ""
        return [Happened("drift", f"{self.model.name} {self.model.version}: {what} has changed{ends}")]

    def _look_if_due(self) -> list[Happened]:
        count = len(self._scenes)
        if self._policy.threshold is not None or not self._usable:
            return []
        if count < self._next_at:
            if self.calibration.mode is GateMode.UNCALIBRATED:
                self.calibration = self.calibration._replace(samples=count, needed=self._needed())
            return []
        number = self.book.looks + 1
        found = self._calibrated(self.promise.of_look(number))
        self.calibration = found
        self._watch_errors()
        self.book.append(Looked(number, count, found))
        # The window is bounded: once it is full, half of it has to be new.
        self._next_at = count * GROWTH if count * GROWTH <= MAX_SAMPLES else count + MAX_SAMPLES // 2
        if count >= MAX_SAMPLES:
            self._scenes = {sample.scene for sample in self.book.samples}
            self._next_at = len(self._scenes) + MAX_SAMPLES // 2
        if found.mode is not GateMode.CALIBRATED:
            return []
        self.burst = False
        detail = f"{self.model.name} {self.model.version}: on {found.samples:,} audits"
        return [Happened("calibrated", detail)]

    def _calibrated(self, promise: Promise) -> Calibration:
        samples = self.book.samples
        scenes = [sample.scene for sample in samples]
        if self._boxes:
            audited = [AuditedBoxes(sample.candidates, sample.loss) for sample in samples]
            return calibrate_boxes(audited, scenes, promise, self.model.box_threshold)
        width = len(samples[-1].logits)
        rows = [sample for sample in samples if len(sample.logits) == width]
        return calibrate_classes(
            np.array([np.frombuffer(row.logits, "<f4") for row in rows]),
            np.array([row.local for row in rows]),
            np.array([row.cloud for row in rows]),
            [row.scene for row in rows],
            promise=promise,
            score=Score(self._policy.score),
        )
