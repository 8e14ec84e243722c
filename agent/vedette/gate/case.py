"""A frame on its way to the large model: what travels with its pixels. Pure."""

from __future__ import annotations

import msgspec

from vedette.wire.escalation import Guarantee, Reason
from vedette.wire.messages import Detection, Result

# Room behind the pixels of a slot for the packed case: 1,000 logits are 4 KB, 300 boxes about 30 KB.
CASE_BYTES = 96 << 10


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One escalation or audit.

    `result` is the local answer as it went out. `logits` are the classes' real logits, float32 little-endian
    (log probabilities where the model gives probabilities); empty for detections, which have `candidates`:
    those of `vision.evidence.Candidates`, best first, those of the answer among them. `setting` is the
    number of the GateSetting that judged. `urgent`: its camera never waits.
    """

    reason: Reason
    result: Result
    score: float
    uncertainty: float
    inclusion: float
    setting: int
    guarantee: Guarantee
    model_sha256: str
    logits: bytes = b""
    candidates: tuple[Detection, ...] = ()
    urgent: bool = False
