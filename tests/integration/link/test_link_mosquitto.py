"""A device's link on a real broker: outages, kills, commands and rubbish (cases 28 to 32, 45)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.stubs.brokers import Iotcore, Mosquitto
from tests.stubs.link_process import TOPICS, made_link, quick_options
from tests.stubs.mqtt_proxy import Act, MqttProxy, Packet
from tests.stubs.mqtt_waiting import Connections, connected
from tests.stubs.waiting import until

from vedette.clock import SystemClock
from vedette.link.drain import DrainLimits
from vedette.link.port import Keep
from vedette.mqtt.port import Acknowledged, Arrived, Outgoing, Subscription
from vedette.wire.plane import Announcement, Command
from vedette.wire.topics import announcements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.link.link_thread import LinkThread
    from vedette.mqtt.paho_connection import PahoConnection

AT_ONCE = DrainLimits(rate_per_s=10_000.0, burst=100, settle_s=0.0)
ANSWERS = "operator/answers"
_PACE = 0.05


class Fleet:
    """Somebody at the other end: hears everything of the device, and asks it."""

    def __init__(self, port: int, **options: Any) -> None:  # noqa: ANN401 - those of BrokerOptions
        self._connections = Connections()
        wanted = [Subscription(f"{TOPICS.branch}/#"), Subscription(ANSWERS)]
        self._connection: PahoConnection = self._connections.to(
            port, wanted, receive_maximum=1000, max_packet_bytes=32 << 20, queue_bytes=64 << 20, **options
        )
        connected(self._connection)
        self.arrived: list[Arrived] = []

    def close(self) -> None:
        self._connections.__exit__(None, None, None)

    def listen(self, for_s: float = _PACE) -> None:
        """Take in what comes."""
        deadline_s = time.monotonic() + for_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            event = self._connection.next_event(left_s)
            if isinstance(event, Arrived):
                self.arrived.append(event)

    def until(self, condition: Any, what: str, timeout_s: float = 20.0) -> None:  # noqa: ANN401 - of anything
        """Listen until it holds."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {what}"
            self.listen()

    def payloads(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(message.payload) for message in self.arrived if message.topic == topic]

    def events(self) -> list[str]:
        return [event["id"] for event in self.payloads(TOPICS.event)]

    def announce(self, payload: bytes) -> None:
        self._deliver(Outgoing(announcements(), payload))

    def ask(self, name: str, payload: bytes, **properties: Any) -> None:  # noqa: ANN401 - Outgoing's
        self._deliver(Outgoing(TOPICS.command(name), payload, **properties))

    def _deliver(self, message: Outgoing) -> None:
        token = self._connection.publish(message)
        assert token is not None
        acknowledged: list[int] = []
        while token not in acknowledged:
            event = self._connection.next_event(10.0)
            assert event is not None
            if isinstance(event, Acknowledged):
                acknowledged.append(event.token)
            elif isinstance(event, Arrived):
                self.arrived.append(event)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def fleet(broker: Mosquitto) -> Iterator[Fleet]:
    fleet = Fleet(broker.port)
    yield fleet
    fleet.close()


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing, for tests that make thousands of them."""
    shared = Path("/dev") / "shm"
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as folder:
        yield Path(folder)


@contextmanager
def running(thread: LinkThread) -> Iterator[LinkThread]:
    thread.start()
    try:
        yield thread
    finally:
        assert thread.stop()
        assert thread.crash is None


class LinkProcess:
    """`tests.stubs.link_process`, until it is killed."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        command = [sys.executable, "-m", "tests.stubs.link_process", str(folder), str(port), *options]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=10.0)

    def stop(self) -> None:
        self._process.communicate(timeout=10.0)
        assert self._process.returncode == 0


