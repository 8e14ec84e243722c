"""The proxy of the tests does to packets what it says, so that other tests may lean on it."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.brokers import Mosquitto
from tests.stubs.mqtt_proxy import PUBLISH, Act, Delay, MqttProxy, Packet, RandomFaults, Way
from tests.stubs.mqtt_waiting import Connections, await_event, connected

from vedette.mqtt.port import Arrived, Connected, Lost, Outgoing, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vedette.mqtt.port import Connection


@pytest.fixture
def connections() -> Iterator[Connections]:
    with Connections() as made:
        yield made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker") as started:
        yield started


def _nth_arrival(number: int, act: Act | Delay) -> Callable[[Packet], Act | Delay]:
    def rule(packet: Packet) -> Act | Delay:
        meant = packet.kind == PUBLISH and packet.way is Way.TO_CLIENT and packet.number == number
        return act if meant else Act.PASS

    return rule


def _send(connection: Connection, count: int) -> None:
    for number in range(count):
        while connection.publish(Outgoing("a", str(number).encode(), qos=0)) is None:
            connection.next_event(0.01)


def _received(connection: Connection, count: int) -> list[int]:
    return [int(await_event(connection, Arrived).payload) for _ in range(count)]


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (Act.PASS, [0, 1, 2, 3]),
        (Act.DROP, [0, 2, 3]),
        (Act.DUPLICATE, [0, 1, 1, 2, 3]),
        (Act.REORDER, [0, 2, 1, 3]),
        (Delay(0.2), [0, 1, 2, 3]),
    ],
)
def test_what_is_done_to_one_packet(
    connections: Connections, broker: Mosquitto, act: Act | Delay, expected: list[int]
) -> None:
    with MqttProxy(broker.port, _nth_arrival(1, act)) as proxy:
        connection = connections.to(proxy.port, [Subscription("a", qos=0)])
        connected(connection)
        began_s = time.monotonic()
        _send(connection, 4)
        assert _received(connection, len(expected)) == expected
        assert connection.next_event(0.1) is None
        if isinstance(act, Delay):
            assert time.monotonic() - began_s >= act.seconds


def test_the_last_packet_held_back_comes_all_the_same(connections: Connections, broker: Mosquitto) -> None:
    with MqttProxy(broker.port, _nth_arrival(1, Act.REORDER)) as proxy:
        connection = connections.to(proxy.port, [Subscription("a", qos=0)])
        connected(connection)
        _send(connection, 2)
        assert _received(connection, 2) == [0, 1]


@pytest.mark.parametrize("act", [Act.CUT, Act.CLOSE])
def test_a_line_that_is_cut_in_a_packet_is_lost_and_found(
    connections: Connections, broker: Mosquitto, act: Act
) -> None:
    """Case 30: in the middle of chunk 17 of 40."""
    with MqttProxy(broker.port, _nth_arrival(17, act)) as proxy:
        receiver = connections.to(proxy.port, [Subscription("a", qos=0)])
        sender = connections.to(broker.port)
        connected(receiver)
        connected(sender)
        _send(sender, 40)
        assert _received(receiver, 17) == list(range(17))
        assert await_event(receiver, Lost).kind == "closed"
        await_event(receiver, Connected)
        _send(sender, 1)
        while (number := _received(receiver, 1)[0]) != 0:
            assert number > 17  # of the first forty, sent after it was back


def test_dice_harm_as_many_as_they_say(connections: Connections, broker: Mosquitto) -> None:
    dice = RandomFaults(1, drop=0.05, duplicate=0.05, reorder=0.05, topic="a")
    with MqttProxy(broker.port, dice) as proxy:
        receiver = connections.to(proxy.port, [Subscription("a", qos=0)])
        sender = connections.to(broker.port)
        connected(receiver)
        connected(sender)
        _send(sender, 1000)
        received = _received(receiver, 900)
        while isinstance(event := receiver.next_event(0.5), Arrived):
            received.append(int(event.payload))
        kept = 1000 - dice.harmed[Act.DROP]
        assert dice.seen == 1000
        assert len(set(received)) == kept
        assert len(received) == kept + dice.harmed[Act.DUPLICATE]
        assert received != sorted(received)
        for act in (Act.DROP, Act.DUPLICATE, Act.REORDER):
            assert 25 <= dice.harmed[act] <= 75


def test_dice_fall_alike_for_one_seed() -> None:
    packets = [
        Packet(Way.TO_CLIENT, PUBLISH, bytes([0x30, 5, 0, 1]) + b"a" + random.randbytes(2), number, 0)  # noqa: S311
        for number in range(200)
    ]
    first, second = (RandomFaults(5, drop=0.1, topic="a") for _ in range(2))
    assert [first(packet) for packet in packets] == [second(packet) for packet in packets]
    assert 0 < first.dropped_bytes < first.seen_bytes
    assert [RandomFaults(5, drop=1.0, topic="b")(packet) for packet in packets] == [Act.PASS] * 200
