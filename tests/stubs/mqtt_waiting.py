"""Connections of tests: making them with short limits, and waiting for what they tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

from vedette.mqtt.network_thread import Supervision
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import Acknowledged, BrokerOptions, Connected

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from vedette.mqtt.port import Connection, Event, Outgoing, Subscription, WillMaker

WITHIN_S = 60.0
QUICK = Supervision(turn_s=0.1, deaf_after_s=0.5, look_every_s=0.1, proven_s=60.0)
_QUICK_OPTIONS = {"host": "127.0.0.1", "retry_min_s": 0.05, "retry_max_s": 0.3, "connect_timeout_s": 5.0}

_Wanted = TypeVar("_Wanted")


def await_event(connection: Connection, wanted: type[_Wanted], *, within_s: float = WITHIN_S) -> _Wanted:
    """The next event of a kind, past all others; fails the test when none comes in time."""
    deadline_s = time.monotonic() + within_s
    passed: list[Event] = []
    while (left_s := deadline_s - time.monotonic()) > 0:
        event = connection.next_event(left_s)
        if isinstance(event, wanted):
            return event
        if event is not None:
            passed.append(event)
    raise AssertionError(f"no {wanted.__name__} within {within_s:g} s, but {passed}; {connection.health()}")


def connected(connection: Connection, *, within_s: float = WITHIN_S) -> Connected:
    """Start it, and wait until it is up."""
    connection.start()
    return await_event(connection, Connected, within_s=within_s)


def deliver(connection: Connection, message: Outgoing) -> str:
    """Publish at QoS 1, and wait for the broker's answer: its reason against it, empty when it has none."""
    token = connection.publish(message)
    assert token is not None, "the connection takes nothing now"
    while (answer := await_event(connection, Acknowledged)).token != token:
        pass
    return answer.error


class Connections:
    """Makes connections to brokers on loopback with short limits, and stops them all in the end."""

    def __init__(self) -> None:
        self._made: list[PahoConnection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in self._made:
            connection.stop()

    def to(
        self,
        port: int,
        subscriptions: Sequence[Subscription] = (),
        will: WillMaker | None = None,
        *,
        supervision: Supervision = QUICK,
        **options: Any,  # noqa: ANN401 - those of BrokerOptions, which checks them
    ) -> PahoConnection:
        """A connection, not started."""
        chosen = BrokerOptions(**{**_QUICK_OPTIONS, "port": port, **options})
        self._made.append(PahoConnection(chosen, subscriptions, will, supervision=supervision))
        return self._made[-1]
