"""The gate as the serving loop uses it: judges answers, and hands frames over that are to be asked about."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET

from vedette.engine.case_writer import CaseWriter
from vedette.errors import VedetteError
from vedette.frame.ring import Ring, RingHandles
from vedette.gate.case import Case
from vedette.gate.gate import Evidence, Gate
from vedette.vision.evidence import Candidates, Logits, build_evidence
from vedette.wire.escalation import Guarantee

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from vedette.clock import Clock
    from vedette.engine.model import Model
    from vedette.frame.reader import Lease
    from vedette.gate.setting import GateSetting, Verdict
    from vedette.vision.answers import Answer
    from vedette.vision.geometry import Placement
    from vedette.wire.messages import Detection, Result


class Judged(NamedTuple):
    """A verdict, and what it was made from, for the case."""

    verdict: Verdict
    logits: NDArray[np.float32] | None
    candidates: tuple[Detection, ...]


class WorkerGate:
    """One model's gate; it is off until a setting for this very model file comes."""

    def __init__(self, model: Model, clock: Clock) -> None:
        bundle = model.bundle
        self._sha256 = bundle.model_sha256
        self._evidence = build_evidence(bundle.spec, bundle.labels, model.engine.outputs)
        self._clock = clock
        self._gate = Gate(random.Random().random)  # noqa: S311 - a fair draw, no secret
        self._setting: GateSetting | None = None
        self._ring: Ring | None = None
        self._handles: RingHandles | None = None
        self._writer: CaseWriter | None = None

    @property
    def on(self) -> bool:
        """Whether answers are judged at all."""
        return self._gate.on and self._evidence is not None

    def judges(self, camera: str) -> bool:
        """Whether answers of this camera are to be judged; its frames must be held until then."""
        return self._gate.on and self._evidence is not None and self._gate.sees(camera)

    def use(self, setting: GateSetting) -> None:
        """Apply a setting; one for another model file is none of ours."""
        if setting.model_sha256 == self._sha256:
            self._gate.use(setting)
            self._setting = setting

    def cases_to(self, fds: list[int]) -> None:
        """Hand cases over by this ring from now on; without descriptors, to nobody.

        Raises:
            BadInputError: The descriptors are those of no ring.
        """
        self.close()
        if not fds:
            return
        handles = RingHandles(fds)
        try:
            self._ring = Ring(handles)
        except VedetteError:
            handles.close()
            raise
        self._handles = handles
        self._writer = CaseWriter(self._ring, self._clock)

    def judge(
        self, camera: str, answer: Answer, outputs: tuple[NDArray[Any], ...], placement: Placement
    ) -> Judged:
        """Judge an answer.

        Raises:
            FrameError: `bad_output`: what the answer rests on cannot be read.
        """
        reader = self._evidence
        logits: NDArray[np.float32] | None = None
        candidates: tuple[Detection, ...] = ()
        if isinstance(reader, Logits):
            logits = reader.read(outputs)
            evidence = Evidence(logits)
        elif isinstance(reader, Candidates):
            candidates = reader.read(outputs, placement)
            boxes = [(found.score, found.index) for found in candidates]
            evidence = Evidence(candidates=boxes, box_threshold=reader.threshold)
        else:
            evidence = Evidence()
        verdict = self._gate.judge(camera, words_of(answer), evidence, self._clock.monotonic_ns())
        return Judged(verdict, logits, candidates)

    def offer(self, lease: Lease, result: Result, judged: Judged) -> bool:
        """Hand a frame over that the verdict names a reason for; False where it has to stay."""
        verdict, setting = judged.verdict, self._setting
        if verdict.reason is None or setting is None:
            return False
        case = Case(
            reason=verdict.reason,
            result=result,
            score=verdict.score,
            uncertainty=verdict.uncertainty,
            inclusion=verdict.inclusion,
            setting=setting.number,
            guarantee=setting.guarantee if self._gate.on else Guarantee.NONE,
            model_sha256=self._sha256,
            logits=b"" if judged.logits is None else judged.logits.astype("<f4").tobytes(),
            candidates=judged.candidates,
        )
        if self._writer is not None and self._writer.offer(lease, case):
            return True
        self._gate.refund(result.camera, verdict)
        return False

    def close(self) -> None:
        """Give the ring back."""
        self._writer = None
        if self._ring is not None:
            self._ring.close()
            self._ring = None
        if self._handles is not None:
            self._handles.close()
            self._handles = None


def close_all(fds: list[int]) -> None:
    """Descriptors that nobody wants."""
    for fd in fds:
        os.close(fd)


def words_of(answer: Answer) -> str:
    """The answer as text that is equal for equal answers: the class, or how many of which objects."""
    if answer.top is not UNSET:
        return answer.top[0].label if answer.top else ""
    if answer.detections is not UNSET:
        return ",".join(sorted(found.label for found in answer.detections))
    return ""
