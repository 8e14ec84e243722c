"""What the preview page shows: the daemon's own words, and what the door saw pass by."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, Any

from vedette.api.http_answer import HttpAnswer, json_answer
from vedette.api.latency_history import STAGES
from vedette.api.refusal import RequestRefusedError
from vedette.errors import VedetteError

if TYPE_CHECKING:
    from vedette.api.camera_views import CameraViews
    from vedette.api.inquiry import Inquiry
    from vedette.api.messages import AgentStatus, ModelDescription
    from vedette.api.traffic import Traffic
    from vedette.clock import Clock
    from vedette.wire.messages import Result

JPEG_TYPE = "image/jpeg"
SHOWN_ANSWERS = 5
PAGES = {
    "": ("preview.html", "text/html; charset=utf-8"),
    "preview.css": ("preview.css", "text/css; charset=utf-8"),
    "preview.js": ("preview.js", "text/javascript; charset=utf-8"),
    "plots.js": ("plots.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


class PreviewService:
    """The page, its pictures and its state; one event loop owns it."""

    def __init__(
        self,
        *,
        status: Inquiry[AgentStatus],
        description: Inquiry[ModelDescription],
        views: CameraViews,
        traffic: Traffic,
        clock: Clock,
    ) -> None:
        self._status = status
        self._description = description
        self._views = views
        self._traffic = traffic
        self._clock = clock

    def page(self, name: str) -> HttpAnswer:
        """A file of the page; nothing that is not in the table.

        Raises:
            RequestRefusedError: 404.
        """
        if name not in PAGES:
            raise RequestRefusedError(404, "there is no such page", cure="see /preview")
        file, content_type = PAGES[name]
        pages = resources.files("vedette.api") / "pages"
        return HttpAnswer(200, (pages / file).read_bytes(), content_type)

    async def picture(self, camera: str) -> HttpAnswer:
        """A JPEG of now; headers say which frame it is, and of which frame its answer is.

        Raises:
            RequestRefusedError: 404 or 503.
        """
        shown = await self._views.picture(camera)
        numbers = (("X-Frame-Seq", str(shown.seq)), ("X-Answer-Seq", str(shown.answer_seq)))
        return HttpAnswer(200, shown.jpeg, JPEG_TYPE, numbers)

    async def state(self) -> HttpAnswer:
        """Everything else that the page shows, in one; a part that cannot be had comes with its reason."""
        status, status_error = await _try(self._status)
        model, model_error = await _try(self._description)
        now_ns = self._clock.monotonic_ns()
        return json_answer(
            {
                "agent": status,
                "agent_error": status_error,
                "model": model,
                "model_error": model_error,
                "door": self._traffic.summary(now_ns),
                "pictures": self._views.names,
                "answers": {camera: _answer(result) for camera, result in self._views.newest().items()},
                "stages": STAGES,
                "latency": self._views.latencies.series(now_ns),
            }
        )


async def _try(inquiry: Inquiry[Any]) -> tuple[object, str]:
    try:
        return await inquiry.get(), ""
    except VedetteError as error:
        return None, error.cause


def _answer(result: Result) -> dict[str, object]:
    """The last answer in short."""
    found = result.top or result.detections or ()
    short = [{"label": entry.label, "score": entry.score} for entry in found[:SHOWN_ANSWERS]]
    return {
        "seq": result.seq,
        "task": result.task,
        "count": len(found),
        "found": short,
        "failed": f"{result.failed.cause}: {result.failed.detail}" if result.failed else "",
        "total_ms": result.latency_ms.total if result.latency_ms else None,
    }
