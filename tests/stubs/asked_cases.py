"""Cases, models and a pool for tests of the desk that asks the large model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vedette.config.escalation import AuditConfig, EscalationConfig, PolicyConfig
from vedette.escalate.asked_model import AskedModel
from vedette.escalate.asker_pool import Reply
from vedette.escalate.label_map import LabelMap
from vedette.escalate.port import CloudAnswer, CloudBox, CloudError, Usage
from vedette.gate.case import Case
from vedette.wire.bundle import Task
from vedette.wire.escalation import Guarantee, Reason
from vedette.wire.messages import Detection, Label, ModelRef, Result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.escalate.asker_pool import Job

LABELS = ("cat", "dog", "car")
SHA = "b" * 64
SECOND_NS = 1_000_000_000


def escalation_config(**changes: Any) -> EscalationConfig:  # noqa: ANN401 - fields of any kind
    """A plain configuration with a deadline of a second."""
    plain = EscalationConfig(
        provider="oip",
        url="http://127.0.0.1:9",
        model="large",
        policy=PolicyConfig(target=0.98),
        audit=AuditConfig(share=0.02, per_day=1000),
        deadline_ms=1000.0,
        in_flight=2,
    )
    return msgspec.structs.replace(plain, **changes)


def asked_model(*, sha256: str = SHA, task: Task = Task.CLASSIFY, prompt: str = "") -> AskedModel:
    """A model of three classes; the large one's `kitty` is a cat."""
    return AskedModel(sha256, "edge", "1.0.0", task, LABELS, LabelMap(LABELS, {"kitty": "cat"}), prompt, 0.25)


def case_of(
    seq: int,
    *,
    captured_ns: int = 0,
    audit: bool = False,
    uncertainty: float = 0.5,
    camera: str = "front",
    **changes: Any,  # noqa: ANN401 - fields of any kind
) -> Case:
    """A frame whose local answer is a cat."""
    result = Result(
        1,
        camera,
        seq,
        captured_ns,
        ModelRef("edge", "1.0.0", "a" * 64),
        "classify",
        top=(Label("cat", 0, 1.0 - uncertainty),),
    )
    plain = Case(
        reason=Reason.AUDIT if audit else Reason.UNCERTAIN,
        result=result,
        score=1.0 - uncertainty,
        uncertainty=uncertainty,
        inclusion=0.02,
        setting=1,
        guarantee=Guarantee.NONE,
        model_sha256=SHA,
        logits=np.array([2.0, 1.0, 0.0], "<f4").tobytes(),
    )
    return msgspec.structs.replace(plain, **changes)


def boxes_case(seq: int, *boxes: Detection, audit: bool = False, captured_ns: int = 0) -> Case:
    """A frame with these boxes."""
    plain = case_of(seq, audit=audit, captured_ns=captured_ns)
    result = msgspec.structs.replace(plain.result, task="detect", top=msgspec.UNSET, detections=boxes)
    return msgspec.structs.replace(plain, result=result, candidates=boxes, logits=b"")


def frame_of(seed: int, *, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """A picture that no other seed gives."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 8, 3), np.uint8)
    return np.asarray(coarse.repeat(height // 6, axis=0).repeat(width // 8, axis=1), np.uint8)


def says(label: str | None, *boxes: CloudBox, took_s: float = 0.1, **probabilities: float) -> CloudAnswer:
    """An answer of the large model."""
    return CloudAnswer(label, probabilities, boxes, "large", Usage(100, 5), 1000, 50, took_s)


class HandPool:
    """An `AskerPool` whose replies come when a test says so; it passes the port's contract."""

    def __init__(self, places: int = 2) -> None:
        self._places = places
        self.jobs: dict[int, Job] = {}
        self._ready: list[Reply] = []

    @property
    def free(self) -> int:
        """See `AskerPool`."""
        return self._places - len(self.jobs) - len(self._ready)

    def start(self, job: Job) -> None:
        """See `AskerPool`."""
        assert self.free > 0
        self.jobs[job.number] = job

    def replies(self) -> list[Reply]:
        """See `AskerPool`."""
        ready, self._ready = self._ready, []
        return ready

    def reply(self, answer: CloudAnswer | CloudError, number: int | None = None, crash: str = "") -> None:
        """The oldest job, or that number, gets this reply."""
        chosen = next(iter(self.jobs)) if number is None else number
        del self.jobs[chosen]
        self._ready.append(Reply(chosen, answer, crash))