class LaterClock:
    """The real clock, with a time that a test adds to it."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.added_ns = 0

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns() + self.added_ns


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_ten_thousand_events_outlast_twenty_minutes_without_a_broker(
    broker: Mosquitto, memory_folder: Path
) -> None:
    """Cases 29 and 45: all arrive, each once, at a limited rate, and memory stays flat."""
    clock = LaterClock()
    limits = DrainLimits(rate_per_s=3000.0, burst=20, settle_s=1.0)
    thread = made_link(memory_folder / "link", quick_options(broker.port), drain=limits, clock=clock)
    with running(thread):
        until(lambda: thread.link.connected, "the link is up")
        broker.kill()
        until(lambda: not thread.link.connected, "the link is down")
        wanted = [
            thread.link.event("test", {"n": n}, keep=Keep.ALWAYS, event_id=f"e{n}") for n in range(10_000)
        ]
        clock.added_ns = 20 * 60 * 10**9
        before_bytes = resident_bytes()
        broker.start()
        fleet = Fleet(broker.port)
        began_s = time.monotonic()
        peak_bytes = 0
        while len(fleet.arrived) < len(wanted):
            fleet.listen(0.1)
            peak_bytes = max(peak_bytes, resident_bytes())
            assert time.monotonic() - began_s < 180.0, f"only {len(fleet.events())} came"
        took_s = time.monotonic() - began_s
        fleet.until(lambda: len(fleet.events()) >= len(wanted), "the rest")
        until(lambda: thread.link.status().waiting_events == 0, "the outbox is empty")
        fleet.close()
    assert sorted(fleet.events()) == sorted(wanted), "each exactly once"
    assert took_s > 0.9 * (len(wanted) - limits.burst) / limits.rate_per_s, "the rate was not kept"
    # The test itself holds what arrived, about a kilobyte each.
    assert peak_bytes - before_bytes < 24 << 20


def test_a_kill_in_the_middle_of_the_drain_loses_nothing(
    broker: Mosquitto, fleet: Fleet, memory_folder: Path
) -> None:
    """Case 29: kill -9 and restart; the rest arrives, and doubles are known by their ids."""
    first = LinkProcess(memory_folder / "link", broker.port, "--events", "1000", "--rate", "400")
    fleet.until(lambda: len(fleet.events()) >= 300, "a part of the events")
    first.kill()
    before = set(fleet.events())
    assert len(before) < 1000
    second = LinkProcess(memory_folder / "link", broker.port, "--rate", "2000")
    fleet.until(lambda: len(set(fleet.events())) == 1000, "the rest of the events")
    second.stop()
    fleet.listen(0.5)
    doubles = len(fleet.events()) - 1000
    assert 0 <= doubles < 400, "what was acknowledged long ago does not come again"
    assert set(fleet.events()) == {f"e{number}" for number in range(1000)}


def test_a_hundred_events_of_which_fifty_were_not_acknowledged(
    broker: Mosquitto, fleet: Fleet, tmp_path: Path
) -> None:
    """Case 29: the connection is cut before the acknowledgements come, then kill -9, then a restart."""
    seen = 0

    def swallow_later_acknowledgements(packet: Packet) -> Act:
        nonlocal seen
        seen += packet.kind == 4
        return Act.DROP if packet.kind == 4 and seen > 50 else Act.PASS

    with MqttProxy(broker.port, swallow_later_acknowledgements) as proxy:
        process = LinkProcess(tmp_path / "link", proxy.port, "--events", "100", "--rate", "1000")
        fleet.until(lambda: len(fleet.events()) >= 60, "what went before the cut")
        proxy.close_connections()
        process.kill()
    process = LinkProcess(tmp_path / "link", broker.port, "--rate", "1000")
    fleet.until(lambda: len(set(fleet.events())) == 100, "all hundred")
    process.stop()
    assert len(fleet.events()) > 100


def test_a_killed_device_is_shown_offline_and_a_stopped_one_says_so(
    broker: Mosquitto, fleet: Fleet, tmp_path: Path
) -> None:
    """Case 31."""
    process = LinkProcess(tmp_path / "link", broker.port)
    fleet.until(lambda: fleet.payloads(TOPICS.status), "the birth")
    process.kill()
    fleet.until(lambda: not fleet.payloads(TOPICS.status)[-1]["online"], "the will")
    born, died = fleet.payloads(TOPICS.status)
    assert died["session"] == born["session"]
    assert "clean" not in died
    process = LinkProcess(tmp_path / "link", broker.port)
    fleet.until(lambda: fleet.payloads(TOPICS.status)[-1]["online"], "the second birth")
    process.stop()
    fleet.until(lambda: not fleet.payloads(TOPICS.status)[-1]["online"], "the goodbye")
    assert fleet.payloads(TOPICS.status)[-1]["clean"]
    late = Fleet(broker.port)
    late.until(lambda: late.payloads(TOPICS.status), "what is retained")
    late.close()
    assert late.payloads(TOPICS.status)[0]["clean"], "and nothing took its place"


def test_a_command_is_carried_out_once_over_a_kill(broker: Mosquitto, fleet: Fleet, tmp_path: Path) -> None:
    """Case 29: a command sent twice across a restart."""
    payload = msgspec.json.encode(Command(id="c1"))
    process = LinkProcess(tmp_path / "link", broker.port)
    fleet.until(lambda: fleet.payloads(TOPICS.status), "the device")
    fleet.ask("snapshot", payload, response_topic=ANSWERS, correlation=b"1")
    fleet.until(lambda: fleet.payloads(ANSWERS), "the answer")
    process.kill()
    process = LinkProcess(tmp_path / "link", broker.port)
    fleet.until(
        lambda: sum(said["online"] for said in fleet.payloads(TOPICS.status)) == 2, "the device again"
    )
    fleet.ask("snapshot", payload, response_topic=ANSWERS, correlation=b"2")
    fleet.ask("snapshot", b'{"id": "c2"}', response_topic=ANSWERS, correlation=b"3")
    fleet.until(lambda: len(fleet.payloads(ANSWERS)) == 3, "the other answers")
    process.stop()
    first, again, other = fleet.payloads(ANSWERS)
    assert again == {**first, "repeated": True}
    assert other["body"]["count"] == 1, "in the second process only the new one was carried out"
    assert [message.correlation for message in fleet.arrived if message.topic == ANSWERS] == [
        b"1",
        b"2",
        b"3",
    ]


def test_a_broker_that_restarts_with_its_sessions_lost_is_heard_again(
    broker: Mosquitto, tmp_path: Path
) -> None:
    """Case 29: device deaf after a broker restart."""
    heard: list[Announcement] = []
    thread = made_link(tmp_path / "link", quick_options(broker.port), drain=AT_ONCE, announced=heard)
    with running(thread):
        until(lambda: thread.link.connected, "the link is up")
        broker.kill()
        thread.link.event("test", {}, keep=Keep.ALWAYS, event_id="meanwhile")
        broker.start()
        fleet = Fleet(broker.port)
        fleet.until(lambda: fleet.payloads(TOPICS.status), "the new birth")
        fleet.ask("ping", b'{"id": "c1"}')
        fleet.until(lambda: fleet.payloads(TOPICS.response("ping")), "the answer")
        fleet.announce(b'{"timestamp_version":1,"rollouts_version":1}')
        until(lambda: heard, "the announcement")
        until(lambda: thread.link.status().waiting_events == 0, "the event is delivered")
        fleet.close()


RUBBISH = [
    b'{"id": ',
    b"\xff\xfe\x00",
    b"[" * 16_000,
    b'{"id":"c","arguments":' + b'{"a":' * 2000 + b"1" + b"}" * 2001,
    b"x" * 200_000,
    b"x" * 10_000_000,
    b'{"id":"c","arguments":{"n":NaN}}',
]


def test_after_rubbish_the_next_good_message_is_answered_on_the_same_connection(
    broker: Mosquitto, fleet: Fleet, tmp_path: Path
) -> None:
    """Case 32; ten megabytes are more than the device lets the broker send it."""
    thread = made_link(tmp_path / "link", quick_options(broker.port), drain=AT_ONCE)
    with running(thread):
        fleet.until(lambda: fleet.payloads(TOPICS.status), "the device")
        for number, payload in enumerate(RUBBISH):
            fleet.ask("ping", payload)
            fleet.ask("no-such-command", b'{"id": "u"}')
            fleet.ask("ping", f'{{"id": "good-{number}"}}'.encode())
            began_s = time.monotonic()
            fleet.until(
                lambda: len(fleet.payloads(TOPICS.response("ping"))) == number + 1,  # noqa: B023 - used at once
                f"the answer after {payload[:20]!r}",
            )
            assert time.monotonic() - began_s < 20.0
        status = thread.link.status()
    assert status.connects == 1
    assert status.bad_messages["bad_command"] == 5
    assert status.bad_messages["large_command"] == 1
    assert status.bad_messages["unknown_command"] == len(RUBBISH)
    assert status.commands["ping"] == len(RUBBISH)


def test_a_message_that_makes_the_broker_hang_up_is_set_aside(
    broker: Mosquitto, fleet: Fleet, tmp_path: Path
) -> None:
    """Case 30: one message makes an endless reconnect loop."""

    def hang_up_on_poison(packet: Packet) -> Act:
        return Act.CLOSE if packet.kind == 3 and b'"poison"' in packet.raw else Act.PASS

    with MqttProxy(broker.port, hang_up_on_poison) as proxy:
        thread = made_link(tmp_path / "link", quick_options(proxy.port), drain=AT_ONCE)
        for number in range(5):
            thread.link.event("test", {}, keep=Keep.ALWAYS, event_id=f"a{number}")
        thread.link.event("bad", {"poison": 1}, keep=Keep.ALWAYS, event_id="bad")
        for number in range(5):
            thread.link.event("test", {}, keep=Keep.ALWAYS, event_id=f"b{number}")
        with running(thread):
            fleet.until(
                lambda: any(event["kind"] == "message_set_aside" for event in fleet.payloads(TOPICS.event)),
                "the report",
            )
            until(lambda: thread.link.status().waiting_events == 0, "all others are delivered")
            assert thread.link.status().set_aside == 1
    expected = {f"{letter}{number}" for letter in "ab" for number in range(5)}
    assert expected <= set(fleet.events())
    assert "bad" not in fleet.events()


def test_a_broker_that_takes_twelve_kilobytes_gets_nothing_larger(tmp_path: Path) -> None:
    """Case 30: the limit is known from the connect reply."""
    with Mosquitto(tmp_path / "broker", max_packet_bytes=12_000) as broker:
        fleet = Fleet(broker.port)
        thread = made_link(tmp_path / "link", quick_options(broker.port), drain=AT_ONCE)
        thread.link.event("large", {"text": "x" * 40_000}, keep=Keep.ALWAYS, event_id="large")
        thread.link.event("small", {}, keep=Keep.ALWAYS, event_id="small")
        with running(thread):
            fleet.until(lambda: len(fleet.events()) == 2, "the small one and the report")
            assert thread.link.status().connects == 1
        fleet.close()
    aside = next(event for event in fleet.payloads(TOPICS.event) if event["kind"] == "message_set_aside")
    assert (aside["data"]["id"], aside["data"]["why"]) == ("large", "too_large")


def test_a_broker_that_speaks_only_the_older_version_carries_what_it_can(tmp_path: Path) -> None:
    with Iotcore(tmp_path / "broker", protocol=4) as broker:
        fleet = Fleet(broker.port)
        thread = made_link(tmp_path / "link", quick_options(broker.port), drain=AT_ONCE)
        thread.link.event("test", {}, keep=Keep.ALWAYS, event_id="e")
        with running(thread):
            fleet.until(lambda: fleet.events() == ["e"], "the event")
            fleet.ask("ping", b'{"id": "c1"}')
            fleet.until(lambda: fleet.payloads(TOPICS.response("ping")), "the answer")
            assert thread.link.status().protocol == 4
        fleet.close()


def test_the_access_list_that_ships_lets_a_device_do_all_it_does(tmp_path: Path) -> None:
    users = {"cam-7": "a", "operator": "b"}
    acl = Path(__file__).parents[3] / "systemd" / "mosquitto" / "vedette.acl"
    with Mosquitto(tmp_path / "broker", users=users, acl=acl) as broker:
        fleet = Fleet(broker.port, username="operator", password=users["operator"])
        heard: list[Announcement] = []
        options = quick_options(broker.port, username="cam-7", password=users["cam-7"])
        thread = made_link(tmp_path / "link", options, drain=AT_ONCE, announced=heard)
        thread.link.event("test", {}, keep=Keep.ALWAYS, event_id="e")
        thread.link.telemetry(b"{}", "application/json")
        with running(thread):
            fleet.until(lambda: fleet.events() == ["e"], "the event")
            fleet.until(lambda: fleet.payloads(TOPICS.telemetry), "the report")
            fleet.ask("ping", b'{"id": "c1"}')
            fleet.until(lambda: fleet.payloads(TOPICS.response("ping")), "the answer")
            fleet.announce(b'{"timestamp_version":1,"rollouts_version":1}')
            until(lambda: heard, "the announcement")
            status = thread.link.status()
        fleet.until(lambda: fleet.payloads(TOPICS.status)[-1].get("clean"), "the goodbye")
        fleet.close()
    assert (status.faults, status.bad_messages) == ({}, {})
    assert fleet.payloads(TOPICS.reported)
