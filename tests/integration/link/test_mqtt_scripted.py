"""What a broker of a few lines does to a connection: refusals, garbage, hanging up, silence."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.mqtt_scripted import (
    UNSUPPORTED_PROTOCOL_3_1_1,
    WELCOME_3_1_1,
    WELCOME_5,
    Peer,
    ScriptedBroker,
    publish,
)
from tests.stubs.mqtt_waiting import Connections, await_event, connected, deliver
from tests.stubs.processes import open_descriptors
from tests.stubs.waiting import until

from vedette.mqtt.port import Arrived, Connected, Lost, Outgoing, Refused, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LISTEN = [Subscription("a/#")]
GOOD = publish(b"a/good", b"good")
MIB = 1 << 20


@pytest.fixture
def connections() -> Iterator[Connections]:
    with Connections() as made:
        yield made


def _sends(*packets: bytes) -> Callable[[Peer], None]:
    """A part that welcomes, grants, sends packets and then listens."""

    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)
        peer.grant()
        for packet in packets:
            peer.send(packet)
        peer.until_gone()

    return part


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(publish(b"a/\xff\xfe", b"x"), id="a topic that is not UTF-8"),
        pytest.param(publish(b"a/\xed\xa0\x80", b"x", qos=1), id="half a surrogate, to be acknowledged"),
    ],
)
def test_a_topic_that_is_no_text_is_left_out_and_the_next_message_is_handled(
    connections: Connections, bad: bytes
) -> None:
    """Case 32: the next good message within a second, on the same connection."""
    with ScriptedBroker(_sends(bad, GOOD)) as broker:
        connection = connections.to(broker.port, LISTEN)
        connected(connection)
        assert await_event(connection, Arrived, within_s=60.0).payload == b"good"
        health = connection.health()
        assert (health.dropped_arrivals, health.losses, health.thread_restarts) == (1, 0, 0)


def test_a_payload_is_bytes_whatever_they_are(connections: Connections) -> None:
    with ScriptedBroker(_sends(publish(b"a/b", b"\xff\xfe{\0"), GOOD)) as broker:
        connection = connections.to(broker.port, LISTEN)
        connected(connection)
        assert await_event(connection, Arrived).payload == b"\xff\xfe{\0"
        assert await_event(connection, Arrived).payload == b"good"


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(publish(b"a", b"", properties=b"\x7f\0\0"), id="an unknown property"),
        pytest.param(publish(b"a", b"", properties=b"\x02"), id="a property cut short"),
        pytest.param(b"\x30\x01\0", id="a PUBLISH of one byte"),
        pytest.param(b"\x32\x03\0\x01a", id="QoS 1 without an identifier"),
        pytest.param(b"\x36\x05\0\x01a\0\x01", id="QoS 3"),
        pytest.param(b"\x40\x01\0", id="half a PUBACK"),
        pytest.param(b"\x90\x02\0\x09", id="a SUBACK nobody waits for"),
        pytest.param(b"\x30\xff\xff\xff\xff\xff", id="a length without an end"),
        pytest.param(b"\xf0\x7f" + bytes(127), id="a packet of no kind"),
        pytest.param(b"\xe0\x02\x97\x7f", id="a DISCONNECT with half a property"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
def test_garbage_costs_one_connection_at_most(connections: Connections, garbage: bytes) -> None:
    """Case 32: whatever comes, the thread lives, and the next good message is handled."""

    def part(peer: Peer) -> None:
        _sends(*([] if peer.number else [garbage]), GOOD)(peer)

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port, LISTEN, connect_timeout_s=1.0, keepalive_s=1)
        connected(connection)
        assert await_event(connection, Arrived).payload == b"good"
        assert connection.health().thread_restarts == 0


@pytest.mark.parametrize("qos", [0, 1])
def test_a_packet_larger_than_we_allow_is_read_around(connections: Connections, qos: int) -> None:
    """A broker of the old version knows no limit; 10 MB are thrown away as they come, and acknowledged.

    Else it would send them again in every connection to come.
    """
    acknowledged: list[bytes] = []
    bad = publish(b"a/vast", bytes(10_000_000), qos=qos, mid=77, properties=None)

    def part(peer: Peer) -> None:
        if peer.expect(1)[8] == 5:
            peer.send(UNSUPPORTED_PROTOCOL_3_1_1)
            return
        peer.send(WELCOME_3_1_1)
        peer.grant_3_1_1()
        peer.send(bad)
        if qos:
            acknowledged.append(peer.expect(4))
        peer.send(publish(b"a/good", bytes(MIB - 100), properties=None))
        peer.until_gone()

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port, LISTEN, max_packet_bytes=MIB)
        assert connected(connection).limits.protocol == 4
        assert len(await_event(connection, Arrived).payload) == MIB - 100
        health = connection.health()
        assert (health.too_large_arrivals, health.dropped_arrivals) == (1, 0)
        assert acknowledged == [bytes([0x40, 2, 0, 77])] * qos
        # The refusal of MQTT 5 is the only loss.
        assert health.losses == 1


def test_a_broker_that_hangs_up_after_connect_is_tried_with_both_versions(connections: Connections) -> None:
    levels: list[int] = []

    def part(peer: Peer) -> None:
        levels.append(peer.expect(1)[8])

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port)
        connection.start()
        assert await_event(connection, Lost).kind == "closed"
        until(lambda: len(levels) >= 6, "six attempts")
    assert levels[:6] == [5, 5, 4, 5, 5, 4]


def test_a_broker_that_knows_only_the_old_version_is_remembered(connections: Connections) -> None:
    levels: list[int] = []

    def part(peer: Peer) -> None:
        levels.append(peer.expect(1)[8])
        peer.send(UNSUPPORTED_PROTOCOL_3_1_1 if levels[-1] == 5 else WELCOME_3_1_1)

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port)
        connection.start()
        lost = await_event(connection, Lost)
        assert (lost.kind, "protocol version" in lost.reason) == ("refused", True)
        assert await_event(connection, Connected).limits.protocol == 4
        until(lambda: len(levels) >= 4, "it connects again")
    assert levels[:4] == [5, 4, 4, 4]


def test_a_subscription_that_was_not_granted_is_told(connections: Connections) -> None:
    """Case 29: a box that asks and does not look at the answer is deaf without knowing it."""

    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)
        subscribe = peer.expect(8)
        peer.send(bytes([0x90, 6]) + subscribe[2:4] + bytes([0, 0x87, 1, 0x8F]))
        peer.until_gone()

    with ScriptedBroker(part) as broker:
        wanted = [Subscription(name) for name in ("secret", "mine", "odd")]
        connection = connections.to(broker.port, wanted)
        connected(connection)
        refusals = [await_event(connection, Refused) for _ in range(2)]
        assert refusals == [Refused("secret", "Not authorized"), Refused("odd", "Topic filter invalid")]
        assert connection.health().connected


def test_what_the_broker_lacks_is_not_asked_of_it(connections: Connections) -> None:
    """No shared subscriptions, no retained messages: asked all the same, it would end the connection."""
    flags: list[int] = []

    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(bytes([0x20, 7, 0, 0, 4, 0x2A, 0, 0x25, 0]))
        subscribe = peer.expect(8)
        assert b"$share" not in subscribe
        peer.send(bytes([0x90, 4]) + subscribe[2:4] + bytes([0, 1]))
        flags.append(peer.expect(3)[0])
        peer.until_gone()

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port, [*LISTEN, Subscription("$share/g/b")])
        limits = connected(connection).limits
        assert (limits.retain, limits.shared_subscriptions) == (False, False)
        assert await_event(connection, Refused).filter == "$share/g/b"
        connection.publish(Outgoing("a", b"", qos=0, retain=True))
        until(lambda: flags == [0x30], "the message without the flag")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (0x8B, "closed"),
        (0x8D, "silent"),
        (0x8E, "kicked"),
        (0x95, "packet_too_large"),
        (0x97, "quota"),
        (0x98, "kicked"),
    ],
)
def test_a_goodbye_says_why(connections: Connections, code: int, kind: str) -> None:
    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)
        peer.send(bytes([0xE0, 2, code, 0]))

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port)
        connected(connection)
        lost = await_event(connection, Lost)
        assert (lost.kind, f"0x{code:02x}" in lost.reason) == (kind, True)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(0x85, "refused"), (0x86, "auth"), (0x87, "auth"), (0x88, "refused"), (0x97, "quota"), (0x9F, "quota")],
)
def test_a_refusal_says_why(connections: Connections, code: int, kind: str) -> None:
    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(bytes([0x20, 3, 0, code, 0]))

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port)
        connection.start()
        lost = await_event(connection, Lost)
        assert (lost.kind, f"0x{code:02x}" in lost.reason) == (kind, True)
        assert not connection.health().connected


def test_a_full_quota_is_an_answer_to_one_message(connections: Connections) -> None:
    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)
        message = peer.expect(3)
        peer.send(bytes([0x40, 3]) + message[5:7] + bytes([0x97]))
        message = peer.expect(3)
        peer.send(bytes([0x40, 2]) + message[5:7])
        peer.until_gone()

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port)
        connected(connection)
        assert deliver(connection, Outgoing("a", b"")) == "Quota exceeded"
        assert deliver(connection, Outgoing("a", b"")) == ""


def test_an_acknowledgement_of_nothing_is_none(connections: Connections) -> None:
    with ScriptedBroker(_sends(bytes([0x40, 2, 0, 99]), GOOD)) as broker:
        connection = connections.to(broker.port, LISTEN)
        connected(connection)
        assert isinstance(connection.next_event(5.0), Arrived)


def test_a_broker_that_never_answers_subscribe_is_given_up(connections: Connections) -> None:
    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)
        peer.until_gone()

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port, LISTEN, connect_timeout_s=0.3)
        connection.start()
        lost = await_event(connection, Lost)
        assert (lost.kind, "SUBSCRIBE" in lost.reason) == ("timeout", True)
        assert connection.publish(Outgoing("a", b"")) is None


def test_what_arrives_before_the_grant_waits_for_it(connections: Connections) -> None:
    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)
        subscribe = peer.expect(8)
        peer.send(GOOD)
        peer.send(bytes([0x90, 4]) + subscribe[2:4] + bytes([0, 1]))
        peer.until_gone()

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port, LISTEN)
        connection.start()
        assert [type(connection.next_event(5.0)) for _ in range(2)] == [Connected, Arrived]


def test_a_broker_that_flaps_is_not_hammered(connections: Connections) -> None:
    """It welcomes and hangs up at once; the pauses grow all the same, since no connection proved good."""

    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port, retry_min_s=0.1, retry_max_s=60.0)
        connection.start()
        assert await_event(connection, Connected).number == 1
        end_s = time.monotonic() + 1.2
        while time.monotonic() < end_s:
            connection.next_event(0.1)
        assert 1 < broker.connections < 25


@pytest.mark.parametrize(
    ("host", "port", "kind"), [("127.0.0.1", 1, "refused"), ("a..b", 1883, "unreachable")]
)
def test_an_address_without_a_broker_is_named(
    connections: Connections, host: str, port: int, kind: str
) -> None:
    connection = connections.to(port, host=host)
    connection.start()
    lost = await_event(connection, Lost)
    assert lost.kind == kind
    assert f"{host}:{port}" in lost.reason


def test_a_connect_that_hangs_ends_in_time_and_a_stop_ends_it_at_once(connections: Connections) -> None:
    """Case 28: nobody answers the handshake of TCP; a stop does not wait for that."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.socket() as one, socket.socket() as two:
            for taken in (one, two):
                taken.settimeout(0.0)
                taken.connect_ex(full.getsockname())
            port = full.getsockname()[1]
            hanging = connections.to(port, connect_timeout_s=0.3)
            hanging.start()
            assert await_event(hanging, Lost).kind == "timeout"
            patient = connections.to(port, connect_timeout_s=60.0)
            patient.start()
            assert patient.next_event(0.2) is None
            began_s = time.monotonic()
            assert patient.stop(60.0)
            assert time.monotonic() - began_s < 20.0


def test_a_stop_interrupts_the_pause(connections: Connections) -> None:
    """Case 28."""
    connection = connections.to(1, retry_min_s=1000.0, retry_max_s=1000.0)
    connection.start()
    assert await_event(connection, Lost).retry_s > 0
    began_s = time.monotonic()
    assert connection.stop(60.0)
    assert time.monotonic() - began_s < 20.0


def test_many_connections_leave_no_descriptor_behind(connections: Connections) -> None:
    def part(peer: Peer) -> None:
        peer.expect(1)
        if peer.number % 2:
            peer.send(WELCOME_5)

    with ScriptedBroker(part) as broker:
        connection = connections.to(broker.port, retry_min_s=0.001, retry_max_s=0.002)
        connection.start()
        until(lambda: broker.connections > 10, "the first connections")
        before = open_descriptors()
        until(lambda: broker.connections > 110, "a hundred more")
        assert open_descriptors() <= before + 3
        assert connection.stop()
