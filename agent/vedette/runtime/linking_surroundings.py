"""What of the daemon its link is joined to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.messages import AgentStatus
    from vedette.clock import Clock
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.log import Log
    from vedette.runtime.status import StatusDesk
    from vedette.runtime.updating import Updates


class Surroundings(NamedTuple):
    """The daemon and what belongs to it; `complete` adds to a status what others than the daemon know."""

    daemon: Daemon
    desk: StatusDesk
    updates: Updates | None
    complete: Callable[[AgentStatus], AgentStatus]
    clock: Clock
    log: Log
