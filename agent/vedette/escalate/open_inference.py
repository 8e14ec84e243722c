"""Asks a server of the Open Inference Protocol, as are vedette-cloud, KServe, Triton and MLServer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import numpy as np

from vedette.errors import BadInputError
from vedette.escalate.oip_reply import LENGTH_HEADER, build_json_request, build_request, parse_reply
from vedette.escalate.port import CloudAnswer, CloudBox, CloudError, Usage
from vedette.escalate.retry_after import retry_after_s
from vedette.escalate.status import meaning_of
from vedette.wire.bundle import Task
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from vedette.escalate.http_call import CloudHttp, HttpReply
    from vedette.escalate.oip_reply import Tensor
    from vedette.escalate.port import Question

MAX_BOXES = 1000
_ROUNDING = 1.01  # what probabilities of half precision may sum to


class _Said(NamedTuple):
    label: str | None
    probabilities: dict[str, float]
    boxes: tuple[CloudBox, ...] = ()


class OpenInferenceClient:
    """Implements `port.CloudClient`; the picture goes as a file in one BYTES element named `input_name`.

    A classification is read from `labels` (BYTES) and `scores`, surest first, or from the only output
    where it is one row with a number for each label; a detection from `labels`, `scores` and `boxes` ([n,
    4], pixels).
    """

    def __init__(
        self, http: CloudHttp, model: str, *, input_name: str = "image", binary: bool = True
    ) -> None:
        """Prepare to ask.

        Args:
            http: The way to the server.
            model: Its name there.
            input_name: Of the input that takes a picture file.
            binary: By the protocol's binary extension; else everything is JSON, the picture in base64.
        """
        self._http = http
        self._binary = binary
        self._model = model
        self._path = f"/v2/models/{quote(model, safe='')}/infer"
        self._input_name = input_name

    def ask(self, question: Question, deadline_s: float) -> CloudAnswer:
        """See `CloudClient`."""
        names = ("labels", "scores", "boxes") if question.task is Task.DETECT else ("labels", "scores")
        headers = {"X-Request-Id": question.request_id}
        if self._binary:
            json_bytes, body = build_request(question.jpeg, self._input_name, names)
            headers["Content-Type"] = "application/octet-stream"
            headers["Inference-Header-Content-Length"] = str(json_bytes)
        else:
            body = build_json_request(question.jpeg, self._input_name, names)
            headers["Content-Type"] = "application/json"
        reply = self._http.post(self._path, body, headers, deadline_s)
        meaning = meaning_of(reply.status, reply.headers, reply.body)
        if meaning is not None:
            raise CloudError(
                meaning.fault,
                meaning.detail,
                retry_after_s=retry_after_s(reply.headers),
                final=meaning.final,
                sent_bytes=len(body),
            )
        try:
            said = self._read(question, reply)
        except BadInputError as error:
            raise CloudError(CloudFault.MALFORMED, error.cause, sent_bytes=len(body)) from error
        return CloudAnswer(
            said.label,
            said.probabilities,
            said.boxes,
            self._model,
            Usage(),
            len(body),
            len(reply.body),
            reply.took_s,
        )

    def close(self) -> None:
        """See `CloudClient`."""
        self._http.close()

    @staticmethod
    def _read(question: Question, reply: HttpReply) -> _Said:
        kind = reply.headers.get("content-type", "")
        if "json" not in kind and LENGTH_HEADER not in reply.headers:
            raise BadInputError(
                f"the answer is {kind[:64] or 'of no type'}, not of the Open Inference Protocol"
            )
        tensors = parse_reply(reply.headers, reply.body)
        if question.task is Task.DETECT:
            return _boxes(tensors, question)
        if set(tensors) == {"labels", "scores"}:
            words, scores = _words(tensors, "labels"), _numbers(tensors, "scores").reshape(-1)
            if len(words) != scores.size or not words:
                raise BadInputError(f"{len(words)} labels and {scores.size} scores")
            return _Said(words[0], _probabilities(words, scores))
        return _row(tensors, question.labels)


def _row(tensors: dict[str, Tensor], labels: tuple[str, ...]) -> _Said:
    """One number for each label, in the bundle's order: probabilities or logits."""
    if len(tensors) != 1:
        raise BadInputError(f"the outputs are {', '.join(sorted(tensors))[:160]}: which one is the answer?")
    (name,) = tensors
    row = _numbers(tensors, name).reshape(-1)
    if row.size != len(labels) or not row.size:
        raise BadInputError(f"the output {name[:64]!r} has {row.size} numbers for {len(labels)} labels")
    if row.min() < 0 or not 0.99 <= float(row.sum()) <= _ROUNDING:
        with np.errstate(over="ignore"):  # so far below the best that its share is 0
            row = np.exp(row - row.max())
        row /= row.sum()
    return _Said(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True)))


def _boxes(tensors: dict[str, Tensor], question: Question) -> _Said:
    words, scores = _words(tensors, "labels"), _numbers(tensors, "scores").reshape(-1)
    boxes = _numbers(tensors, "boxes")
    if boxes.ndim != 2 or boxes.shape[1] != 4 or not len(words) == scores.size == len(boxes):
        raise BadInputError(f"{len(words)} labels, {scores.size} scores and boxes of shape {boxes.shape}")
    if len(words) > MAX_BOXES:
        raise BadInputError(f"{len(words)} boxes; {MAX_BOXES} is the most")
    found = []
    for word, score, box in zip(words, scores.tolist(), boxes.tolist(), strict=True):
        left, top, right, bottom = box
        inside = 0 <= left < right <= question.width + 1 and 0 <= top < bottom <= question.height + 1
        if not inside or not 0 <= score <= 1:
            raise BadInputError(f"a box at {[round(edge) for edge in box]} with the score {score:.3g}")
        found.append(CloudBox(word, (left, top, right, bottom), score))
    return _Said(None, {}, tuple(found))


def _probabilities(words: list[str], scores: NDArray[np.float64]) -> dict[str, float]:
    """Scores that can be probabilities; else none are known."""
    if scores.min() < 0 or scores.sum() > _ROUNDING:
        return {}
    return dict(zip(words, scores.tolist(), strict=True))


def _words(tensors: dict[str, Tensor], name: str) -> list[str]:
    found = tensors.get(name)
    if not isinstance(found, list):
        raise BadInputError(f"the answer has no text output {name!r}")
    return found


def _numbers(tensors: dict[str, Tensor], name: str) -> NDArray[np.float64]:
    found = tensors.get(name)
    if found is None or isinstance(found, list):
        raise BadInputError(f"the answer has no numbers under {name[:64]!r}")
    if not np.isfinite(found).all():
        raise BadInputError(f"the output {name[:64]!r} holds what is no number")
    return found
