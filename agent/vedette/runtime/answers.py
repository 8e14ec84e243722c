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
from vedette.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    from vedette.api.messages import Request
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.status import StatusDesk
    from vedette.runtime.updating import Updates


class Answers:
    """One method for each request; `updates` is None where none are configured."""

    def __init__(self, daemon: Daemon, desk: StatusDesk, updates: Updates | None) -> None:
        self._daemon = daemon
        self._desk = desk
        self._updates = updates

    def answer(self, request: Request) -> bytes:
        """The JSON body of the reply.

        Raises:
            VedetteError: Why it cannot be had.
        """
        if isinstance(request, StatusRequest):
            status = self._desk.ask(self._daemon)
            return msgspec.json.encode(status if self._updates is None else self._updates.complete(status))
        if isinstance(request, (DescribeRequest, MetricsRequest)):
            raise UnavailableError("this agent does not describe its model yet")
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
