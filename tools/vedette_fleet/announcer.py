"""Keeps the retained announcement of a repository up to date, while its folder changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.errors import BadInputError
from vedette.mqtt.port import Acknowledged, Connected, Lost, Outgoing
from vedette.wire.plane import JSON_TYPE
from vedette.wire.topics import announcements
from vedette_fleet.announcement_files import read_announcement

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.clock import Clock
    from vedette.mqtt.port import Connection, Event
    from vedette.wire.plane import Announcement

LOOK_EVERY_NS = 1_000_000_000
EXPIRY_S = 7 * 86_400
# Long before the broker forgets it, and after any other server's older one.
REPEAT_NS = 3600 * 1_000_000_000


class Announcer:
    """One repository on one channel; `said` is what the broker has confirmed in this connection.

    Whoever reads the connection's events gives them to `take`, and calls `work` in between.
    """

    def __init__(
        self,
        connection: Connection,
        folder: Path,
        *,
        clock: Clock,
        log: Callable[[str], None],
        channel: str,
        spread_s: float,
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._clock = clock
        self._log = log
        self._topic = announcements(channel)
        self._spread_s = spread_s
        self._connected = False
        self._next_look_ns = 0
        self._published_ns = 0
        self._pending: tuple[int, Announcement] | None = None
        self._fault = ""
        self.said: Announcement | None = None
        self.refusal = ""

    def take(self, event: Event) -> None:
        """Something happened on the connection."""
        if isinstance(event, Connected):
            self._connected = True
            if not event.limits.retain:
                self._log("the broker keeps no messages: devices that come later hear nothing, and poll")
            self._forget()
        elif isinstance(event, Lost):
            self._connected = False
            self._forget()
        elif isinstance(event, Acknowledged) and self._pending and event.token == self._pending[0]:
            self._confirm(event.error, self._pending[1])

    def work(self) -> float:
        """Look at the folder when it is time, and announce what changed; returns the seconds until then."""
        now_ns = self._clock.monotonic_ns()
        if self._connected and now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_EVERY_NS
            self._look(now_ns)
        return max(0.0, (self._next_look_ns - now_ns) / 1e9) if self._connected else LOOK_EVERY_NS / 1e9

    def _look(self, now_ns: int) -> None:
        try:
            announcement = read_announcement(self._folder, spread_s=self._spread_s)
        except BadInputError as error:  # half copied, say; the next look may find it whole
            if error.cause != self._fault:
                self._fault = error.cause
                self._log(f"nothing to announce: {error.cause}")
            return
        self._fault = ""
        if self._pending is None and (announcement != self.said or now_ns - self._published_ns >= REPEAT_NS):
            self._publish(announcement, now_ns)

    def _publish(self, announcement: Announcement, now_ns: int) -> None:
        message = Outgoing(
            self._topic,
            msgspec.json.encode(announcement),
            retain=True,
            content_type=JSON_TYPE,
            expiry_s=EXPIRY_S,
        )
        token = self._connection.publish(message)
        if token is not None:
            self._pending = (token, announcement)
            self._published_ns = now_ns

    def _confirm(self, error: str, announcement: Announcement) -> None:
        self._pending = None
        self.refusal = error
        if error:
            self._log(f"the broker refuses the announcement: {error}")
        elif announcement != self.said:
            self._log(
                f"announced timestamp {announcement.timestamp_version}, "
                f"rollouts {announcement.rollouts_version}"
            )
        self.said = announcement  # what was refused is not tried again before it changes, or an hour later

    def _forget(self) -> None:
        self._pending = None
        self.said = None
        self._next_look_ns = 0
