"""Answers the Open Inference Protocol: what there is, whether it is ready, and inference itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from vedette import __version__
from vedette.api.body import Body
from vedette.api.body_stream import BodyLimits, read_body
from vedette.api.http_answer import HttpAnswer, json_answer
from vedette.api.oip import (
    BINARY_TYPE,
    JSON_TYPE,
    LENGTH_HEADER,
    build_response,
    check_outputs,
    parse_request,
)
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.api.request_frames import frame_of, is_encoded, is_tensor
from vedette.api.result_tensors import metadata_of, output_names, outputs_of
from vedette.errors import InternalError, UnavailableError, VedetteError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from concurrent.futures import Executor

    from vedette.api.admission import Admission
    from vedette.api.door_messages import DoorSpec
    from vedette.api.frame_desk import FrameDesk
    from vedette.api.inquiry import Inquiry
    from vedette.api.messages import ModelDescription
    from vedette.api.oip import InferenceRequest
    from vedette.clock import Clock
    from vedette.wire.messages import ModelRef, Result
    from vedette.wire.pixels import FrameFormat

SERVER_NAME = "vedette"
EXTENSIONS = ("binary_tensor_data",)
ACCEPTED_TYPES = frozenset({"", JSON_TYPE, BINARY_TYPE})
# Decoding a small thing takes less time than handing it to another thread.
SMALL_BYTES = 4096
MAX_READINGS, MAX_READING_BYTES = 64, 2048


class HttpCall(NamedTuple):
    """A request as the protocol sees it; header names are in lower case."""

    headers: Mapping[str, str]
    stream: AsyncIterator[bytes]
    gone: Callable[[], Awaitable[bool]]


class InferenceService:
    """The protocol over the ring; one event loop owns it."""

    def __init__(
        self,
        spec: DoorSpec,
        *,
        desk: FrameDesk,
        description: Inquiry[ModelDescription],
        admission: Admission,
        decoding: Executor,
        clock: Clock,
    ) -> None:
        self._spec = spec
        self._desk = desk
        self._description = description
        self._admission = admission
        self._decoding = decoding
        self._clock = clock
        self._limits = BodyLimits(spec.max_body_bytes, spec.request_timeout_s, spec.body_pause_s)
        self.readings = Readings()

    def server_metadata(self) -> HttpAnswer:
        """What this server is."""
        return json_answer({"name": SERVER_NAME, "version": __version__, "extensions": list(EXTENSIONS)})

    async def serving(self) -> tuple[ModelDescription, ModelRef]:
        """The model that answers frames.

        Raises:
            RequestRefusedError: 503: none does now, and why.
        """
        try:
            described = await self._description.get()
        except VedetteError as error:
            retry_after_s = error.retry_after_s if isinstance(error, UnavailableError) else None
            raise not_now(error.cause, cure=error.cure, retry_after_s=retry_after_s or 1.0) from error
        if not described.ready or described.model is None:
            raise not_now(described.reason or "no model is ready", retry_after_s=described.retry_after_s)
        if not self._desk.lent:
            raise not_now(self._desk.closed or "the model is ready, the door's ring is not yet there")
        return described, described.model

    async def model(self, name: str, version: str) -> ModelDescription:
        """The model of that name, and version where one is given.

        Raises:
            RequestRefusedError: 404: another one serves; 503: none does now.
        """
        described, model = await self.serving()
        if name != model.name or version not in {"", model.version}:
            raise RequestRefusedError(
                404,
                f"there is no model {name[:64]!r}" + (f" of version {version[:64]!r}" if version else ""),
                cure=f"{model.name!r} of version {model.version!r} serves",
            )
        return described

    async def model_metadata(self, name: str, version: str) -> HttpAnswer:
        """Its inputs and outputs."""
        return json_answer(metadata_of(await self.model(name, version)))

    async def model_ready(self, name: str, version: str) -> HttpAnswer:
        """That it is ready; anything else is an error."""
        await self.model(name, version)
        return json_answer({"name": name, "ready": True})

    async def infer(self, name: str, version: str, call: HttpCall) -> HttpAnswer:
        """Answer an inference request.

        Raises:
            RequestRefusedError: Why not, with the status.
        """
        described = await self.model(name, version)
        check_type(call.headers)
        asked = Asked(self, described, version, call.headers.get(LENGTH_HEADER))
        with self._admission.room() as share:
            body = await read_body(call.headers, call.stream, self._limits, share)
            result = await asked.submit(body, self._clock.monotonic_ns(), call.gone)
        return asked.answer(result)

    def asked_now(self, name: str, version: str, header_length: str) -> Asked | None:
        """A request to the model that answers, if that can be told without waiting; None: ask `infer`."""
        described = self._description.peek()
        model = None if described is None else described.model
        if described is None or model is None or not described.ready or not self._desk.lent:
            return None
        if name != model.name or version not in {"", model.version}:
            return None
        return Asked(self, described, version, header_length)

    @property
    def slot_bytes(self) -> int:
        """The room for one frame."""
        return self._desk.slot_bytes

    async def submit(
        self,
        request: InferenceRequest,
        described: ModelDescription,
        *,
        size_bytes: int,
        captured_ns: int,
        gone: Callable[[], Awaitable[bool]],
    ) -> Result:
        """Make a frame of a request, in another thread where that takes time, and wait for its outcome.

        Raises:
            RequestRefusedError: Why there is none.
        """
        self._desk.check_lent()
        if not is_encoded(request) or size_bytes <= SMALL_BYTES:
            frame = frame_of(request, described, self.slot_bytes)
        else:
            loop = asyncio.get_running_loop()
            frame = await loop.run_in_executor(self._decoding, frame_of, request, described, self.slot_bytes)
        return await self._desk.submit(
            frame,
            captured_ns=captured_ns,
            deadline_ns=captured_ns + round(self._spec.request_timeout_s * 1e9),
            gone=gone,
        )

    def check_model(self, result: Result, described: ModelDescription, version: str) -> None:
        """A model may take over while a request waits: learn of it, and keep the word given for a version.

        Raises:
            RequestRefusedError: 503: the request was made for another model.
        """
        if result.failed:  # it may be gone, or about to be
            self._description.forget()
        if result.model == described.model or not result.model.name:  # or no model ever saw it
            return
        self._description.forget()
        if result.failed or version not in {"", result.model.version}:
            raise not_now(f"version {result.model.version!r} took over while the request waited")


class Reading(NamedTuple):
    """What a request's JSON says, without its tensors."""

    request: InferenceRequest
    tensor: bool
    format: FrameFormat


