"""A connection and a real Mosquitto in good times and bad."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING

import pytest
from tests.stubs.brokers import Iotcore, Mosquitto
from tests.stubs.mqtt_proxy import CONNACK, PUBACK, PUBLISH, Act, MqttProxy, Packet, Way, pass_all
from tests.stubs.mqtt_waiting import Connections, await_event, connected, deliver
from tests.stubs.waiting import until

from vedette.errors import BadInputError
from vedette.mqtt.packet_size import publish_bytes
from vedette.mqtt.port import Acknowledged, Arrived, Connected, Lost, Outgoing, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTEN = [Subscription("a/#")]


@pytest.fixture
def connections() -> Iterator[Connections]:
    with Connections() as made:
        yield made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker") as started:
        yield started


def test_a_broker_that_was_killed_is_found_again_and_hears_what_we_want(
    broker: Mosquitto, connections: Connections
) -> None:
    """Case 29: the broker lost all sessions, so a connection that trusted its own would be deaf."""
    connection = connections.to(broker.port, LISTEN)
    connected(connection)
    broker.kill()
    assert await_event(connection, Lost).kind == "closed"
    assert await_event(connection, Lost).kind == "refused"
    broker.start()
    again = await_event(connection, Connected)
    assert (again.number, again.session_present) == (2, False)
    connection.publish(Outgoing("a/b", b"heard"))
    assert await_event(connection, Arrived).payload == b"heard"
    health = connection.health()
    assert health.connected
    assert health.connects == 2
    assert health.losses >= 2
    assert health.thread_restarts == 0


def test_what_came_while_the_line_was_down_arrives_after_it(
    broker: Mosquitto, connections: Connections
) -> None:
    """The session is resumed within the process: a short cut loses no command."""
    sender = connections.to(broker.port)
    connected(sender)
    with MqttProxy(broker.port) as proxy:
        receiver = connections.to(proxy.port, LISTEN, client_id="box", retry_min_s=1.0)
        assert not connected(receiver).session_present
        proxy.close_connections()
        await_event(receiver, Lost)
        deliver(sender, Outgoing("a/b", b"meanwhile"))
        assert await_event(receiver, Connected).session_present
        assert await_event(receiver, Arrived).payload == b"meanwhile"


def test_a_new_process_begins_without_what_the_old_one_left(
    broker: Mosquitto, connections: Connections
) -> None:
    with MqttProxy(broker.port) as proxy:
        connected(connections.to(proxy.port, LISTEN, client_id="box"))
        proxy.rule = lambda packet: Act.CLOSE if packet.way is Way.TO_BROKER else Act.PASS
        proxy.close_connections()
    assert not connected(connections.to(broker.port, LISTEN, client_id="box")).session_present


def test_a_line_that_swallows_everything_is_found_and_replaced(
    broker: Mosquitto, connections: Connections
) -> None:
    """Half open: TCP sees nothing, only the ping without an answer does."""
    with MqttProxy(broker.port) as proxy:
        connection = connections.to(proxy.port, keepalive_s=1)
        connected(connection)
        proxy.rule = lambda _packet: Act.SWALLOW
        lost = await_event(connection, Lost)
        assert lost.kind == "silent"
        proxy.rule = pass_all
        assert await_event(connection, Connected).number == 2


def test_a_frozen_broker_is_silent(broker: Mosquitto, connections: Connections) -> None:
    connection = connections.to(broker.port, keepalive_s=1)
    connected(connection)
    broker.freeze()
    try:
        assert await_event(connection, Lost).kind == "silent"
        age_s = connection.health().broker_age_s
        assert age_s is None, "no connection, nothing heard"
    finally:
        broker.thaw()
    await_event(connection, Connected)


def test_a_broker_that_never_welcomes_is_given_up(broker: Mosquitto, connections: Connections) -> None:
    def no_welcome(packet: Packet) -> Act:
        return Act.DROP if packet.kind == CONNACK else Act.PASS

    with MqttProxy(broker.port, no_welcome) as proxy:
        connection = connections.to(proxy.port, connect_timeout_s=0.3)
        connection.start()
        lost = await_event(connection, Lost)
        assert (lost.kind, "CONNECT" in lost.reason) == ("timeout", True)


def test_what_was_not_acknowledged_is_not_sent_again_by_itself(
    broker: Mosquitto, connections: Connections
) -> None:
    """Case 29: the owner of a message decides, since it knows whether it is still true."""
    published: list[str] = []
    deaf = threading.Event()
    deaf.set()

    def rule(packet: Packet) -> Act:
        if packet.kind == PUBLISH and packet.way is Way.TO_BROKER:
            published.append(packet.topic)
        return Act.DROP if deaf.is_set() and packet.kind == PUBACK else Act.PASS

    with MqttProxy(broker.port, rule) as proxy:
        connection = connections.to(proxy.port, LISTEN)
        connected(connection)
        first = connection.publish(Outgoing("a/first", b""))
        assert first is not None
        await_event(connection, Arrived)
        proxy.close_connections()
        await_event(connection, Connected)
        deaf.clear()
        second = connection.publish(Outgoing("a/second", b""))
        assert second is not None
        assert await_event(connection, Acknowledged).token == second > first
    assert published == ["a/first", "a/second"]


def test_a_wrong_password_is_named_and_the_right_one_works(tmp_path: Path, connections: Connections) -> None:
    with Mosquitto(tmp_path / "broker", users={"box": "right"}) as broker:
        for password in ("wrong", ""):
            refused = connections.to(broker.port, username="box", password=password)
            refused.start()
            lost = await_event(refused, Lost)
            assert lost.kind == "auth"
            assert "password" in lost.reason
        connected(connections.to(broker.port, username="box", password="right"))  # noqa: S106 - a test's


def test_nothing_above_the_brokers_limit_is_sent(tmp_path: Path, connections: Connections) -> None:
    """Case 30: limit 12 KB, a batch of 40 KB; sent, it would end this connection and every one after it."""
    with Mosquitto(tmp_path / "broker", max_packet_bytes=12_000) as broker:
        connection = connections.to(broker.port, LISTEN)
        assert connected(connection).limits.max_packet_bytes == 12_000
        with pytest.raises(BadInputError, match="12000"):
            connection.publish(Outgoing("a/b", bytes(40_000)))
        largest = 12_000 - publish_bytes(Outgoing("a/b", bytes(11_000)), 5) + 11_000
        assert deliver(connection, Outgoing("a/b", bytes(largest))) == ""
        with pytest.raises(BadInputError):
            connection.publish(Outgoing("a/b", bytes(largest + 1)))
        assert connection.health().losses == 0


def test_what_is_above_our_limit_is_kept_away_by_the_broker(
    broker: Mosquitto, connections: Connections
) -> None:
    """10 MB for a box that takes 1 MiB: it never comes; exactly 1 MiB does, and so does what follows."""
    limit = 1 << 20
    connection = connections.to(broker.port, LISTEN, max_packet_bytes=limit)
    sender = connections.to(broker.port, max_packet_bytes=16 << 20)
    connected(connection)
    connected(sender)
    assert deliver(sender, Outgoing("a/b", bytes(10_000_000))) == ""
    whole = limit - publish_bytes(Outgoing("a/b", bytes(1_000_000)), 5) + 1_000_000
    assert deliver(sender, Outgoing("a/b", bytes(whole))) == ""
    assert deliver(sender, Outgoing("a/b", b"good")) == ""
    assert len(await_event(connection, Arrived).payload) == whole
    assert await_event(connection, Arrived, within_s=60.0).payload == b"good"


def test_a_broker_that_tells_no_limit_gets_nothing_above_ours(
    tmp_path: Path, connections: Connections
) -> None:
    """Case 30: rumqttd tells none, and hangs up on what is larger than it takes."""
    with Iotcore(tmp_path, max_payload_bytes=20_000) as broker:
        connection = connections.to(broker.port, max_packet_bytes=12_000)
        assert connected(connection).limits.max_packet_bytes == 12_000
        with pytest.raises(BadInputError, match="12000"):
            connection.publish(Outgoing("a/b", bytes(40_000)))
        assert deliver(connection, Outgoing("a/b", bytes(11_900))) == ""


def test_as_many_are_in_flight_as_the_broker_told(tmp_path: Path, connections: Connections) -> None:
    with Mosquitto(tmp_path / "broker", receive_maximum=5) as broker:
        connection = connections.to(broker.port)
        assert connected(connection).limits.receive_maximum == 5
        with MqttProxy(broker.port, lambda packet: Act.DROP if packet.kind == PUBACK else Act.PASS) as proxy:
            mute = connections.to(proxy.port)
            connected(mute)
            tokens = [mute.publish(Outgoing("a/b", b"")) for _ in range(7)]
            assert tokens == [1, 2, 3, 4, 5, None, None]
        for _ in range(50):
            deliver(connection, Outgoing("a/b", b""))


def test_a_flood_nobody_reads_is_dropped_and_counted_and_acknowledgements_are_not(
    broker: Mosquitto, connections: Connections
) -> None:
    flooded = connections.to(broker.port, LISTEN, queue_bytes=100_000)
    connected(flooded)
    for _ in range(20):
        until(lambda: flooded.publish(Outgoing("a/b", bytes(10_000))) is not None, "it is taken")
    until(lambda: flooded.health().dropped_arrivals == 11, "all of it came")
    events = [await_event(flooded, object) for _ in range(20 + 9)]
    assert sum(isinstance(event, Arrived) for event in events) == 9
    assert sum(isinstance(event, Acknowledged) for event in events) == 20


def test_a_will_is_made_anew_for_each_connection_and_published_when_we_vanish(
    broker: Mosquitto, connections: Connections
) -> None:
    """Case 31: it carries what tells this session from the one before."""
    watcher = connections.to(broker.port, [Subscription("status")])
    connected(watcher)
    made: list[int] = []

    def will() -> Outgoing:
        made.append(len(made) + 1)
        payload = json.dumps({"online": False, "session": made[-1]}).encode()
        return Outgoing("status", payload, retain=True, content_type="application/json")

    with MqttProxy(broker.port) as proxy:
        # With no session to keep the broker publishes at once, and not after the delay.
        box = connections.to(proxy.port, (), will, session_expiry_s=0)
        connected(box)
        for session in (1, 2):
            proxy.close_connections()
            arrived = await_event(watcher, Arrived)
            assert json.loads(arrived.payload) == {"online": False, "session": session}
            assert arrived.content_type == "application/json"
            await_event(box, Connected)
        assert box.stop()
        until(lambda: "Received DISCONNECT" in broker.log, "the broker hears our goodbye")
    assert watcher.next_event(0.3) is None, "after a stop in good order nobody is told that we vanished"


def test_a_quick_return_publishes_no_will(broker: Mosquitto, connections: Connections) -> None:
    """The will waits 30 s for us, so a flapping line is no news."""
    watcher = connections.to(broker.port, [Subscription("status")])
    connected(watcher)
    with MqttProxy(broker.port) as proxy:
        box = connections.to(proxy.port, (), lambda: Outgoing("status", b"gone"))
        connected(box)
        proxy.close_connections()
        await_event(box, Connected)
    assert watcher.next_event(0.3) is None


def test_a_unix_socket_leads_to_a_broker_too(tmp_path: Path, connections: Connections) -> None:
    path = tmp_path / "broker.sock"
    with Mosquitto(tmp_path / "broker", unix_socket=path):
        connection = connections.to(1, LISTEN, host="", unix_socket=str(path))
        connected(connection)
        connection.publish(Outgoing("a/b", b"by socket"))
        assert await_event(connection, Arrived).payload == b"by socket"


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_broker_of_the_old_version_is_found_out_and_used(
    tmp_path: Path, connections: Connections, size: int
) -> None:
    """A rumqttd with a listener for MQTT 3.1.1 only; properties stay behind, the message goes."""
    with Iotcore(tmp_path, protocol=4) as broker:
        connection = connections.to(broker.port, LISTEN)
        up = connected(connection)
        assert up.limits.protocol == 4
        assert deliver(connection, Outgoing("a/b", bytes(size), content_type="x/y", expiry_s=5)) == ""
        arrived = await_event(connection, Arrived)
        assert (len(arrived.payload), arrived.content_type) == (size, "")


def test_without_mosquitto_a_test_skips_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_arguments, **_options: None)
    with pytest.raises(pytest.skip.Exception, match="apt-get install mosquitto"):
        Mosquitto(tmp_path)
