"""Answers the Open Inference Protocol from a pool of models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from vedette import __version__
from vedette.api.body_stream import BodyLimits, read_body
from vedette.api.http_answer import HttpAnswer, json_answer
from vedette.api.inference import EXTENSIONS, SMALL_BYTES, check_type
from vedette.api.oip import BINARY_TYPE, LENGTH_HEADER, build_response, check_outputs, parse_request
from vedette.api.refusal import RequestRefusedError, not_now, too_large
from vedette.api.request_frames import frame_of, is_encoded, is_tensor
from vedette.api.result_tensors import metadata_of, output_names, outputs_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from vedette.api.admission import Admission
    from vedette.api.body import Body
    from vedette.api.inference import HttpCall
    from vedette.api.messages import ModelDescription
    from vedette.api.oip import InferenceRequest
    from vedette.api.request_frames import RequestFrame
    from vedette.clock import Clock
    from vedette.wire.messages import ModelRef
    from vedette_cloud.entrance import Entrance
    from vedette_cloud.metrics import Metrics
    from vedette_cloud.port import ModelPool

SERVER_NAME = "vedette-cloud"


class RequestLimits(NamedTuple):
    """What one request may take; `max_frame_bytes` is the decoded picture."""

    max_body_bytes: int = 32 << 20
    max_frame_bytes: int = 64 << 20
    timeout_s: float = 30.0
    body_pause_s: float = 5.0

    @property
    def body(self) -> BodyLimits:
        """For reading it."""
        return BodyLimits(self.max_body_bytes, self.timeout_s, self.body_pause_s)


class Means(NamedTuple):
    """What both protocols answer with."""

    pool: ModelPool
    entrance: Entrance
    admission: Admission
    decoding: Executor
    limits: RequestLimits
    clock: Clock
    metrics: Metrics

    def serving(self) -> tuple[ModelDescription, ModelRef]:
        """The model that answers.

        Raises:
            RequestRefusedError: 503: none does just now, and why.
        """
        described = self.pool.description()
        if not described.ready or described.model is None:
            raise not_now(described.reason or "no model is ready", retry_after_s=described.retry_after_s)
        return described, described.model

    async def frame(
        self, request: InferenceRequest, described: ModelDescription, size_bytes: int
    ) -> RequestFrame:
        """The frame of a request, decoded in another thread where that takes time.

        Raises:
            RequestRefusedError: 400 or 413: it is none.
        """
        most = self.limits.max_frame_bytes
        try:
            if not is_encoded(request) or size_bytes <= SMALL_BYTES:
                return frame_of(request, described, most)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.decoding, frame_of, request, described, most)
        except RequestRefusedError as refusal:
            if refusal.status == 413:
                raise too_large(
                    refusal.cause,
                    cure="send a smaller picture, or start the server with a larger --max-frame-mb",
                ) from refusal
            raise


class InferenceService:
    """The protocol's paths; one event loop owns it."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def server_metadata(self) -> HttpAnswer:
        """What this server is."""
        return json_answer({"name": SERVER_NAME, "version": __version__, "extensions": list(EXTENSIONS)})

    def model(self, name: str, version: str) -> tuple[ModelDescription, ModelRef]:
        """The model of that name, and version where one is given.

        Raises:
            RequestRefusedError: 404: another one serves; 503: none does now.
        """
        described, model = self._means.serving()
        if name != model.name or version not in {"", model.version}:
            raise RequestRefusedError(
                404,
                f"there is no model {name[:64]!r}" + (f" of version {version[:64]!r}" if version else ""),
                cure=f"{model.name!r} of version {model.version!r} serves",
            )
        return described, model

    def model_metadata(self, name: str, version: str) -> HttpAnswer:
        """Its inputs and outputs."""
        return json_answer(metadata_of(self.model(name, version)[0]))

    def model_ready(self, name: str, version: str) -> HttpAnswer:
        """That it is ready; anything else is an error."""
        self.model(name, version)
        return json_answer({"name": name, "ready": True})

    def ready(self) -> HttpAnswer:
        """A model is loaded, proved and answers."""
        described, model = self._means.serving()
        effective = None if described.engine is None else described.engine.effective
        return json_answer(
            {"ready": True, "model": model.name, "version": model.version, "accelerator": effective}
        )

    async def infer(self, name: str, version: str, call: HttpCall, device: str) -> HttpAnswer:
        """Answer an inference request of a device that is known.

        Raises:
            RequestRefusedError: Why not, with the status.
        """
        means = self._means
        described, model = self.model(name, version)
        check_type(call.headers)
        with means.entrance.charged(device), means.admission.room() as share:
            body = await read_body(call.headers, call.stream, means.limits.body, share)
            means.metrics.received(device, body.size_bytes)
            return await self._answer(body, call.headers.get(LENGTH_HEADER), described, model)

    async def _answer(
        self, body: Body, header_length: str | None, described: ModelDescription, model: ModelRef
    ) -> HttpAnswer:
        means, captured_ns = self._means, self._means.clock.monotonic_ns()
        request = parse_request(body, header_length)
        tensor = is_tensor(request, described)
        check_outputs(request, output_names(described, tensor=tensor))
        frame = await means.frame(request, described, body.size_bytes)
        deadline_ns = captured_ns + round(means.limits.timeout_s * 1e9)
        answer = await means.pool.ask(frame, captured_ns=captured_ns, deadline_ns=deadline_ns)
        wanted = [output.name for output in request.outputs] or None
        response = build_response(request, model, outputs_of(answer.result, tensor=tensor, wanted=wanted))
        if response.json_bytes is None:
            return HttpAnswer(200, response.pieces[0])
        length = ("Inference-Header-Content-Length", str(response.json_bytes))
        return HttpAnswer(200, b"".join(response.pieces), BINARY_TYPE, (length,))
