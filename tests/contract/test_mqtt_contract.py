"""What every `mqtt.port.Connection` owes its users, whatever broker is behind it.

A fake of the port belongs into `BENCHES`, so that it passes the same.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Protocol

import pytest
from tests.stubs.brokers import Iotcore, Mosquitto
from tests.stubs.fake_connection import FakeBroker
from tests.stubs.mqtt_waiting import await_event, connected, deliver

from vedette.errors import BadInputError
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import (
    Acknowledged,
    Arrived,
    BrokerOptions,
    Connection,
    Outgoing,
    Subscription,
    WillMaker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path


class Connect(Protocol):
    """Makes a connection to the bench's broker, not started; it is stopped at the end of the test."""

    def __call__(
        self, subscriptions: Sequence[Subscription] = (), will: WillMaker | None = None
    ) -> Connection: ...


@contextlib.contextmanager
def _paho(port: int) -> Iterator[Connect]:
    made: list[Connection] = []

    def connect(subscriptions: Sequence[Subscription] = (), will: WillMaker | None = None) -> Connection:
        # With no session to keep, the broker does not wait before it publishes a will.
        options = BrokerOptions(
            host="127.0.0.1", port=port, retry_min_s=0.05, retry_max_s=0.5, session_expiry_s=0
        )
        made.append(PahoConnection(options, subscriptions, will))
        return made[-1]

    yield connect
    for connection in made:
        connection.stop()


@contextlib.contextmanager
def _on_mosquitto(folder: Path) -> Iterator[Connect]:
    with Mosquitto(folder) as broker, _paho(broker.port) as connect:
        yield connect


@contextlib.contextmanager
def _on_iotcore(folder: Path) -> Iterator[Connect]:
    with Iotcore(folder) as broker, _paho(broker.port) as connect:
        yield connect


@contextlib.contextmanager
def _on_fake(_folder: Path) -> Iterator[Connect]:
    yield FakeBroker().connection


BENCHES: dict[str, Callable[[Path], AbstractContextManager[Connect]]] = {
    "paho-mosquitto": _on_mosquitto,
    "paho-iotcore": _on_iotcore,
    "fake": _on_fake,
}


@pytest.fixture(params=list(BENCHES))
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    with BENCHES[request.param](tmp_path) as made:
        yield made


def test_before_it_is_started_it_takes_nothing_and_tells_nothing(connect: Connect) -> None:
    connection = connect()
    assert connection.publish(Outgoing("a/b", b"")) is None
    assert connection.next_event(0.0) is None
    assert not connection.health().connected
    assert connection.stop()


def test_it_tells_that_it_is_up_and_what_the_broker_allows(connect: Connect) -> None:
    connection = connect([Subscription("a/#")])
    up = connected(connection)
    assert up.number == 1
    assert not up.session_present
    assert up.limits.receive_maximum > 0
    assert up.limits.max_packet_bytes > 1000
    health = connection.health()
    assert health.connected
    assert (health.connects, health.losses, health.thread_restarts) == (1, 0, 0)


def test_a_message_goes_with_all_that_it_says(connect: Connect) -> None:
    receiver, sender = connect([Subscription("a/+")]), connect()
    connected(receiver)
    connected(sender)
    sent = Outgoing(
        "a/b",
        bytes(range(256)),
        content_type="application/json",
        expiry_s=60,
        response_topic="c/d",
        correlation=b"\0\xff",
    )
    assert deliver(sender, sent) == ""
    arrived = await_event(receiver, Arrived)
    assert arrived == Arrived(
        "a/b",
        bytes(range(256)),
        retained=False,
        qos=1,
        response_topic="c/d",
        correlation=b"\0\xff",
        content_type="application/json",
    )


def test_an_empty_payload_is_a_message(connect: Connect) -> None:
    connection = connect([Subscription("a")])
    connected(connection)
    assert connection.publish(Outgoing("a", b"", qos=0)) is not None
    assert await_event(connection, Arrived).payload == b""


def test_tokens_are_acknowledged_once_each_and_qos_0_is_not(connect: Connect) -> None:
    connection = connect()
    connected(connection)
    tokens = []
    for number in range(10):
        token = connection.publish(Outgoing("a", b"x", qos=number % 2))
        assert token is not None
        tokens.append(token)
    answers = [await_event(connection, Acknowledged).token for _ in range(5)]
    assert answers == tokens[1::2]
    assert connection.next_event(0.2) is None


