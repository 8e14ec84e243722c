"""How an escalation ends: the local result again, with what the large model said where it is of use. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from vedette.gate.matching import loss_between
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault, OutcomeWord
from vedette.wire.messages import Detection, Escalation, Label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.escalate.label_map import LabelMap
    from vedette.escalate.port import CloudAnswer, CloudError
    from vedette.escalate.privacy import Sendable
    from vedette.gate.case import Case
    from vedette.wire.escalation import DeclineCause
    from vedette.wire.messages import Result

MAX_SAID = 128
TOP = 5
# What stands for a score where the large model gives none; `confidence` is then absent.
NO_SCORE = 1.0
# Boxes agree where more than half of both answers' boxes have a partner.
AGREE_LOSS = 0.5


def answered(case: Case, answer: CloudAnswer, words: LabelMap, sent: Sendable, took_ms: float) -> Result:
    """The large model answered; `unmapped` where none of its words is a label of the bundle.

    Args:
        case: What was asked about.
        answer: What it said, boxes in pixels of what was sent.
        words: The bundle's labels and aliases.
        sent: The picture that was sent, which leads boxes back to the frame.
        took_ms: From the local answer to now.
    """
    if case.result.task == Task.DETECT.value:
        return _boxes(case, answer, words, sent, took_ms)
    index = None if answer.label is None else words.index_of(answer.label)
    if index is None:
        return _unmapped(case, answer.label or "", answer.model, took_ms)
    top = _ranked(answer, words, index)
    local = case.result.top[0].label if case.result.top else ""
    word = OutcomeWord.AGREED if local == words[index] else OutcomeWord.ANSWERED
    known = bool(answer.probabilities)
    return replace(
        case.result,
        source="cloud",
        top=top,
        confidence=top[0].score if known else UNSET,
        escalation=_escalation(case, word, took_ms, model=answer.model),
    )


def failed(case: Case, error: CloudError, took_ms: float) -> Result:
    """It gave no usable answer; one that was late has expired."""
    late = error.fault is CloudFault.DEADLINE
    word = OutcomeWord.EXPIRED if late else OutcomeWord.FAILED
    cause = None if late else error.fault.value
    return replace(case.result, escalation=_escalation(case, word, took_ms, cause=cause))


def declined(case: Case, cause: DeclineCause, took_ms: float) -> Result:
    """It was not asked."""
    word = OutcomeWord.DECLINED
    return replace(case.result, escalation=_escalation(case, word, took_ms, cause=cause.value))


def _boxes(case: Case, answer: CloudAnswer, words: LabelMap, sent: Sendable, took_ms: float) -> Result:
    found: list[Detection] = []
    strange = ""
    for box in answer.boxes:
        index = words.index_of(box.label)
        if index is None:
            strange = strange or box.label
            continue
        score = NO_SCORE if box.score is None else box.score
        found.append(Detection(words[index], index, score, sent.in_frame(box.box)))
    if answer.boxes and not found:
        return _unmapped(case, strange, answer.model, took_ms)
    found.sort(key=lambda one: one.score, reverse=True)
    local = () if case.result.detections is UNSET else case.result.detections
    agrees = loss_between(_plain(local), _plain(found)) < AGREE_LOSS
    scored = bool(found) and all(box.score is not None for box in answer.boxes)
    escalation = _escalation(
        case,
        OutcomeWord.AGREED if agrees else OutcomeWord.ANSWERED,
        took_ms,
        model=answer.model,
        said=strange,
    )
    return replace(
        case.result,
        source="cloud",
        detections=tuple(found),
        confidence=found[0].score if scored else UNSET,
        escalation=escalation,
    )


def _plain(found: Sequence[Detection]) -> list[tuple[str, tuple[float, float, float, float]]]:
    return [(one.label, one.box) for one in found]


def _ranked(answer: CloudAnswer, words: LabelMap, index: int) -> tuple[Label, ...]:
    """Its classes, the one that it chose first; words that mean one class are added up."""
    scores: dict[int, float] = {}
    for word, probability in answer.probabilities.items():
        meant = words.index_of(word)
        if meant is not None:
            scores[meant] = scores.get(meant, 0.0) + probability
    first = Label(words[index], index, scores.pop(index, NO_SCORE if not scores else 0.0))
    rest = sorted(scores.items(), key=lambda item: -item[1])[: TOP - 1]
    return (first, *(Label(words[other], other, score) for other, score in rest))


def _unmapped(case: Case, said: str, model: str, took_ms: float) -> Result:
    cause = CloudFault.UNMAPPED.value
    escalation = _escalation(case, OutcomeWord.FAILED, took_ms, cause=cause, model=model, said=said)
    return replace(case.result, escalation=escalation)


def _escalation(
    case: Case,
    word: OutcomeWord,
    took_ms: float,
    *,
    cause: str | None = None,
    model: str = "",
    said: str = "",
) -> Escalation:
    printable = "".join(c if c.isprintable() else " " for c in said[:MAX_SAID])
    return Escalation(
        word.value,
        cause if cause is not None else UNSET,
        case.reason.value,
        round(took_ms, 3),
        model or UNSET,
        printable or UNSET,
    )
