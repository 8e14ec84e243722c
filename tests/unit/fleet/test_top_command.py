"""`vedette-fleet top` as an operator types it, against a real Mosquitto."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.stubs.brokers import Mosquitto, free_port
from tests.stubs.mqtt_scripted import WELCOME_5, Peer, ScriptedBroker
from tests.stubs.mqtt_waiting import connected, deliver
from tests.unit.fleet.test_top_figures import window

from vedette.errors import BadInputError, UsageError
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import BrokerOptions, Outgoing, TlsOptions
from vedette.wire.plane import MSGPACK_TYPE, DeviceStatus
from vedette.wire.telemetry import encode_report
from vedette.wire.topics import DeviceTopics
from vedette_fleet.cli.broker import PASSWORD_VARIABLE, broker_options
from vedette_fleet.mqtt_feed import fleet_subscriptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = [sys.executable, "-c", "from vedette_fleet.cli.main import main; main()", "top"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that remembers two devices; one of them keeps its last report, too."""
    with Mosquitto(tmp_path / "broker") as started:
        tell(started.port)
        yield started


def tell(port: int, username: str = "", password: str = "") -> None:
    """Two devices say what they say; the report is retained, which devices do not do, to be there at once."""
    connection = PahoConnection(
        BrokerOptions(host="127.0.0.1", port=port, username=username, password=password)
    )
    connected(connection)
    try:
        for site, device in (("berlin", "gate"), ("lyon", "yard")):
            topics = DeviceTopics.of(site, device)
            status = DeviceStatus(online=True, device=device, boot_id="boot", session="s", agent="0.2.0")
            assert (
                deliver(connection, Outgoing(topics.status, msgspec.json.encode(status), retain=True)) == ""
            )
        report = encode_report(window([10.0] * 50 + [900.0] * 50, device="gate"))
        gate = DeviceTopics.of("berlin", "gate").telemetry
        assert deliver(connection, Outgoing(gate, report, retain=True, content_type=MSGPACK_TYPE)) == ""
    finally:
        connection.stop()


def top(*arguments: str, password: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != PASSWORD_VARIABLE}
    if password is not None:
        environment[PASSWORD_VARIABLE] = password
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def at(broker: Mosquitto) -> str:
    return f"--broker=127.0.0.1:{broker.port}"


def test_json_for_programs(broker: Mosquitto) -> None:
    ran = top(at(broker), "--once", "--for", "1", "--json")
    assert ran.returncode == 0, ran.stderr
    (line,) = ran.stdout.splitlines()
    view: dict[str, Any] = json.loads(line)
    assert [row["device"] for row in view["devices"]] == ["berlin/gate", "lyon/yard"]
    assert view["total"]["online"] == 2
    assert view["total"]["latency"]["p99_ms"] == pytest.approx(900, rel=0.01)


def test_a_table_for_people_and_only_one_site(broker: Mosquitto) -> None:
    ran = top(at(broker), "--once", "--for", "1", "--site", "lyon")
    assert ran.returncode == 0, ran.stderr
    assert "lyon/yard" in ran.stdout
    assert "berlin" not in ran.stdout
    assert "\x1b" not in ran.stdout


def test_another_stage_and_lines_until_the_end(broker: Mosquitto) -> None:
    ran = top(at(broker), "--for", "1", "--interval", "0.3", "--json", "--stage", "infer")
    documents = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(documents) >= 3
    assert documents[-1]["stage"] == "infer"
    assert documents[-1]["total"]["latency"]["count"] == 0


def test_a_live_table_on_a_terminal(broker: Mosquitto) -> None:
    master, terminal = pty.openpty()
    shown = b""
    with subprocess.Popen(
        [*COMMAND, at(broker), "--for", "1.5", "--interval", "0.3"],
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "COLUMNS": "120", "LINES": "30", "TERM": "xterm"},
    ) as process:
        os.close(terminal)
        try:
            while block := os.read(master, 1 << 16):
                shown += block
        except OSError:  # the other end of a terminal is gone
            pass
        finally:
            os.close(master)
    assert process.returncode == 0
    assert b"berlin/gate" in shown
    assert b"\x1b[" in shown


def test_with_a_password_from_the_environment(tmp_path: Path) -> None:
    with Mosquitto(tmp_path / "closed", users={"operator": "geheim"}) as broker:
        tell(broker.port, "operator", "geheim")
        ran = top(at(broker), "--username", "operator", "--once", "--for", "1", "--json", password="geheim")  # noqa: S106 - a test's own broker
        assert ran.returncode == 0, ran.stderr
        assert len(json.loads(ran.stdout)["devices"]) == 2
        refused = top(at(broker), "--username", "operator", "--once", "--for", "5", password="falsch")  # noqa: S106 - as above
    assert refused.returncode == 69
    assert "no connection to the broker" in refused.stderr
    assert "geheim" not in refused.stderr


def test_a_broker_that_is_not_there_is_said_at_once() -> None:
    ran = top(f"--broker=127.0.0.1:{free_port()}", "--once", "--for", "30")
    assert ran.returncode == 69
    assert "no connection to the broker" in ran.stderr
    assert "cure: check --broker" in ran.stderr


def test_who_may_not_listen_is_told_so() -> None:
    """A broker that refuses the grant; an empty table would look like an empty fleet."""

    def part(peer: Peer) -> None:
        peer.expect(1)
        peer.send(WELCOME_5)
        for _ in range(3):
            subscribe = peer.expect(8)
            peer.send(bytes([0x90, 4, subscribe[2], subscribe[3], 0, 0x87]))
        peer.until_gone()

    with ScriptedBroker(part) as broker:
        ran = top(f"--broker=127.0.0.1:{broker.port}", "--once", "--for", "10")
    assert ran.returncode == 69
    assert "does not let us listen to vedette/1/+/+/" in ran.stderr
    assert "cure: let this user read vedette/1/#" in ran.stderr


def test_silence_of_an_access_list_is_not_taken_for_an_empty_fleet(tmp_path: Path) -> None:
    """Mosquitto grants what its list then withholds."""
    acl = tmp_path / "acl"
    acl.write_text("topic read other/#\n")
    acl.chmod(0o600)
    with Mosquitto(tmp_path / "deaf", acl=acl) as broker:
        ran = top(at(broker), "--once", "--for", "1")
    assert ran.returncode == 0, ran.stderr
    assert "all 0" in ran.stdout
    assert "nothing from any device yet" in ran.stdout


@pytest.mark.parametrize(
    ("broker", "tls", "expected"),
    [
        ("host", None, ("host", 1883)),
        ("host:1", None, ("host", 1)),
        ("host", TlsOptions(), ("host", 8883)),
        ("[::1]:1884", None, ("::1", 1884)),
        ("[fe80::1]", None, ("fe80::1", 1883)),
        ("::1", None, ("::1", 1883)),
    ],
)
def test_brokers_are_named_as_people_write_them(
    broker: str, tls: TlsOptions | None, expected: tuple[str, int]
) -> None:
    options = broker_options(broker, tls=tls, username="", password="")
    assert (options.host, options.port) == expected


@pytest.mark.parametrize("broker", ["", ":1883", "host:", "host:0", "host:70000", "host:abc", "[::1]x"])
def test_what_names_no_broker_is_a_usage_error(broker: str) -> None:
    with pytest.raises(UsageError, match="is no broker"):
        broker_options(broker, tls=None, username="", password="")


def test_a_site_that_would_be_a_wildcard_is_refused() -> None:
    with pytest.raises(BadInputError, match="cannot be a level"):
        fleet_subscriptions("#")
