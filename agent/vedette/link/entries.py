"""What waits to be said, and how old it is. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec

from vedette.link.port import Keep

# What a row costs on the disk beside its payload, roughly.
ROW_BYTES = 200


class Kind(str, Enum):
    """What an entry is; its topic follows from it, so that a renamed device sends under its new name."""

    EVENT = "event"
    REPORT = "report"


class Moment(msgspec.Struct, frozen=True):
    """Now, by both clocks; `monotonic_s` counts from the boot named, `utc_s` is only as good as said."""

    boot_id: str
    monotonic_s: float
    utc_s: float = 0.0
    utc_trusted: bool = False


class Entry(msgspec.Struct, frozen=True):
    """One message in the outbox; `number` is its place in the order of arrival."""

    number: int
    event_id: str
    keep: Keep
    kind: Kind
    payload: bytes
    content_type: str
    kept_at: Moment

    @property
    def cost_bytes(self) -> int:
        """What it takes of the outbox."""
        return cost_bytes(self.payload)


def cost_bytes(payload: bytes) -> int:
    """What a payload takes of the outbox."""
    return len(payload) + ROW_BYTES


def age_s(kept_at: Moment, now: Moment) -> float:
    """The age that is certain: measured in the same boot, else no more than clocks prove (casebook 46).

    A wall clock proves something when it was trusted at both ends. Without that, an entry of an earlier boot
    is at least as old as this boot.
    """
    if kept_at.boot_id == now.boot_id:
        return max(0.0, now.monotonic_s - kept_at.monotonic_s)
    by_clock_s = now.utc_s - kept_at.utc_s if kept_at.utc_trusted and now.utc_trusted else 0.0
    return max(0.0, now.monotonic_s, by_clock_s)
