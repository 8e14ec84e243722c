"""Waiting for what a connection tells."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from vedette.mqtt.port import Acknowledged, Connected

if TYPE_CHECKING:
    from vedette.mqtt.port import Connection, Event, Outgoing

WITHIN_S = 10.0

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
