"""Asks a vision chat that speaks OpenAI's API: OpenAI, vLLM, Ollama, llama.cpp's server, vedette-cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.escalate.chat_reply import Unusable, build_chat, read_chat
from vedette.escalate.port import CloudAnswer, CloudError
from vedette.escalate.retry_after import retry_after_s
from vedette.escalate.status import meaning_of
from vedette.wire.escalation import CloudFault

if TYPE_CHECKING:
    from vedette.escalate.chat_reply import BoxFormat
    from vedette.escalate.http_call import CloudHttp
    from vedette.escalate.port import Question

PATH = "/chat/completions"


class OpenAiChatClient:
    """Implements `port.CloudClient`; the address of `http` ends in `/v1`. The picture goes as a data URL."""

    def __init__(self, http: CloudHttp, model: str, *, box_format: BoxFormat = "norm1000") -> None:
        self._http = http
        self._model = model
        self._box_format: BoxFormat = box_format

    def ask(self, question: Question, deadline_s: float) -> CloudAnswer:
        """See `CloudClient`."""
        body = build_chat(question, self._model)
        headers = {"Content-Type": "application/json", "X-Request-Id": question.request_id}
        reply = self._http.post(PATH, body, headers, deadline_s)
        meaning = meaning_of(reply.status, reply.headers, reply.body)
        if meaning is not None:
            raise CloudError(
                meaning.fault,
                meaning.detail,
                retry_after_s=retry_after_s(reply.headers),
                final=meaning.final,
                sent_bytes=len(body),
            )
        if "json" not in reply.headers.get("content-type", ""):
            kind = reply.headers.get("content-type", "")[:64] or "of no type"
            raise CloudError(CloudFault.MALFORMED, f"the answer is {kind}, not JSON", sent_bytes=len(body))
        try:
            said = read_chat(reply.body, question, self._box_format)
        except Unusable as error:
            raise CloudError(error.fault, error.detail, sent_bytes=len(body), usage=error.usage) from error
        return CloudAnswer(
            said.label,
            said.probabilities,
            said.boxes,
            said.model or self._model,
            said.usage,
            len(body),
            len(reply.body),
            reply.took_s,
            said.loose,
        )

    def close(self) -> None:
        """See `CloudClient`."""
        self._http.close()
