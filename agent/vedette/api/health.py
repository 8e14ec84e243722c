"""Liveness, readiness and figures, for whoever supervises the box."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.api.http_answer import HttpAnswer, json_answer
from vedette.telemetry.prometheus import CONTENT_TYPE

if TYPE_CHECKING:
    from vedette.api.inference import InferenceService
    from vedette.api.inquiry import Inquiry
    from vedette.api.messages import AgentStatus


class HealthService:
    """Answers from what the daemon says; nothing here is remembered for longer than an inquiry does."""

    def __init__(
        self,
        *,
        status: Inquiry[AgentStatus],
        inference: InferenceService,
        figures: Inquiry[bytes],
    ) -> None:
        self._status = status
        self._inference = inference
        self._figures = figures

    def live(self) -> HttpAnswer:
        """This process answers."""
        return json_answer({"live": True})

    async def healthy(self) -> HttpAnswer:
        """The daemon answers.

        Raises:
            VedetteError: It does not.
        """
        status = await self._status.get()
        return json_answer({"status": "ok", "agent": status.agent, "uptime_s": round(status.uptime_s, 1)})

    async def ready(self) -> HttpAnswer:
        """A model is loaded, has answered its golden inputs, and answers frames.

        Raises:
            RequestRefusedError: 503 with the reason.
        """
        described, model = await self._inference.serving()
        effective = None if described.engine is None else described.engine.effective
        return json_answer(
            {"ready": True, "model": model.name, "version": model.version, "accelerator": effective}
        )

    async def metrics(self) -> HttpAnswer:
        """Everything that is counted, as Prometheus reads it.

        Raises:
            VedetteError: The daemon gives no figures.
        """
        return HttpAnswer(200, await self._figures.get(), CONTENT_TYPE)
