"""Files in blocks over a real broker: servers, brokers and lines that fail in the middle of a transfer."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stubs.block_plane import BlockDevice, ServerProcess, block_server, make_repository
from tests.stubs.brokers import Mosquitto
from tests.stubs.mqtt_proxy import Act, MqttProxy, RandomFaults
from tests.stubs.mqtt_waiting import Connections, await_event, connected, deliver
from tests.stubs.running import REPOSITORY
from tests.stubs.waiting import until

from vedette.errors import NotFoundError, UnavailableError
from vedette.mqtt.port import Arrived, Outgoing, Subscription
from vedette.update.fetching import BlobFetch
from vedette.update.part_file import PartFile
from vedette.wire.blocks import decode_data, encode_data
from vedette.wire.plane import Announcement
from vedette.wire.topics import DeviceTopics, announcements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.update.fetching import FetchResult

MIB = 1 << 20
BLOB = random.Random(2).randbytes(8 * MIB)  # noqa: S311 - test content
SHA256 = hashlib.sha256(BLOB).hexdigest()
ACL = REPOSITORY / "systemd" / "mosquitto" / "vedette.acl"
TOPICS = DeviceTopics.of("plant-a", "cam-7")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "broker") as started:
        yield started


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository", {}, BLOB)


def blocks_sent(server: ServerProcess) -> int:
    """How many blocks a server said at its end that it sent."""
    (line,) = [line for line in server.said.splitlines() if line.startswith("served ")]
    return int(line.split(": ")[1].split()[0].replace(",", ""))


def test_two_servers_share_the_work_and_one_that_is_killed_is_done_without(
    broker: Mosquitto, root: Path, tmp_path: Path
) -> None:
    slowly = ("--no-announce", "--rate", "4")
    with (
        ServerProcess(broker.port, root, tmp_path / "first.log", slowly) as first,
        ServerProcess(broker.port, root, tmp_path / "second.log", slowly) as second,
        BlockDevice(broker.port) as device,
    ):
        got = bytearray()
        for piece in device.fetcher.blob(SHA256, 0, len(BLOB)):
            got += piece
            if len(got) > 2 * MIB and first.process.poll() is None:
                first.kill()
        assert got == BLOB
        assert second.terminate() == 0
        # The first one's share of the beginning is missing in what the second one sent.
        assert len(BLOB) // (128 << 10) // 2 < blocks_sent(second) < len(BLOB) // (128 << 10)
        # Only what the dead one had been asked for was asked for again.
        assert device.fetcher.figures.asked_again <= 16


def test_two_servers_share_the_work(broker: Mosquitto, root: Path) -> None:
    with (
        block_server(broker.port, root) as first,
        block_server(broker.port, root) as second,
        BlockDevice(broker.port, max_packet_bytes=20_000, stall_s=30.0) as device,
    ):
        assert device.blob(BLOB) == BLOB
        assert min(first.blocks, second.blocks) > 50
        assert device.fetcher.figures.asked_again == 0


@pytest.mark.parametrize("act", [Act.DROP, Act.DUPLICATE, Act.REORDER])
def test_one_block_in_twenty_is_lost_doubled_or_out_of_order(broker: Mosquitto, root: Path, act: Act) -> None:
    faults = RandomFaults(7, topic="/blk/dat", **{act.value: 0.05})
    with (
        MqttProxy(broker.port, faults) as proxy,
        block_server(broker.port, root),
        # 256 blocks, so that the share of the lost ones means something.
        BlockDevice(proxy.port, max_packet_bytes=17_000, stall_s=20.0) as device,
    ):
        assert b"".join(device.fetcher.blob(SHA256, 0, 4 * MIB)) == BLOB[: 4 * MIB]
        figures = device.fetcher.figures
        assert faults.harmed[act] >= 8
        assert figures.asked_again_bytes <= 1.2 * faults.dropped_bytes
        assert figures.duplicates >= (faults.harmed[act] if act is Act.DUPLICATE else 0)


def test_requests_are_lost_too(broker: Mosquitto, root: Path) -> None:
    faults = RandomFaults(3, drop=0.05, topic="/blk/get")
    with (
        MqttProxy(broker.port, faults) as proxy,
        block_server(broker.port, root),
        BlockDevice(proxy.port, max_packet_bytes=17_000, stall_s=20.0) as device,
    ):
        assert b"".join(device.fetcher.blob(SHA256, 0, 2 * MIB)) == BLOB[: 2 * MIB]
        assert faults.harmed[Act.DROP] > 0


def test_the_broker_is_killed_and_comes_back_in_the_middle(broker: Mosquitto, root: Path) -> None:
    with block_server(broker.port, root), BlockDevice(broker.port, stall_s=30.0) as device:
        got = bytearray()
        killed = False
        for piece in device.fetcher.blob(SHA256, 0, len(BLOB)):
            got += piece
            if len(got) > 2 * MIB and not killed:
                killed = True
                broker.kill()
                until(lambda: device.inbox.standing.limits is None, "the device lost its connection")
                broker.start()
        assert got == BLOB


def test_the_broker_stays_away(broker: Mosquitto, root: Path) -> None:
    with block_server(broker.port, root), BlockDevice(broker.port, stall_s=1.0) as device:
        pieces = device.fetcher.blob(SHA256, 0, len(BLOB))
        next(pieces)
        broker.kill()
        began_s = time.monotonic()
        with pytest.raises(UnavailableError, match="not connected to the broker"):
            list(pieces)
        assert time.monotonic() - began_s < 30.0
        with pytest.raises(UnavailableError, match=r"not connected to the broker: .+"):
            device.blob(BLOB)


def test_no_server_is_there(broker: Mosquitto) -> None:
    with BlockDevice(broker.port, stall_s=0.5) as device:
        began_s = time.monotonic()
        with pytest.raises(UnavailableError, match="no block came"):
            device.blob(BLOB)
        assert time.monotonic() - began_s < 30.0


def test_what_is_not_there_is_not_found_within_a_round_trip(broker: Mosquitto, root: Path) -> None:
    with block_server(broker.port, root) as figures, BlockDevice(broker.port, stall_s=30.0) as device:
        with pytest.raises(NotFoundError):
            list(device.fetcher.metadata("metadata/2.root.json", 512_000))
        assert figures.requests == 1
        with pytest.raises(NotFoundError):
            list(device.fetcher.blob("0" * 64, 0, 1000))


def test_damaged_stale_and_foreign_blocks_of_an_intruder_change_nothing(
    broker: Mosquitto, root: Path
) -> None:
    """He hears each block, and sends it again: damaged, under another transfer, and as it is."""
    stop = threading.Event()
    with (
        Connections() as connections,
        block_server(broker.port, root),
        BlockDevice(broker.port, max_packet_bytes=17_000) as device,
    ):
        intruder = connections.to(broker.port, [Subscription(TOPICS.block_data, qos=0)])
        connected(intruder)

        def intrude() -> None:
            seen: set[bytes] = set()
            while not stop.is_set():
                event = intruder.next_event(0.1)
                if not isinstance(event, Arrived) or event.payload[-64:] in seen:
                    continue
                seen.add(event.payload[-64:])
                for payload in forgeries(event.payload):
                    seen.add(payload[-64:])
                    intruder.publish(Outgoing(TOPICS.block_data, payload, qos=0))

        thread = threading.Thread(target=intrude)
        thread.start()
        try:
            assert device.blob(BLOB) == BLOB
        finally:
            stop.set()
            thread.join(5.0)
        figures = device.fetcher.figures
        assert figures.damaged > 0
        assert figures.duplicates > 0
        assert device.inbox.foreign > 0
        assert figures.asked_again <= 5  # none for the intruder's sake; the machine may be slow


def forgeries(payload: bytes) -> Iterator[bytes]:
    """What an intruder makes of a block."""
    block = decode_data(payload)
    yield payload[:-1] + bytes([payload[-1] ^ 1])
    yield encode_data(
        status=block.status,
        xfer="another",
        request=block.request,
        offset=block.offset,
        total_bytes=block.total_bytes,
        data=bytes(block.data),
    )
    yield payload


def test_metadata_that_is_replaced_in_the_middle_comes_as_one_or_the_other(
    broker: Mosquitto, tmp_path: Path
) -> None:
    old, new = b"old" * 100_000, b"new" * 100_000
    path = "metadata/5.targets.json"
    root = make_repository(tmp_path / "repository", {path: old, "metadata/new": new})
    with (
        block_server(broker.port, root, bytes_per_s=400_000) as figures,
        BlockDevice(broker.port, max_packet_bytes=10_000) as device,
    ):

        def replace() -> None:
            until(lambda: figures.blocks >= 20, "some blocks were sent")
            (root / "metadata/new").rename(root / path)

        thread = threading.Thread(target=replace)
        thread.start()
        try:
            assert b"".join(device.fetcher.metadata(path, 1 << 20)) == new
        finally:
            thread.join(10.0)


def test_an_agent_that_is_killed_goes_on_where_its_part_file_ends(
    broker: Mosquitto, root: Path, tmp_path: Path
) -> None:
    """What a dead process left is a part file; nothing of the transfer is kept elsewhere."""
    with block_server(broker.port, root) as figures:
        results = [fetch_until(broker.port, tmp_path, stop) for stop in (3 * MIB, 3 * MIB, len(BLOB))]
        assert [result.complete for result in results] == [False, False, True]
        assert hashlib.sha256((tmp_path / f"{SHA256}.part").read_bytes()).hexdigest() == SHA256
        assert sum(result.fetched_bytes for result in results) <= len(BLOB) + 2 * (64 << 10)
        # Beside the blocks that were cut in two, what was under way when the agent died.
        assert figures.sent_bytes <= len(BLOB) + 2 * 2 * MIB + 2 * (128 << 10)


def fetch_until(port: int, folder: Path, stop_bytes: int) -> FetchResult:
    """One life of an agent, which ends when so much was fetched."""
    fetched = [0]
    with (
        BlockDevice(port) as device,
        PartFile(folder, SHA256, len(BLOB), sync_bytes=256 << 10) as part,
    ):
        return BlobFetch(
            device.fetcher,
            part,
            wait=lambda _wait_s: fetched[0] > stop_bytes,
            draw=lambda: 0.5,
            progress=lambda count: fetched.__setitem__(0, count),
        ).run()


def test_a_slow_device_does_not_hold_up_another_one(broker: Mosquitto, root: Path) -> None:
    with (
        block_server(broker.port, root),
        BlockDevice(broker.port, name="slow") as slow,
        BlockDevice(broker.port, name="quick") as quick,
    ):
        pieces = slow.fetcher.blob(SHA256, 0, len(BLOB))
        next(pieces)  # and reads no more
        assert quick.blob(BLOB) == BLOB
        assert len(b"".join(pieces)) > len(BLOB) - (128 << 10) - 1


def test_ten_devices_at_once_over_one_server_that_can_hold_little(broker: Mosquitto, root: Path) -> None:
    devices = [BlockDevice(broker.port, name=f"cam-{number}", stall_s=20.0) for number in range(10)]
    outcomes: dict[int, bool] = {}

    def fetch(number: int) -> None:
        with devices[number] as device:
            part = b"".join(device.fetcher.blob(SHA256, 0, MIB))
            outcomes[number] = part == BLOB[:MIB]

    with block_server(broker.port, root, bytes_per_s=10e6, limit_bytes=1 << 20) as figures:
        threads = [threading.Thread(target=fetch, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30.0)
    assert figures.busy > 0
    assert outcomes == dict.fromkeys(range(10), True)


def test_the_command_announces_serves_and_ends_within_a_second(
    broker: Mosquitto, root: Path, tmp_path: Path
) -> None:
    with (
        Connections() as connections,
        ServerProcess(
            broker.port, root, tmp_path / "server.log", ("--rate", "2", "--spread-s", "7")
        ) as server,
        BlockDevice(broker.port) as device,
    ):
        listener = connections.to(broker.port, [Subscription(announcements())])
        connected(listener)
        assert msgspec.json.decode(await_event(listener, Arrived).payload, type=Announcement) == Announcement(
            timestamp_version=1, rollouts_version=1, spread_s=7.0
        )
        pieces = device.fetcher.blob(SHA256, 0, len(BLOB))
        next(pieces)
        timestamp = root / "metadata/timestamp.json"
        timestamp.write_bytes(timestamp.read_bytes().replace(b'"version":1,"meta"', b'"version":2,"meta"'))
        changed = await_event(listener, Arrived)
        assert not changed.retained
        assert msgspec.json.decode(changed.payload, type=Announcement).timestamp_version == 2
        began_s = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began_s < 15.0
        assert f"plant-a/cam-7: blobs/{SHA256}: " in server.said
        assert device.inbox.standing.limits is not None


def test_a_message_for_the_block_topic_that_is_no_request_harms_nobody(broker: Mosquitto, root: Path) -> None:
    """Case 31: poison first, then a good request, which is answered at once."""
    with Connections() as connections, block_server(broker.port, root) as figures:
        sender = connections.to(broker.port)
        connected(sender)
        for payload in (b"", b"{", b"\xff" * 5000, b"\x91" * 200_000):
            assert deliver(sender, Outgoing(TOPICS.block_request, payload)) == ""
        with BlockDevice(broker.port) as device:
            began_s = time.monotonic()
            assert b"".join(device.fetcher.blob(SHA256, 0, 1000)) == BLOB[:1000]
            assert time.monotonic() - began_s < 15.0
        assert figures.bad == 4


def test_the_access_rules_that_ship_let_all_of_it_pass(root: Path, tmp_path: Path) -> None:
    password = "a"  # noqa: S105 - a test's
    with (
        Mosquitto(tmp_path / "b", acl=ACL, users=dict.fromkeys(("cam-7", "blocks"), password)) as guarded,
        ServerProcess(
            guarded.port, root, tmp_path / "server.log", ("--username", "blocks"), password=password
        ) as server,
        BlockDevice(guarded.port, password=password) as device,
    ):
        assert b"".join(device.fetcher.blob(SHA256, 0, MIB)) == BLOB[:MIB]
        until(lambda: "announced timestamp 1" in server.said, "it was announced")
