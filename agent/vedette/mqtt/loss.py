"""Why a connection ended: the stable kinds of `port.Lost`. Pure.

Reason codes: MQTT Version 5.0 (OASIS, 2019), section 2.4.
"""

from __future__ import annotations

from vedette.errors import UnavailableError

UNSUPPORTED_PROTOCOL = 0x84
TAKEN_OVER = 0x8E
_TAKEN_OVER_CURE = (
    "another client came with the same client id: give each box its own `device.id`, or `mqtt.client_id`"
)
_KINDS = {
    0x82: "closed",  # protocol error
    0x84: "refused",  # unsupported protocol version
    0x85: "refused",  # client identifier not valid
    0x86: "auth",  # bad user name or password
    0x87: "auth",  # not authorised
    0x88: "refused",  # server unavailable
    0x89: "refused",  # server busy
    0x8A: "auth",  # banned
    0x8B: "closed",  # server shutting down
    0x8C: "auth",  # bad authentication method
    0x8D: "silent",  # keep alive timeout: the broker has not heard us
    0x8E: "kicked",  # session taken over
    0x93: "quota",  # receive maximum exceeded
    0x95: "packet_too_large",
    0x96: "quota",  # message rate too high
    0x97: "quota",  # quota exceeded
    0x98: "kicked",  # administrative action
    0x9F: "quota",  # connection rate exceeded
    0xA0: "quota",  # maximum connect time
}
_CURES = {
    "auth": "check user name, password and certificate of this box at the broker",
    "kicked": "see who ended the session at the broker",
    "packet_too_large": "raise the broker's limit, or send less at once",
}


class LinkLostError(UnavailableError):
    """The connection, or the attempt at one, ended; `kind` is a word of `port.Lost`."""

    def __init__(self, kind: str, cause: str, *, cure: str | None = None) -> None:
        super().__init__(cause, cure=cure or _CURES.get(kind))
        self.kind = kind

    def reason(self) -> str:
        """Cause and cure in one line."""
        return self.cause if self.cure is None else f"{self.cause} ({self.cure})"


def refused_connect(code: int, text: str) -> LinkLostError:
    """The broker answered CONNECT with a refusal."""
    return LinkLostError(
        _KINDS.get(code, "refused"), f"the broker refuses the connection: {text} (0x{code:02x})"
    )


def disconnected(code: int, text: str) -> LinkLostError:
    """The broker said goodbye, and why."""
    return LinkLostError(
        _KINDS.get(code, "closed"),
        f"the broker ended the connection: {text} (0x{code:02x})",
        cure=_TAKEN_OVER_CURE if code == TAKEN_OVER else None,
    )
