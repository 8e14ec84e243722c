"""The paths of the server; the only file that names Starlette.

Under /v1 an error has OpenAI's form, everywhere else that of the Open Inference Protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from vedette.api.http_answer import HttpAnswer, json_answer, refusal_answer
from vedette.api.inference import HttpCall
from vedette.api.refusal import RequestRefusedError
from vedette.errors import UnavailableError, VedetteError
from vedette_cloud.chat_service import chat_error
from vedette_cloud.entrance import ANYBODY
from vedette_cloud.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from vedette_cloud.chat_service import ChatService
    from vedette_cloud.inference_service import InferenceService, Means

    Endpoint = Callable[[Request], Awaitable[Response]]
    Answering = Callable[[Request, str], Awaitable[HttpAnswer]]

CLIENT_GONE = 499
NOBODY = "nobody"
_CHALLENGE = ("WWW-Authenticate", "Bearer")


def build_app(means: Means, inference: InferenceService, chat: ChatService) -> Starlette:
    """All routes over the services."""

    def known(path: str, answering: Answering) -> Endpoint:
        """A path for devices that have a token."""
        return _endpoint(means, path, answering, means.entrance.device)

    def open_(path: str, answering: Answering) -> Endpoint:
        """A path for whoever looks how the server is."""
        return _endpoint(means, path, answering, lambda _: ANYBODY)

    async def infer(request: Request, device: str) -> HttpAnswer:
        return await inference.infer(*_model_of(request), _call(request), device)

    async def complete(request: Request, device: str) -> HttpAnswer:
        return await chat.complete(_call(request), device)

    model = "/v2/models/{name}"
    version = model + "/versions/{version}"
    routes = [
        *(Route(p + "/infer", known("infer", infer), methods=["POST"]) for p in (model, version)),
        Route("/v1/chat/completions", known("chat", complete), methods=["POST"]),
        Route("/v1/models", known("v1", _now(lambda _: chat.models()))),
        Route("/v1/models/{name}", known("v1", _now(lambda r: chat.model(r.path_params["name"])))),
        Route("/v2", open_("v2", _now(lambda _: inference.server_metadata()))),
        Route("/v2/health/live", open_("health", _now(lambda _: json_answer({"live": True})))),
        Route("/v2/health/ready", open_("health", _now(lambda _: inference.ready()))),
        Route("/healthz", open_("health", _now(lambda _: json_answer({"status": "ok"})))),
        Route("/readyz", open_("health", _now(lambda _: inference.ready()))),
        *(
            Route(p, known("v2", _now(lambda r: inference.model_metadata(*_model_of(r)))))
            for p in (model, version)
        ),
        *(
            Route(p + "/ready", known("v2", _now(lambda r: inference.model_ready(*_model_of(r)))))
            for p in (model, version)
        ),
        Route(
            "/metrics",
            known("metrics", _now(lambda _: HttpAnswer(200, means.metrics.render(), CONTENT_TYPE))),
        ),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _not_routed})


def _now(answer: Callable[[Request], HttpAnswer]) -> Answering:
    async def answering(request: Request, _: str) -> HttpAnswer:
        return answer(request)

    return answering


def _endpoint(
    means: Means, path: str, answering: Answering, device_of: Callable[[Mapping[str, str]], str]
) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        started_ns = means.clock.monotonic_ns()
        device, answer = NOBODY, HttpAnswer(CLIENT_GONE, b"")
        try:
            device = device_of(request.headers)
            answer = await answering(request, device)
        except ClientDisconnect:
            pass  # nobody reads it; the status only shows in the count
        except VedetteError as error:
            answer = _refused(request, _as_refusal(error))
        took_s = (means.clock.monotonic_ns() - started_ns) / 1e9
        means.metrics.answered(device, path, answer.status, took_s)
        return _response(answer)

    return endpoint


def _as_refusal(error: VedetteError) -> RequestRefusedError:
    if isinstance(error, RequestRefusedError):
        return error
    if isinstance(error, UnavailableError):
        wait_s = error.retry_after_s or 1.0
        return RequestRefusedError(503, error.cause, cure=error.cure, retry_after_s=wait_s)
    return RequestRefusedError(500, error.cause, cure=error.cure)


def _refused(request: Request, refusal: RequestRefusedError) -> HttpAnswer:
    answer = chat_error(refusal) if _is_chat(request) else refusal_answer(refusal)
    return answer._replace(headers=(*answer.headers, _CHALLENGE)) if refusal.status == 401 else answer


def _is_chat(request: Request) -> bool:
    return request.url.path.startswith("/v1/")


def _call(request: Request) -> HttpCall:
    return HttpCall(request.headers, request.stream(), request.is_disconnected)


def _model_of(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")


def _response(answer: HttpAnswer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)


async def _not_routed(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    text = "there is no such path" if status == 404 else "this cannot be asked so"
    answer = _refused(request, RequestRefusedError(status, text))
    return Response(answer.body, status, {**(headers or {}), **dict(answer.headers)}, answer.content_type)
