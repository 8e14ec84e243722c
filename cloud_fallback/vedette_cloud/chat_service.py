"""Answers OpenAI's chat completions from a pool of models: a facade for classification."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from vedette.api.body_stream import read_body
from vedette.api.datatypes import BYTES, pack_bytes
from vedette.api.http_answer import HttpAnswer, error_answer, json_answer
from vedette.api.oip import InferenceRequest, InputTensor
from vedette.api.request_frames import IMAGE
from vedette.api.result_tensors import outputs_of
from vedette.wire.bundle import Task
from vedette_cloud.chat_answer import build_completion, choose
from vedette_cloud.chat_request import ChatRefusedError, parse_chat

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.inference import HttpCall
    from vedette.api.refusal import RequestRefusedError
    from vedette.wire.messages import ModelRef
    from vedette_cloud.inference_service import Means

OWNER = "vedette-cloud"
# OpenAI's words for the statuses that its clients tell apart.
_TYPES = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def _utc_s() -> float:
    return time.time()


class ChatService:
    """The paths under /v1; one event loop owns it."""

    def __init__(self, means: Means, utc_s: Callable[[], float] = _utc_s) -> None:
        self._means = means
        self._utc_s = utc_s
        self._since_utc_s = int(utc_s())

    def models(self) -> HttpAnswer:
        """The one model that there is."""
        _, model = self._means.serving()
        return json_answer({"object": "list", "data": [self._entry(model)]})

    def model(self, name: str) -> HttpAnswer:
        """The one of that name.

        Raises:
            RequestRefusedError: 404 or 503.
        """
        return json_answer(self._entry(self._named(name)))

    async def complete(self, call: HttpCall, device: str) -> HttpAnswer:
        """Answer a chat of a device that is known.

        Raises:
            RequestRefusedError: Why not, with the status.
        """
        means = self._means
        described, _ = means.serving()
        if described.task != Task.CLASSIFY.value:
            raise ChatRefusedError(
                f"the model's task is {described.task}; a chat is for classification, ask by /v2",
                param="model",
            )
        with means.entrance.charged(device), means.admission.room() as share:
            body = await read_body(call.headers, call.stream, means.limits.body, share)
            means.metrics.received(device, body.size_bytes)
            captured_ns = means.clock.monotonic_ns()
            request = parse_chat(body.take(0, body.size_bytes))
            model = self._named(request.model)
            pieces = (memoryview(pack_bytes([request.picture])),)
            tensor = InputTensor(IMAGE, BYTES, (1,), {}, pieces)
            frame = await means.frame(
                InferenceRequest("", {}, (tensor,), (), binary_outputs=False), described, body.size_bytes
            )
            deadline_ns = captured_ns + round(means.limits.timeout_s * 1e9)
            answer = await means.pool.ask(
                frame, captured_ns=captured_ns, deadline_ns=deadline_ns, ranking=True
            )
            outputs_of(answer.result, tensor=False, wanted=())  # refuses a frame that failed
            return json_answer(
                build_completion(
                    request,
                    choose(answer.ranking, request.labels),
                    model,
                    size=frame.format.upright_size,
                    id_=f"chatcmpl-{uuid.uuid4().hex}",
                    created_utc_s=int(self._utc_s()),
                )
            )

    def _named(self, name: str) -> ModelRef:
        _, model = self._means.serving()
        if name != model.name:
            raise ChatRefusedError(
                f"there is no model {name[:64]!r}; {model.name!r} serves",
                param="model",
                code="model_not_found",
                status=404,
            )
        return model

    def _entry(self, model: ModelRef) -> dict[str, object]:
        return {"id": model.name, "object": "model", "created": self._since_utc_s, "owned_by": OWNER}


def chat_error(refusal: RequestRefusedError) -> HttpAnswer:
    """A refusal in OpenAI's form."""
    answer = error_answer(refusal.status, refusal.text(), retry_after_s=refusal.retry_after_s)
    default = "server_error" if refusal.status >= 500 else "invalid_request_error"
    kind, code = _TYPES.get(refusal.status, (default, None))
    param = None
    if isinstance(refusal, ChatRefusedError):
        param, code = refusal.param, refusal.code or code
    error = {"message": refusal.text(), "type": kind, "param": param, "code": code}
    return json_answer({"error": error}, status=refusal.status)._replace(headers=answer.headers)