def test_messages_of_one_sender_come_in_order(connect: Connect) -> None:
    connection = connect([Subscription("a")])
    connected(connection)
    for number in range(50):
        while connection.publish(Outgoing("a", str(number).encode(), qos=0)) is None:
            pass
    assert [await_event(connection, Arrived).payload for _ in range(50)] == [
        str(number).encode() for number in range(50)
    ]


def test_what_the_broker_remembers_is_told_from_what_happens_now(connect: Connect) -> None:
    sender = connect()
    connected(sender)
    deliver(sender, Outgoing("a/state", b"kept", retain=True))
    receiver = connect([Subscription("a/state")])
    connected(receiver)
    assert await_event(receiver, Arrived).retained
    deliver(sender, Outgoing("a/state", b"now", retain=True))
    arrived = await_event(receiver, Arrived)
    assert (arrived.payload, arrived.retained) == (b"now", False)


def test_the_retain_flag_stays_where_that_was_asked_for(
    connect: Connect, request: pytest.FixtureRequest
) -> None:
    if "iotcore" in request.node.name:
        pytest.skip("iotcore does not know Retain As Published, which is the broker's part")
    receiver, sender = connect([Subscription("a/state", retain_as_published=True)]), connect()
    connected(receiver)
    connected(sender)
    for retain in (True, False):
        deliver(sender, Outgoing("a/state", b"now", retain=retain))
        assert await_event(receiver, Arrived).retained is retain


def test_a_shared_subscription_gives_each_message_to_one(connect: Connect) -> None:
    shared = [Subscription("$share/group/a/+")]
    receivers, sender = [connect(shared), connect(shared)], connect()
    for connection in (*receivers, sender):
        connected(connection)
    for number in range(10):
        deliver(sender, Outgoing(f"a/{number}", b""))
    received: list[str] = []
    deadline_s = time.monotonic() + 10.0
    while len(received) < 10 and time.monotonic() < deadline_s:
        for receiver in receivers:
            event = receiver.next_event(0.02)
            if isinstance(event, Arrived):
                received.append(event.topic)
    assert sorted(received) == [f"a/{number}" for number in range(10)]
    assert [receiver.next_event(0.1) for receiver in receivers] == [None, None]


def test_topics_that_cannot_be_are_refused_and_harm_nothing(connect: Connect) -> None:
    connection = connect()
    connected(connection)
    for topic in ("", "a/#", "+/a", "a\0b"):
        with pytest.raises(BadInputError):
            connection.publish(Outgoing(topic, b""))
    assert deliver(connection, Outgoing("a", b"good")) == ""


def test_a_wait_can_be_woken_from_another_thread(connect: Connect) -> None:
    connection = connect()
    connected(connection)
    timer = threading.Timer(0.05, connection.wake)
    timer.start()
    began_s = time.monotonic()
    assert connection.next_event(120.0) is None
    assert time.monotonic() - began_s < 60.0
    timer.join()


def test_messages_may_come_from_many_threads(connect: Connect) -> None:
    receiver, sender = connect([Subscription("a/+", qos=0)]), connect()
    connected(receiver)
    connected(sender)

    def send(name: int) -> None:
        for number in range(25):
            while sender.publish(Outgoing(f"a/{name}", str(number).encode(), qos=0)) is None:
                pass

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    came: dict[str, list[int]] = {}
    for _ in range(100):
        arrived = await_event(receiver, Arrived)
        came.setdefault(arrived.topic, []).append(int(arrived.payload))
    for thread in threads:
        thread.join()
    assert came == {f"a/{name}": list(range(25)) for name in range(4)}


def test_what_was_taken_before_the_stop_still_goes(connect: Connect) -> None:
    receiver, sender = connect([Subscription("a")]), connect()
    connected(receiver)
    connected(sender)
    assert sender.publish(Outgoing("a", b"goodbye")) is not None
    assert sender.stop()
    assert await_event(receiver, Arrived).payload == b"goodbye"
    assert sender.publish(Outgoing("a", b"late")) is None
    assert not sender.health().connected


def test_after_a_stop_in_good_order_there_is_no_will(connect: Connect) -> None:
    receiver = connect([Subscription("will")])
    connected(receiver)
    sender = connect((), lambda: Outgoing("will", b"gone"))
    connected(sender)
    assert sender.stop()
    assert receiver.next_event(0.5) is None
