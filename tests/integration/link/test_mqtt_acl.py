"""The access rules that ship: a device writes its own branch, and hears that and the announcements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.stubs.brokers import Mosquitto
from tests.stubs.mqtt_waiting import Connections, await_event, connected, deliver
from tests.stubs.running import REPOSITORY

from vedette.link.home_assistant import HomeAssistant, HomeState
from vedette.mqtt.port import Arrived, Outgoing, Subscription
from vedette.wire.topics import BLOCK_REQUESTS, DeviceTopics, announcements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.mqtt.port import Connection

ACL = REPOSITORY / "systemd" / "mosquitto" / "vedette.acl"
PASSWORD = "a"  # noqa: S105 - a test's
MINE = DeviceTopics.of("plant", "cam-7")
OTHER = DeviceTopics.of("plant", "cam-8")
USERS = ("cam-7", "cam-8", "all", "operator", "blocks")


@pytest.fixture
def connections() -> Iterator[Connections]:
    with Connections() as made:
        yield made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker", acl=ACL, users=dict.fromkeys(USERS, PASSWORD)) as started:
        yield started


def _user(connections: Connections, broker: Mosquitto, name: str, *filters: str) -> Connection:
    connection = connections.to(
        broker.port, [Subscription(wanted) for wanted in filters], username=name, password=PASSWORD
    )
    connected(connection)
    return connection


@pytest.mark.parametrize(
    "topic",
    [
        MINE.status,
        MINE.reported,
        MINE.event,
        MINE.telemetry,
        MINE.response("ping"),
        MINE.result("front"),
        MINE.block_request,
    ],
)
def test_a_device_writes_its_own_branch(connections: Connections, broker: Mosquitto, topic: str) -> None:
    operator = _user(connections, broker, "operator", "vedette/1/#")
    device = _user(connections, broker, "cam-7")
    assert deliver(device, Outgoing(topic, b"mine")) == ""
    assert await_event(operator, Arrived).topic == topic


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("cam-7", OTHER.status),
        ("cam-7", OTHER.command("ping")),
        ("cam-7", announcements()),
        ("cam-7", MINE.branch),
        ("cam-7", "elsewhere"),
        pytest.param("all", announcements(), id="a device named like a channel"),
        ("blocks", MINE.command("ping")),
    ],
)
def test_nobody_writes_what_is_not_theirs(
    connections: Connections, broker: Mosquitto, name: str, topic: str
) -> None:
    operator = _user(connections, broker, "operator", "vedette/1/#", "elsewhere")
    intruder = _user(connections, broker, name)
    assert deliver(intruder, Outgoing(topic, b"forged")) == "Not authorized"
    assert deliver(_user(connections, broker, "cam-8"), Outgoing(OTHER.event, b"true")) == ""
    assert await_event(operator, Arrived).payload == b"true"
    assert intruder.health().losses == 0


def test_a_device_hears_its_own_commands_and_the_announcements_and_nothing_else(
    connections: Connections, broker: Mosquitto
) -> None:
    operator = _user(connections, broker, "operator")
    device = _user(connections, broker, "cam-7", "vedette/1/#")
    for topic in (
        OTHER.command("ping"),
        OTHER.block_data,
        OTHER.status,
        announcements(),
        MINE.command("ping"),
        MINE.block_data,
    ):
        assert deliver(operator, Outgoing(topic, b"")) == ""
    heard = [await_event(device, Arrived).topic for _ in range(3)]
    assert heard == [announcements(), MINE.command("ping"), MINE.block_data]
    assert device.next_event(0.2) is None


def test_a_block_server_hears_requests_and_answers_them(connections: Connections, broker: Mosquitto) -> None:
    server = _user(connections, broker, "blocks", BLOCK_REQUESTS)
    device = _user(connections, broker, "cam-7", MINE.block_data)
    assert deliver(device, Outgoing(MINE.block_request, b"which")) == ""
    assert await_event(server, Arrived).topic == MINE.block_request
    assert deliver(server, Outgoing(MINE.block_data, b"this")) == ""
    assert await_event(device, Arrived).payload == b"this"


def test_with_the_lines_for_home_assistant_a_device_is_described_and_its_dashboard_changes_nothing(
    connections: Connections, tmp_path: Path
) -> None:
    """The rules that are commented out, as somebody would have them who wants them; one id has a dot."""
    dotted = DeviceTopics.of("plant", "cam.7")
    rules = re.sub(r"^# (pattern|user|topic) ", r"\1 ", ACL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    acl = tmp_path / "home.acl"
    acl.write_text(rules, encoding="utf-8")
    users = dict.fromkeys((*USERS, "cam.7", "homeassistant"), PASSWORD)
    with Mosquitto(tmp_path / "broker", acl=acl, users=users) as broker:
        home = _user(connections, broker, "homeassistant", "homeassistant/#", "vedette/1/#")
        for name, topics in (("cam-7", MINE), ("cam.7", dotted)):
            described = HomeAssistant(topics, agent="1", cameras=["front"])
            device = _user(connections, broker, name)
            assert deliver(device, described.discovery()) == ""
            assert await_event(home, Arrived).topic == described.discovery_topic
            assert deliver(device, described.state(HomeState(fps=1.0, drops=0))) == ""
            assert await_event(home, Arrived).topic == described.state_topic
            assert deliver(device, Outgoing(topics.status, b"{}")) == ""
            assert await_event(home, Arrived).topic == topics.status
        assert deliver(home, Outgoing(MINE.command("ping"), b"{}")) == "Not authorized"
        assert deliver(home, Outgoing("homeassistant/device/cam-7/config", b"")) == "Not authorized"
