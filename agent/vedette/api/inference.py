"""Answers the Open Inference Protocol: what there is, whether it is ready, and inference itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from vedette import __version__
from vedette.api.body import Body
from vedette.api.deadline import Deadline
from vedette.api.http_answer import HttpAnswer, json_answer
from vedette.api.oip import (
    BINARY_TYPE,
    JSON_TYPE,
    LENGTH_HEADER,
    build_response,
    check_outputs,
    parse_request,
)
from vedette.api.refusal import RequestRefusedError, bad_request, not_now, too_large
from vedette.api.request_frames import frame_of, is_encoded, is_tensor
from vedette.api.result_tensors import metadata_of, output_names, outputs_of
from vedette.errors import UnavailableError, VedetteError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from concurrent.futures import Executor

    from vedette.api.admission import Admission, Share
    from vedette.api.door_messages import DoorSpec
    from vedette.api.frame_desk import FrameDesk
    from vedette.api.inquiry import Inquiry
    from vedette.api.messages import ModelDescription
    from vedette.api.oip import InferenceRequest
    from vedette.api.request_frames import RequestFrame
    from vedette.clock import Clock
    from vedette.wire.messages import ModelRef, Result

SERVER_NAME = "vedette"
EXTENSIONS = ("binary_tensor_data",)
ACCEPTED_TYPES = frozenset({"", JSON_TYPE, BINARY_TYPE})
# Decoding a small thing takes less time than handing it to another thread.
SMALL_BYTES = 4096
MAX_LENGTH_DIGITS = 15


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
        _check_type(call.headers)
        with self._admission.room() as share:
            body = await self._read(call, share)
            captured_ns = self._clock.monotonic_ns()
            request = parse_request(body, call.headers.get(LENGTH_HEADER))
            tensor = is_tensor(request, described)
            check_outputs(request, output_names(described, tensor=tensor))
            frame = await self._frame(request, described, body.size_bytes)
            result = await self._desk.submit(
                frame,
                captured_ns=captured_ns,
                deadline_ns=captured_ns + round(self._spec.request_timeout_s * 1e9),
                gone=call.gone,
            )
        self._check_model(result, described, version)
        response = build_response(request, result.model, outputs_of(result, tensor=tensor))
        if response.json_bytes is None:
            return HttpAnswer(200, response.pieces[0])
        length = ("Inference-Header-Content-Length", str(response.json_bytes))
        return HttpAnswer(200, b"".join(response.pieces), BINARY_TYPE, (length,))

    async def _frame(
        self, request: InferenceRequest, described: ModelDescription, size_bytes: int
    ) -> RequestFrame:
        slot_bytes = self._desk.slot_bytes
        if not is_encoded(request) or size_bytes <= SMALL_BYTES:
            return frame_of(request, described, slot_bytes)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._decoding, frame_of, request, described, slot_bytes)

    def _check_model(self, result: Result, described: ModelDescription, version: str) -> None:
        """A model may take over while a request waits: learn of it, and keep the word given for a version."""
        if result.model == described.model or not result.model.name:  # or no model ever saw it
            return
        self._description.forget()
        if result.failed or version not in {"", result.model.version}:
            raise not_now(f"version {result.model.version!r} took over while the request waited")

    async def _read(self, call: HttpCall, share: Share) -> Body:
        """All of the body.

        Raises:
            RequestRefusedError: 408, 413 or 503.
        """
        limit_bytes = self._spec.max_body_bytes
        announced = call.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit():
            if len(announced) > MAX_LENGTH_DIGITS or int(announced) > limit_bytes:
                raise _body_too_large(limit_bytes)
            share.grow_to(int(announced))
        body = Body()
        slow = RequestRefusedError(408, f"the body did not come within {self._spec.request_timeout_s:g} s")
        with Deadline(self._spec.request_timeout_s, slow):
            async for piece in call.stream:
                body.add(piece)
                if body.size_bytes > limit_bytes:
                    raise _body_too_large(limit_bytes)
                share.grow_to(body.size_bytes)
        if not body.size_bytes:
            raise bad_request("the request has no body", cure="send an inference request in JSON")
        return body


def _body_too_large(limit_bytes: int) -> RequestRefusedError:
    return too_large(
        f"a request may have {limit_bytes} bytes", cure="send a smaller picture, or one in a packed format"
    )


def _check_type(headers: Mapping[str, str]) -> None:
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
