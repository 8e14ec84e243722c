"""The link as the rest of the daemon sees it. Pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from vedette.wire.messages import Result
    from vedette.wire.plane import Command, CommandReply, Reported


class Keep(str, Enum):
    """What becomes of a message when there is no room: the stable classes of the outbox."""

    ALWAYS = "always"  # update state: never dropped; a full outbox refuses it, and its update waits
    NEWEST = "newest"  # telemetry: the oldest go first, and are counted


class Commands(Protocol):
    """Carries commands out; called on the link's command thread, one at a time."""

    def carry_out(self, name: str, command: Command) -> CommandReply:
        """Do it; idempotent by itself where it can be (a pause of a paused camera is done).

        Raises:
            VedetteError: Why it cannot be done; the reply says so.
        """
        ...


class StateSource(Protocol):
    """Says how things stand now; called on the link's thread, must return at once."""

    def reported(self, seq: int) -> Reported:
        """The state of updates."""
        ...


class Link(Protocol):
    """What the daemon hands over; any thread, nothing blocks but the disk."""

    def event(self, kind: str, data: dict[str, object], *, keep: Keep, event_id: str = "") -> str:
        """Keep an event durably and send it when it can be; the same `event_id` again is the same event.

        Returns:
            Its id.

        Raises:
            StorageError: No room for one that may not be dropped, or the disk refuses.
        """
        ...

    def telemetry(self, payload: bytes, content_type: str) -> None:
        """Keep a report, dropping the oldest ones when there is no room.

        Raises:
            StorageError: The disk refuses.
        """
        ...

    def result(self, result: Result) -> None:
        """Offer an answer; whether it is sent is up to the configured rate. Held in memory, bounded."""
        ...

    def state_changed(self) -> None:
        """`StateSource.reported` would say something new."""
        ...

    def status(self) -> LinkStatus:
        """How it stands."""
        ...


class LinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """For `status`, telemetry and metrics; counts are since the start, but `waiting_*` are of now.

    `faults` counts what went wrong or was lost and stands nowhere else, by stable words.
    """

    connected: bool
    broker: str
    protocol: int
    since_s: float
    last_loss: str
    connects: int
    waiting_events: int
    waiting_reports: int
    waiting_bytes: int
    dropped_reports: int
    dropped_results: int
    set_aside: int
    bad_messages: dict[str, int]
    commands: dict[str, int]
    faults: dict[str, int] = {}
