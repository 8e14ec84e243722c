"""Whoever runs the model, as the services see it: processes of this box, or replicas on several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vedette.api.messages import ModelDescription
    from vedette.api.request_frames import RequestFrame
    from vedette_cloud.messages import Answer


class ModelPool(Protocol):
    """One event loop owns it."""

    def description(self) -> ModelDescription:
        """What the model is; its `ready` and `reason` say how things stand just now."""
        ...

    async def ask(
        self, frame: RequestFrame, *, captured_ns: int, deadline_ns: int, ranking: bool = False
    ) -> Answer:
        """Have a frame answered.

        Args:
            frame: Its format and bytes.
            captured_ns: CLOCK_MONOTONIC when the request's last byte was here.
            deadline_ns: When to give up, on the same clock.
            ranking: All classes are wanted, not only the first few.

        Raises:
            RequestRefusedError: 503: no room, or the process died with it; 504: no answer in time.
        """
        ...
