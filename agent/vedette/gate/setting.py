"""What the gate in the engine worker is told, and what it says of a frame. Pure.

The process that asks the large model owns calibration and budgets. It sends a new setting whenever one of
them changes, about once a second; the worker only applies it. A setting is bound to one model file by its
sha256 and is never applied to another.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

from vedette.wire.escalation import DeclineCause, Guarantee, Reason


class GateMode(str, Enum):
    """How the threshold came about."""

    OFF = "off"  # nothing is asked, audits neither
    THRESHOLD = "threshold"  # a plain number of the configuration
    UNCALIBRATED = "uncalibrated"  # too few audits yet, another model, or drift: 1 - epsilon, no promise
    CALIBRATED = "calibrated"  # chosen on audits of this very model


class Score(str, Enum):
    """What stands for confidence in a classification."""

    MAX_SOFTMAX = "max_softmax"
    MARGIN = "margin"  # best minus second best probability


class Platt(msgspec.Struct, frozen=True):
    """Detection: p = sigmoid(slope * logit(score) + offset[class]); classes not listed use `offset_other`."""

    slope: float = 1.0
    offset_other: float = 0.0
    offsets: dict[int, float] = {}


class GateSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `gate.gate.Gate` needs to judge a frame.

    A classification is unsure where its score is below `threshold`; a detection where its expected error is
    above it. `tokens` and `audit_tokens` may be spent until the next setting; `rate_per_s` is how fast tokens
    come and `fill` how full their bucket is, 0 to 1. `paced`: tokens go to the most uncertain frames, not to
    the first ones. `cool_down_s` is the time in which one scene is asked about once; a frame belongs to the
    scene before while its answer is the same and its uncertainty within `hysteresis` of it.
    `quiet_cameras` are never asked about, `urgent_cameras` only where the answer is expected in time, which
    the asking process decides.
    """

    number: int
    model_sha256: str
    mode: GateMode
    score: Score = Score.MAX_SOFTMAX
    temperature: float = 1.0
    threshold: float = 0.0
    guarantee: Guarantee = Guarantee.NONE
    epsilon: float = 0.0
    delta: float = 0.05
    platt: Platt = Platt()
    count_normalised: bool = True
    audit_share: float = 0.0
    tokens: int = 0
    audit_tokens: int = 0
    rate_per_s: float = 0.0
    fill: float = 0.0
    paced: bool = True
    cool_down_s: float = 0.0
    hysteresis: float = 0.05
    quiet_cameras: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """What the gate says of one frame.

    `reason` None: nothing is asked; then `declined` says why an unsure frame is not. `score` is the
    classification's calibrated confidence (detections: 1 - uncertainty, at least 0), `uncertainty` what ranks
    frames: 1 - score, or the expected error. `inclusion` is the probability with which this frame was drawn
    for an audit, whatever became of it. `unsure`: the promise counts on the large model's answer, whoever
    asks for it and why.
    """

    reason: Reason | None
    declined: DeclineCause | None
    score: float
    uncertainty: float
    inclusion: float
    unsure: bool = False