class Readings:
    """Requests that were read before: a client sends the same JSON with each picture of the same size."""

    def __init__(self) -> None:
        self._described: ModelDescription | None = None
        self._known: dict[tuple[bytes, int], Reading] = {}

    def get(self, described: ModelDescription, json: bytes, tensor_bytes: int) -> Reading | None:
        """What it said; of another model, nothing is known."""
        return self._known.get((json, tensor_bytes)) if described is self._described else None

    def keep(self, described: ModelDescription, json: bytes, tensor_bytes: int, reading: Reading) -> None:
        """Remember it, if it is small."""
        if described is not self._described or len(self._known) >= MAX_READINGS:
            self._described, self._known = described, {}
        if len(json) <= MAX_READING_BYTES:
            self._known[json, tensor_bytes] = reading


class Asked:
    """One request, from its head to its answer."""

    def __init__(
        self,
        service: InferenceService,
        described: ModelDescription,
        version: str,
        header_length: str | None,
    ) -> None:
        self._service = service
        self._described = described
        self._version = version
        self._header_length = header_length
        self._request: InferenceRequest | None = None
        self._tensor = False

    def frame_format(self, json: bytes, memory: memoryview) -> FrameFormat | None:
        """How the binary part of a request is a frame as it stands, None where it is none.

        Args:
            json: The part before it.
            memory: Where the binary part will be; it is not looked at.

        Raises:
            RequestRefusedError: 400 or 413: it is no request that can be answered.
        """
        known = self._service.readings.get(self._described, json, len(memory))
        if known is None:
            body = Body((json, memory))
            request = self._read(body)
            if is_encoded(request):
                return None
            format_ = frame_of(request, self._described, self._service.slot_bytes).format
            known = Reading(request._replace(inputs=()), self._tensor, format_)
            self._service.readings.keep(self._described, json, len(memory), known)
        self._request, self._tensor = known.request, known.tensor
        return known.format

    async def submit(self, body: Body, captured_ns: int, gone: Callable[[], Awaitable[bool]]) -> Result:
        """Have the request of this body answered.

        Raises:
            RequestRefusedError: Why it is not.
        """
        request = self._read(body)
        return await self._service.submit(
            request, self._described, size_bytes=body.size_bytes, captured_ns=captured_ns, gone=gone
        )

    def answer(self, result: Result) -> HttpAnswer:
        """The response to what was read last.

        Raises:
            RequestRefusedError: The frame was not answered.
        """
        if self._request is None:
            raise InternalError("an answer to a request that nobody read")
        self._service.check_model(result, self._described, self._version)
        wanted = [output.name for output in self._request.outputs] or None
        outputs = outputs_of(result, tensor=self._tensor, wanted=wanted)
        response = build_response(self._request, result.model, outputs)
        if response.json_bytes is None:
            return HttpAnswer(200, response.pieces[0])
        length = ("Inference-Header-Content-Length", str(response.json_bytes))
        return HttpAnswer(200, b"".join(response.pieces), BINARY_TYPE, (length,))

    def _read(self, body: Body) -> InferenceRequest:
        request = self._request = parse_request(body, self._header_length)
        self._tensor = is_tensor(request, self._described)
        check_outputs(request, output_names(self._described, tensor=self._tensor))
        return request


def check_type(headers: Mapping[str, str]) -> None:
    """Refuse what a form of a web page can send, and what we would have to unpack.

    Raises:
        RequestRefusedError: 415.
    """
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in ACCEPTED_TYPES:
        raise RequestRefusedError(
            415,
            f"the content type {content_type[:64]!r} is not taken",
            cure=f"send {JSON_TYPE} or {BINARY_TYPE}",
        )
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity"}:
        raise RequestRefusedError(
            415, f"the content encoding {encoding[:64]!r} is not taken", cure="send the body as it is"
        )
