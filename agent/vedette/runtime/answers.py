"""What the daemon answers on its control socket. Called on the `control` thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.api.messages import (
    AbortRequest,
    CheckRequest,
    DescribeRequest,
    Heard,
    ImportRequest,
    MetricsRequest,
    StatusRequest,
)
from vedette.errors import ConfigError
from vedette.runtime.description import describe_model
from vedette.runtime.figures import Figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.messages import AgentStatus, Request
    from vedette.clock import Clock
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.status import StatusDesk
    from vedette.runtime.updating import Updates


class Answers:
    """One method for each request; `updates` is None where none are configured."""

    def __init__(
        self,
        clock: Clock,
        daemon: Daemon,
        desk: StatusDesk,
        updates: Updates | None,
        complete: Callable[[AgentStatus], AgentStatus],
    ) -> None:
        """Prepare to answer; `complete` adds to a status what others than the daemon know."""
        self._daemon = daemon
        self._desk = desk
        self._updates = updates
        self._complete = complete
        self._figures = Figures(clock, daemon, desk, complete)

    def answer(self, request: Request) -> bytes:
        """The JSON body of the reply.

        Raises:
            VedetteError: Why it cannot be had.
        """
        if isinstance(request, StatusRequest):
            return msgspec.json.encode(self._complete(self._desk.ask(self._daemon)))
        if isinstance(request, DescribeRequest):
            return msgspec.json.encode(self._desk.look(self._daemon, describe_model))
        if isinstance(request, MetricsRequest):
            return msgspec.json.encode(self._figures.snapshot())
        return msgspec.json.encode(Heard(self._change(request)))

    def _change(self, request: CheckRequest | AbortRequest | ImportRequest) -> str:
        updates = self._updates
        if updates is None:
            raise ConfigError(
                "this agent runs without an `update` section",
                cure="add one to its configuration; see README.md",
            )
        if isinstance(request, CheckRequest):
            return updates.check()
        if isinstance(request, AbortRequest):
            return updates.abort()
        return updates.import_folder(request.folder)
