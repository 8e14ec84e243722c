"""What a client tells about its one connection. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vedette.mqtt.loss import LinkLostError
    from vedette.mqtt.port import Arrived, Limits


class Listener(Protocol):
    """What a connection tells; called on the thread that drives it, only to take a note."""

    def on_accepted(self, code: int, text: str, limits: Limits, *, session_present: bool) -> None:
        """CONNACK came; `code` 0 is welcome."""
        ...

    def on_granted(self, refusals: Sequence[str]) -> None:
        """SUBACK came; one text for each subscription, empty where it was granted."""
        ...

    def on_arrived(self, event: Arrived) -> None:
        """A message came."""
        ...

    def on_acknowledged(self, mid: int, error: str) -> None:
        """PUBACK came."""
        ...

    def on_ended(self, loss: LinkLostError) -> None:
        """The connection is over."""
        ...

    def on_too_large(self, size_bytes: int) -> None:
        """A packet larger than we allow was read around."""
        ...

    def on_fault(self, error: Exception) -> None:
        """A message or a note could not be understood; it is left out."""
        ...
