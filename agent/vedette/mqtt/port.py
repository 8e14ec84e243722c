"""The connection as its users see it: messages go in, events come out. Pure.

Nothing here calls back: what arrives waits in a queue that is bounded in bytes until `next_event` takes it,
so no user code ever runs on the network thread (casebook 32).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

CONNECTED_WITHIN_S = 30.0


class TlsOptions(msgspec.Struct, frozen=True):
    """Files of the connection's certificates; without `ca` the system's authorities are believed."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None


class Outgoing(msgspec.Struct, frozen=True):
    """A message to publish; `expiry_s` None is for ever. On MQTT 3.1.1 the properties stay behind."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False
    content_type: str = ""
    expiry_s: int | None = None
    response_topic: str = ""
    correlation: bytes = b""


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which broker, and how. `session_expiry_s` is what it keeps for us while we are away.

    `retry_max_s` caps the pause between two attempts; the pause is drawn anew from [0, cap], doubling, and
    counted from the end of the attempt (casebook 28). `queue_bytes` bounds what waits for `next_event`.
    """

    host: str
    port: int = 1883
    client_id: str = ""
    username: str = ""
    password: str = ""
    tls: TlsOptions | None = None
    keepalive_s: int = 30
    connect_timeout_s: float = 15.0
    session_expiry_s: int = 3600
    retry_min_s: float = 1.0
    retry_max_s: float = 120.0
    max_packet_bytes: int = 256 << 10
    receive_maximum: int = 20
    queue_bytes: int = 4 << 20
    unix_socket: str = ""


class Subscription(msgspec.Struct, frozen=True):
    """A filter that is asked for again in every connection, and its grant checked.

    `retain_as_published`: also what arrives while connected says whether its sender set the retain flag; on
    MQTT 3.1.1 only what the broker remembers from before the connection does.
    """

    filter: str
    qos: int = 1
    retain_as_published: bool = False


class Limits(msgspec.Struct, frozen=True):
    """What the broker allows in this connection."""

    protocol: int
    max_packet_bytes: int
    receive_maximum: int
    retain: bool = True
    shared_subscriptions: bool = True


class Connected(msgspec.Struct, frozen=True):
    """A connection is up and its subscriptions are granted; what was published before is not repeated."""

    limits: Limits
    session_present: bool
    number: int


class Refused(msgspec.Struct, frozen=True):
    """A subscription was not granted; the connection stays."""

    filter: str
    reason: str


class Lost(msgspec.Struct, frozen=True):
    """The connection, or the attempt at one, ended; the next one begins by itself in `retry_s`.

    `kind` is a stable word: refused, unreachable, timeout, auth, tls_expired, tls_not_yet_valid,
    tls_unknown_ca, tls_wrong_host, tls, packet_too_large, quota, kicked, silent, closed. Tokens that were not
    acknowledged are forgotten: publish those messages again.
    """

    kind: str
    reason: str
    retry_s: float


class Arrived(msgspec.Struct, frozen=True):
    """A message came. `retained`: it is the broker's memory, or was published to become that."""

    topic: str
    payload: bytes
    retained: bool
    qos: int
    response_topic: str = ""
    correlation: bytes = b""
    content_type: str = ""


class Acknowledged(msgspec.Struct, frozen=True):
    """The broker took over a message of QoS 1; `error` is its reason where it did not want it."""

    token: int
    error: str = ""


Event = Connected | Refused | Lost | Arrived | Acknowledged


class WillMaker(Protocol):
    """Makes the will of the next connection; called on the network thread, must not block or raise."""

    def __call__(self) -> Outgoing | None:
        """The message that the broker is to publish when we vanish; the delay is the connection's."""
        ...


class Connection(Protocol):
    """One broker, for ever; the only threads are the connection's own and the caller's."""

    def start(self) -> None:
        """Begin to connect, and to reconnect."""
        ...

    def stop(self, timeout_s: float = 1.0) -> bool:
        """Disconnect and end the thread, interrupting any wait; False when it did not end in time."""
        ...

    def publish(self, message: Outgoing) -> int | None:
        """Hand a message to the network; any thread.

        Returns:
            A token that `Acknowledged` will name (QoS 0: nothing will), or None when it cannot be taken now:
            not connected, or as many are unacknowledged as the broker allows.

        Raises:
            BadInputError: It is larger than the broker takes; it would only end the connection (casebook 30).
        """
        ...

    def next_event(self, timeout_s: float) -> Event | None:
        """What happened next, or None when nothing did in time; one thread."""
        ...

    def wake(self) -> None:
        """Let a waiting `next_event` return None now; any thread."""
        ...

    def health(self) -> Health:
        """How it stands; any thread."""
        ...


class Health(msgspec.Struct, frozen=True):
    """Counts since the start, and the age of the last sign of life of thread and broker; monotonic."""

    connected: bool
    thread_age_s: float
    broker_age_s: float | None
    connects: int
    losses: int
    last_loss: str
    dropped_arrivals: int
    too_large_arrivals: int
    thread_restarts: int
    handler_faults: int
