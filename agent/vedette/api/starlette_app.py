"""The paths of the door; the only file that names Starlette.

Every answer that is an error has the protocol's form, `{"error": "…"}`, whatever its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from vedette.api.frame_desk import ClientGoneError
from vedette.api.http_answer import HttpAnswer, error_answer, refusal_answer
from vedette.api.inference import HttpCall
from vedette.api.refusal import RequestRefusedError
from vedette.errors import UnavailableError, VedetteError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from vedette.api.health import HealthService
    from vedette.api.inference import InferenceService
    from vedette.api.preview import PreviewService
    from vedette.api.traffic import Traffic

    Endpoint = Callable[[Request], Awaitable[Response]]

# Nobody reads it; the status only shows in the door's own count.
CLIENT_GONE = 499


def build_app(
    inference: InferenceService, health: HealthService, preview: PreviewService, traffic: Traffic
) -> Starlette:
    """All routes over the services."""

    async def infer(request: Request) -> Response:
        answer = await _answered(_infer(inference, request))
        traffic.inferred(answer.status)
        return _response(answer)

    model = "/v2/models/{name}"
    version = model + "/versions/{version}"
    # Routes are tried in this order: what is asked most stands first.
    routes = [
        *(Route(prefix + "/infer", infer, methods=["POST"]) for prefix in (model, version)),
        Route("/v2", _get(lambda _: _now(inference.server_metadata()))),
        Route("/v2/health/live", _get(lambda _: _now(health.live()))),
        Route("/v2/health/ready", _get(lambda _: health.ready())),
        *(
            Route(prefix, _get(lambda r: inference.model_metadata(*_model_of(r))))
            for prefix in (model, version)
        ),
        *(
            Route(prefix + "/ready", _get(lambda r: inference.model_ready(*_model_of(r))))
            for prefix in (model, version)
        ),
        Route("/healthz", _get(lambda _: health.healthy())),
        Route("/readyz", _get(lambda _: health.ready())),
        Route("/metrics", _get(lambda _: health.metrics())),
        Route("/preview", _get(lambda _: _now(preview.page("")))),
        Route("/preview/state", _get(lambda _: preview.state())),
        Route("/preview/picture/{camera}", _get(lambda r: preview.picture(r.path_params["camera"]))),
        Route("/preview/{page}", _get(lambda r: _page(preview, r.path_params["page"]))),
        Route("/", _get(lambda _: _now(HttpAnswer(307, b"", headers=(("Location", "/preview"),))))),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _not_routed})


def _get(answer: Callable[[Request], Awaitable[HttpAnswer]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return _response(await _answered(answer(request)))

    return endpoint


async def _now(answer: HttpAnswer) -> HttpAnswer:
    """An answer that needs no waiting."""
    return answer


async def _page(preview: PreviewService, name: str) -> HttpAnswer:
    return preview.page(name)


async def _infer(inference: InferenceService, request: Request) -> HttpAnswer:
    call = HttpCall(request.headers, request.stream(), request.is_disconnected)
    return await inference.infer(*_model_of(request), call)


def _model_of(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.path_params.get("version", "")


async def _answered(answer: Awaitable[HttpAnswer]) -> HttpAnswer:
    """An answer in any case; what is no error of ours is left to the server, which logs it."""
    try:
        return await answer
    except RequestRefusedError as refusal:
        return refusal_answer(refusal)
    except UnavailableError as error:
        return error_answer(503, error.diagnostics(), retry_after_s=error.retry_after_s or 1.0)
    except VedetteError as error:
        return error_answer(500, error.diagnostics())
    except (ClientDisconnect, ClientGoneError):
        return error_answer(CLIENT_GONE, "the client went away")


def _response(answer: HttpAnswer) -> Response:
    return Response(answer.body, answer.status, dict(answer.headers), answer.content_type)


async def _not_routed(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    answer = error_answer(status, "there is no such path" if status == 404 else "this cannot be asked so")
    return Response(answer.body, status, {**(headers or {}), **dict(answer.headers)}, answer.content_type)
