"""What an answer of the large model teaches: a sample of an audit, and one of the training set. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from msgspec import UNSET

from vedette.escalate.audit_record import AuditSample
from vedette.escalate.training import CloudSaid, LocalAnswer, Sample
from vedette.gate.matching import loss_between, matched
from vedette.wire.bundle import Task
from vedette.wire.escalation import OutcomeWord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vedette.config.escalation import EscalationConfig
    from vedette.escalate.port import CloudAnswer
    from vedette.escalate.ticket import Ticket
    from vedette.wire.messages import Detection, Result

# Of a hundred scenes so many are held back to test on, and so many to choose on.
TEST_PERCENT, VALIDATION_PERCENT = 10, 10
LARGEST_LOGIT = 1e4


def has_agreed(result: Result) -> bool:
    """Whether a concluded result says that both said the same."""
    return result.escalation is not None and result.escalation.outcome == OutcomeWord.AGREED.value


def audit_sample(ticket: Ticket, result: Result) -> AuditSample:
    """The sample of an audit; `result` is what it concluded with."""
    case, kept = ticket.case, ticket.kept_case
    named = result.source == "cloud"
    if ticket.model.task is Task.DETECT:
        wanted = _plain(result.detections or ()) if named else []
        local = _plain(case.result.detections or ())
        hits = matched(_plain(case.candidates), wanted)
        pairs = zip(case.candidates, hits, strict=True)
        return AuditSample(
            kept.utc_s,
            kept.picture.scene,
            case.score,
            case.inclusion,
            kept.kept,
            has_agreed(result),
            candidates=tuple((found.score, found.index, hit) for found, hit in pairs),
            loss=loss_between(local, wanted) if named else 1.0,
        )
    top = case.result.top or ()
    local_index = top[0].index if top else int(np.frombuffer(case.logits, "<f4").argmax())
    said = result.top or ()
    return AuditSample(
        kept.utc_s,
        kept.picture.scene,
        case.score,
        case.inclusion,
        kept.kept,
        has_agreed(result),
        local=local_index,
        cloud=said[0].index if named and said else -1,
        logits=case.logits,
    )


def training_sample(
    ticket: Ticket,
    answer: CloudAnswer,
    result: Result,
    config: EscalationConfig,
    *,
    sample_id: str,
    device: str,
    site: str,
) -> Sample:
    """The sample of the training set."""
    case, picture = ticket.case, ticket.kept_case.picture
    consent = () if config.training is None else config.training.consent
    return Sample(
        id=sample_id,
        utc_s=round(ticket.kept_case.utc_s, 3),
        device=device,
        site=site,
        camera=case.result.camera,
        seq=case.result.seq,
        reason=case.reason.value,
        inclusion=case.inclusion if ticket.audit else None,
        uncertainty=case.uncertainty,
        setting=case.setting,
        task=case.result.task,
        scene=picture.scene,
        split=split_of(picture.scene),
        sha256=hashlib.sha256(picture.jpeg).hexdigest(),
        width=picture.width,
        height=picture.height,
        transforms={
            "left": picture.left,
            "top": picture.top,
            "scale": round(picture.scale, 6),
            "blurred": picture.blurred,
        },
        consent=consent,
        local=_local(ticket),
        cloud=_cloud(answer, result, config.provider),
    )


def split_of(scene: str) -> str:
    """`train`, `validation` or `test`, by the scene alone."""
    percent = int.from_bytes(hashlib.sha256(scene.encode()).digest()[:4], "big") % 100
    if percent < TEST_PERCENT:
        return "test"
    return "validation" if percent < TEST_PERCENT + VALIDATION_PERCENT else "train"


def _local(ticket: Ticket) -> LocalAnswer:
    result, model = ticket.case.result, ticket.model
    top, boxes = result.top or (), result.detections or ()
    # JSON has no infinity, which stands for a class that is excluded.
    logits = np.clip(np.frombuffer(ticket.case.logits, "<f4"), -LARGEST_LOGIT, LARGEST_LOGIT)
    return LocalAnswer(
        model.name,
        model.version,
        model.sha256,
        label=top[0].label if top else None,
        logits=tuple(round(float(value), 4) for value in logits),
        boxes=tuple((found.label, found.score, found.box) for found in boxes),
    )


def _cloud(answer: CloudAnswer, result: Result, provider: str) -> CloudSaid:
    top = result.top or ()
    return CloudSaid(
        provider,
        answer.model,
        label=top[0].label if result.source == "cloud" and result.top is not UNSET and top else None,
        said=answer.label,
        soft={word: round(share, 6) for word, share in answer.probabilities.items()},
        boxes=tuple((box.label, box.score, box.box) for box in answer.boxes),
        took_ms=round(answer.took_s * 1e3, 3),
        prompt_tokens=answer.usage.prompt_tokens,
        completion_tokens=answer.usage.completion_tokens,
    )


def _plain(found: Iterable[Detection]) -> list[tuple[str, tuple[float, float, float, float]]]:
    return [(one.label, one.box) for one in found]
