"""TLS with Mosquitto: client certificates, and a word for each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from tests.stubs.brokers import Mosquitto
from tests.stubs.mqtt_certificates import DAY, Authority, Pair
from tests.stubs.mqtt_waiting import Connections, await_event, connected

from vedette.mqtt.port import Arrived, Lost, Outgoing, Subscription, TlsOptions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path


@pytest.fixture
def connections() -> Iterator[Connections]:
    with Connections() as made:
        yield made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def _broker(
    folder: Path, authority: Authority, server: Pair, *, clients: bool = False, names: bool = False
) -> Mosquitto:
    lines = [f"cafile {authority.path}", f"certfile {server.cert}", f"keyfile {server.key}"]
    if clients:
        lines.append("require_certificate true")
    if names:
        lines.append("use_identity_as_username true")
    return Mosquitto(folder, listener_lines=lines)


def _loss(connections: Connections, port: int, tls: TlsOptions, host: str = "127.0.0.1") -> Lost:
    connection = connections.to(port, host=host, tls=tls)
    connection.start()
    return await_event(connection, Lost)


def test_a_client_certificate_opens_the_door_and_large_messages_pass(
    tmp_path: Path, authority: Authority, connections: Connections
) -> None:
    server = authority.certificate("server", host="127.0.0.1")
    client = authority.certificate("cam-7")
    with _broker(tmp_path / "broker", authority, server, clients=True) as broker:
        tls = TlsOptions(ca=str(authority.path), cert=str(client.cert), key=str(client.key))
        connection = connections.to(broker.port, [Subscription("a")], tls=tls, max_packet_bytes=2 << 20)
        connected(connection)
        for size in (0, 1, 16_384, 1 << 20):
            assert connection.publish(Outgoing("a", bytes(size), qos=0)) is not None
        sizes = [len(await_event(connection, Arrived).payload) for _ in range(4)]
        assert sizes == [0, 1, 16_384, 1 << 20]
        assert connection.stop()


@pytest.mark.parametrize(
    ("kind", "begins", "ends", "host"),
    [
        pytest.param("tls_expired", -9 * DAY, -DAY, "127.0.0.1", id="expired"),
        pytest.param("tls_not_yet_valid", DAY, 9 * DAY, "127.0.0.1", id="not yet valid"),
        pytest.param("tls_wrong_host", -DAY, DAY, "10.0.0.1", id="another address"),
        pytest.param("tls_wrong_host", -DAY, DAY, "broker.example", id="a name, and we came by address"),
    ],
)
def test_a_certificate_that_is_not_good_says_why_and_what_helps(  # noqa: PLR0917 - the cases
    tmp_path: Path,
    authority: Authority,
    connections: Connections,
    kind: str,
    begins: timedelta,
    ends: timedelta,
    host: str,
) -> None:
    server = authority.certificate("server", host=host, begins=begins, ends=ends)
    with _broker(tmp_path / "broker", authority, server) as broker:
        lost = _loss(connections, broker.port, TlsOptions(ca=str(authority.path)))
    assert lost.kind == kind
    cure = {"tls_wrong_host": "tls.server_name"}.get(kind, "this box's clock, which says 2")
    assert cure in lost.reason


def test_a_box_whose_clock_stands_in_1970_is_told_to_set_it(tmp_path: Path, connections: Connections) -> None:
    """Case 46: seen from there, authority and certificate alike begin in the future."""
    authority = Authority(tmp_path / "authority", begins=5000 * DAY)
    server = authority.certificate("server", host="127.0.0.1", begins=5000 * DAY, ends=5001 * DAY)
    with _broker(tmp_path / "broker", authority, server) as broker:
        lost = _loss(connections, broker.port, TlsOptions(ca=str(authority.path)))
    assert lost.kind == "tls_not_yet_valid"
    assert "set this box's clock" in lost.reason


def test_an_authority_we_do_not_know_is_not_believed(
    tmp_path: Path, authority: Authority, connections: Connections
) -> None:
    server = authority.certificate("server", host="127.0.0.1")
    other = Authority(tmp_path / "other")
    with _broker(tmp_path / "broker", authority, server) as broker:
        for tls in (TlsOptions(ca=str(other.path)), TlsOptions()):
            lost = _loss(connections, broker.port, tls)
            assert (lost.kind, "tls.ca" in lost.reason) == ("tls_unknown_ca", True)


def test_another_name_than_the_hosts_can_be_asked_for(
    tmp_path: Path, authority: Authority, connections: Connections
) -> None:
    server = authority.certificate("server", host="broker.example")
    with _broker(tmp_path / "broker", authority, server) as broker:
        tls = TlsOptions(ca=str(authority.path), server_name="broker.example")
        connected(connections.to(broker.port, tls=tls))


def test_a_certificate_of_ours_that_the_broker_refuses_is_named(
    tmp_path: Path, authority: Authority, connections: Connections
) -> None:
    server = authority.certificate("server", host="127.0.0.1")
    expired = authority.certificate("old", begins=-9 * DAY, ends=-DAY)
    foreign = Authority(tmp_path / "other").certificate("foreign")
    ca = str(authority.path)
    with _broker(tmp_path / "broker", authority, server, clients=True) as broker:
        for tls, kinds in (
            (TlsOptions(ca=ca), {"auth"}),
            (TlsOptions(ca=ca, cert=str(expired.cert), key=str(expired.key)), {"tls_expired"}),
            (TlsOptions(ca=ca, cert=str(foreign.cert), key=str(foreign.key)), {"tls_unknown_ca"}),
        ):
            lost = _loss(connections, broker.port, tls)
            assert lost.kind in kinds
            assert "our certificate" in lost.reason


def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, authority: Authority, connections: Connections
) -> None:
    server = authority.certificate("server", host="127.0.0.1")
    client = authority.certificate("cam-7")
    ca = str(authority.path)
    locked = tmp_path / "locked.pem"
    key = serialization.load_pem_private_key(client.key.read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    missing = str(tmp_path / "none.pem")
    with _broker(tmp_path / "broker", authority, server) as broker:
        for tls, named in (
            (TlsOptions(ca=missing), missing),
            (TlsOptions(ca=ca, cert=missing, key=missing), missing),
            (TlsOptions(ca=ca, cert=str(client.cert), key=str(server.key)), str(server.key)),
            (TlsOptions(ca=ca, cert=str(client.cert), key=str(locked)), "encrypted"),
            (TlsOptions(ca=str(client.key)), str(client.key)),
        ):
            lost = _loss(connections, broker.port, tls)
            assert (lost.kind, named in lost.reason) == ("tls", True)


def test_certificates_renewed_on_disk_are_used_in_the_next_connection(
    tmp_path: Path, authority: Authority, connections: Connections
) -> None:
    server = authority.certificate("server", host="127.0.0.1")
    client = authority.certificate("cam-7", begins=-9 * DAY, ends=-DAY)
    with _broker(tmp_path / "broker", authority, server, clients=True) as broker:
        tls = TlsOptions(ca=str(authority.path), cert=str(client.cert), key=str(client.key))
        connection = connections.to(broker.port, tls=tls)
        connection.start()
        assert await_event(connection, Lost).kind == "tls_expired"
        authority.certificate("cam-7")
        connected_event = None
        while connected_event is None:
            event = connection.next_event(5.0)
            connected_event = event if not isinstance(event, Lost) else None
        assert connection.health().connected


def test_tls_to_a_plain_port_and_plain_to_tls_are_told(
    tmp_path: Path, authority: Authority, connections: Connections
) -> None:
    server = authority.certificate("server", host="127.0.0.1")
    with Mosquitto(tmp_path / "plain") as plain, _broker(tmp_path / "tls", authority, server) as secure:
        lost = _loss(connections, plain.port, TlsOptions(ca=str(authority.path)))
        assert lost.kind in {"tls", "closed"}
        bare = connections.to(secure.port)
        bare.start()
        assert await_event(bare, Lost).kind == "closed"
