"""Makes events and puts them into the outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.errors import InternalError
from vedette.wire.plane import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vedette.link.entries import Moment
    from vedette.link.outbox import Outbox
    from vedette.link.port import Keep


class EventWriter:
    """Any thread."""

    def __init__(self, outbox: Outbox, now: Callable[[], Moment]) -> None:
        self._outbox = outbox
        self._now = now

    def write(self, kind: str, data: Mapping[str, object], keep: Keep, event_id: str = "") -> str:
        """Keep an event; its id.

        Raises:
            InternalError: `data` is nothing that JSON has.
            StorageError: `Outbox.put_event` says when.
        """
        now = self._now()

        def compose(identity: str, lost: int) -> bytes:
            event = Event(
                id=identity,
                kind=kind,
                boot_id=now.boot_id,
                utc_s=round(now.utc_s, 3),
                monotonic_s=round(now.monotonic_s, 6),
                data=dict(data),
                lost=lost,
            )
            try:
                return msgspec.json.encode(event)
            except (TypeError, ValueError, RecursionError) as error:
                raise InternalError(f"the event {kind} cannot be written: {error}") from error

        return self._outbox.put_event(compose, keep, event_id)
