"""A real repository over MQTT alone: root rotations, an offer, its blobs; and the commands that serve it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stubs.block_plane import BlockDevice, block_server, make_repository
from tests.stubs.brokers import Mosquitto, free_port
from tests.stubs.mqtt_certificates import Authority
from tests.stubs.mqtt_waiting import Connections, await_event, connected
from tests.unit.fleet.stand import NOW, Desk, bundle

from vedette.errors import UnavailableError
from vedette.mqtt.port import Arrived, Subscription
from vedette.trust.client import TufTrust
from vedette.trust.documents import Device
from vedette.wire.plane import Announcement
from vedette.wire.rollout import Guards, Window
from vedette.wire.topics import announcements
from vedette_fleet import rollout as edits
from vedette_fleet.rollout import Terms
from vedette_fleet.rollout_files import edit_rollouts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMAND = [sys.executable, "-c", "from vedette_fleet.cli.main import main; main()"]


class _Clock:
    def utc_s(self) -> float:
        return NOW.timestamp()

    def synchronised(self) -> bool | None:
        return True


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker") as started:
        yield started


def roll_out(desk: Desk, name: str, release: str) -> None:
    terms = Terms({}, (10_000,), 0, 0.0, None, Window(1.0, 1, 60.0), Guards())
    edit_rollouts(
        desk.workshop,
        lambda known: edits.start(
            known.plan, name, known.release(release), terms, counters=known.counters(), rollback_of=None
        ),
    )


def trust_of(device: BlockDevice, folder: Path, root: bytes) -> TufTrust:
    return TufTrust(
        device.fetcher,
        folder,
        bootstrap=root,
        build_utc_s=int(NOW.timestamp()) - 86_400,
        device=Device("cam-7", "tiny", {}),
        clock=_Clock(),
    )


def test_a_device_with_nothing_but_mqtt_verifies_an_offer_and_gets_its_blobs(
    broker: Mosquitto, tmp_path: Path
) -> None:
    desk = Desk(tmp_path).initialised()
    root = (desk.repository.path / "metadata" / "1.root.json").read_bytes()
    desk.release(bundle(tmp_path, "1"))
    roll_out(desk, "one", "tiny@1")
    for role in ("timestamp", "models-demo"):  # so that there is a chain of roots to walk
        desk.workshop.rotate(role, None)
    with block_server(broker.port, desk.repository.path), BlockDevice(broker.port) as device:
        trust = trust_of(device, tmp_path / "trust", root)
        offer = trust.refresh()
        assert offer is not None
        assert offer.manifest.version == "1"
        for encoding in (encoding for file in offer.manifest.files for encoding in file.encodings):
            blob = b"".join(device.fetcher.blob(encoding.sha256, 0, encoding.size_bytes))
            assert hashlib.sha256(blob).hexdigest() == encoding.sha256
        desk.release(bundle(tmp_path, "2"))
        roll_out(desk, "two", "tiny@2")
        newer = trust.refresh()
        assert newer is not None
        assert newer.manifest.version == "2"


def test_a_look_without_a_server_ends_with_a_word_that_helps(broker: Mosquitto, tmp_path: Path) -> None:
    desk = Desk(tmp_path).initialised()
    root = (desk.repository.path / "metadata" / "1.root.json").read_bytes()
    with BlockDevice(broker.port, stall_s=0.3) as device:
        trust = trust_of(device, tmp_path / "trust", root)
        with pytest.raises(UnavailableError, match="no block came"):
            trust.refresh()


def announce(folder: Path, port: int, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "announce", str(folder), "--broker", f"127.0.0.1:{port}", "--once", *more],
        capture_output=True,
        text=True,
        timeout=30.0,
        check=False,
    )


def test_a_repository_is_announced_once_for_those_who_serve_by_http(
    broker: Mosquitto, tmp_path: Path
) -> None:
    root = make_repository(tmp_path / "repository")
    done = announce(root, broker.port, "--spread-s", "900", "--channel", "canaries")
    assert done.returncode == 0, done.stderr
    with Connections() as connections:
        late = connections.to(broker.port, [Subscription(announcements("canaries"))])
        connected(late)
        arrived = await_event(late, Arrived)
    assert arrived.retained
    assert msgspec.json.decode(arrived.payload, type=Announcement) == Announcement(
        timestamp_version=1, rollouts_version=1, spread_s=900.0
    )


def test_what_cannot_be_announced_says_why(broker: Mosquitto, tmp_path: Path) -> None:
    nobody = announce(make_repository(tmp_path / "repository"), free_port(), "--timeout-s", "0.5")
    assert nobody.returncode == 69
    assert "no connection to the broker" in nobody.stderr
    assert "cure: check --broker" in nobody.stderr
    nothing = announce(tmp_path / "absent", broker.port)
    assert nothing.returncode == 65
    assert "vedette-fleet init" in nothing.stderr


def test_the_options_of_tls_reach_the_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    server, operator = authority.certificate("server", host="127.0.0.1"), authority.certificate("operator")
    guarded = [
        f"cafile {authority.path}",
        f"certfile {server.cert}",
        f"keyfile {server.key}",
        "require_certificate true",
    ]
    root = make_repository(tmp_path / "repository")
    known = ["--tls-ca", str(authority.path)]
    with Mosquitto(tmp_path / "guarded", listener_lines=guarded) as broker:
        ours = ["--tls-cert", str(operator.cert), "--tls-key", str(operator.key)]
        assert announce(root, broker.port, *known, *ours).returncode == 0
        stranger = announce(root, broker.port, "--tls", "--timeout-s", "0.5")
        assert stranger.returncode == 69
        assert "authority" in stranger.stderr
