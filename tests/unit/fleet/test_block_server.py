"""The block server on a broker without a network: what it sends, to whom, and what it does with nonsense."""

from __future__ import annotations

import hashlib
import os
import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stubs.block_plane import make_repository
from tests.stubs.fake_connection import FakeBroker

from vedette.clock import ManualClock
from vedette.mqtt.port import Arrived, Outgoing, Subscription
from vedette.wire.blocks import (
    BLOCK_EXPIRY_S,
    MAX_REQUEST_BYTES,
    STATUS_BAD_REQUEST,
    STATUS_BUSY,
    STATUS_CHANGED,
    STATUS_DATA,
    STATUS_NOT_FOUND,
    Block,
    BlockRequest,
    decode_data,
    encode_request,
)
from vedette.wire.topics import BLOCK_REQUESTS, DeviceTopics
from vedette_fleet.block_files import BlockFiles
from vedette_fleet.block_queue import BlockQueue
from vedette_fleet.block_server import BlockServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOB = random.Random(1).randbytes(10_000)  # noqa: S311 - test content
PATH = f"blobs/{hashlib.sha256(BLOB).hexdigest()}"
DEVICE = DeviceTopics.of("plant-a", "cam-7")
GOOD = BlockRequest("x", 1, PATH, 4096, (0, 1, 2))


class Stand:
    """A server, and a device that asks it."""

    def __init__(
        self, root: Path, *, bytes_per_s: float | None = None, queue: BlockQueue | None = None
    ) -> None:
        self.root = root
        self.clock = ManualClock(1_000_000_000)
        self.broker = FakeBroker()
        self.lines: list[str] = []
        self.connection = self.broker.connection([Subscription(BLOCK_REQUESTS, qos=0)])
        self.files = BlockFiles(root, most_open=4)
        self.server = BlockServer(
            self.connection,
            self.files,
            clock=self.clock,
            log=self.lines.append,
            bytes_per_s=bytes_per_s,
            queue=queue,
        )
        self.device = self.broker.connection([Subscription(DEVICE.block_data, qos=0)])
        self.connection.start()
        self.device.start()

    def ask(self, request: BlockRequest | bytes, *, device: DeviceTopics = DEVICE) -> None:
        payload = request if isinstance(request, bytes) else encode_request(request)
        self.device.publish(Outgoing(device.block_request, payload, qos=0))

    def turn(self) -> float:
        while (event := self.connection.next_event(0.0)) is not None:
            self.server.take(event)
        return self.server.work()

    def answers(self) -> list[Block]:
        self.turn()
        return self.received()

    def received(self) -> list[Block]:
        came = []
        while (event := self.device.next_event(0.0)) is not None:
            if isinstance(event, Arrived):
                came.append(decode_data(event.payload))
        return came


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = make_repository(tmp_path / "repo", {"targets/models/a/1+b.json": b"{}"}, BLOB)
    (folder / "staged").mkdir()
    (folder / "staged" / "2.root.json").write_bytes(b"{}")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "blobs" / "link").symlink_to(tmp_path / "secret")
    (folder / "targets" / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "blobs" / "fifo")
    return folder


@pytest.fixture
def stand(root: Path) -> Iterator[Stand]:
    made = Stand(root)
    yield made
    made.files.close()


def test_blocks_go_to_whoever_asked_with_all_that_names_them(stand: Stand) -> None:
    stand.ask(GOOD)
    answers = stand.answers()
    assert b"".join(bytes(block.data) for block in answers) == BLOB
    assert {(block.status, block.xfer, block.request, block.tag) for block in answers} == {
        (STATUS_DATA, "x", 1, 0)
    }
    assert [block.offset for block in answers] == [0, 4096, 8192]
    assert {block.total_bytes for block in answers} == {len(BLOB)}
    sent = [message for message in stand.broker.published if message.topic == DEVICE.block_data]
    assert {(message.qos, message.retain, message.expiry_s) for message in sent} == {
        (0, False, BLOCK_EXPIRY_S)
    }


def test_it_answers_on_the_topic_of_the_branch_and_never_where_a_request_says(stand: Stand) -> None:
    message = Outgoing(
        DEVICE.block_request, encode_request(GOOD), qos=0, response_topic="vedette/1/plant-a/other/cmd/ping"
    )
    stand.device.publish(message)
    assert len(stand.answers()) == 3
    topics = {message.topic for message in stand.broker.published}
    assert topics == {DEVICE.block_request, DEVICE.block_data}


def test_a_block_beyond_the_end_says_where_the_end_is(stand: Stand) -> None:
    stand.ask(msgspec.structs.replace(GOOD, blocks=(7,)))
    (block,) = stand.answers()
    assert (block.status, block.offset, block.total_bytes, bytes(block.data)) == (
        0,
        len(BLOB),
        len(BLOB),
        b"",
    )


@pytest.mark.parametrize(
    "path",
    [
        "metadata/2.root.json",
        "blobs",
        "blobs/",
        "staged/2.root.json",
        "../secret",
        "blobs/../../secret",
        "blobs/../metadata/timestamp.json",
        "/etc/passwd",
        "blobs//x",
        "blobs/.hidden",
        "blobs/link",
        "blobs/fifo",
        "targets/out/secret",
        "targets/models",
        "blobs\\..\\secret",
        "blobs/a\0b",
        "blobs/%2e%2e/secret",
        "blobs/" + "a" * 400,
        "",
    ],
)
def test_nothing_else_is_served(stand: Stand, path: str) -> None:
    """Casebook, hostile peers: traversal, links out, pipes, hidden files."""
    stand.ask(msgspec.structs.replace(GOOD, path=path))
    (answer,) = stand.answers()
    assert answer.status == STATUS_NOT_FOUND
    assert stand.server.figures.not_found == 1


def test_metadata_carries_a_tag_of_its_content_that_is_the_same_on_every_server(
    root: Path, tmp_path: Path
) -> None:
    copy = make_repository(tmp_path / "copy", {})
    tags = []
    for folder in (root, copy):
        stand = Stand(folder)
        stand.ask(msgspec.structs.replace(GOOD, path="metadata/timestamp.json", blocks=(0,)))
        tags.append(stand.answers()[0].tag)
        stand.files.close()
    assert tags[0] == tags[1] != 0


def test_a_file_that_was_replaced_is_not_served_as_what_it_was(stand: Stand) -> None:
    path = "metadata/timestamp.json"
    stand.ask(msgspec.structs.replace(GOOD, path=path, blocks=(0,)))
    (before,) = stand.answers()
    new = stand.root / "metadata" / "new"
    new.write_bytes(bytes(before.data).replace(b"1", b"2"))
    new.rename(stand.root / path)
    known = msgspec.structs.replace(
        GOOD, path=path, blocks=(0,), of_bytes=before.total_bytes, of_tag=before.tag
    )
    stand.ask(known)
    assert [block.status for block in stand.answers()] == [STATUS_CHANGED]
    stand.ask(msgspec.structs.replace(known, of_bytes=0, of_tag=0))
    (after,) = stand.answers()
    assert after.total_bytes == before.total_bytes
    assert after.tag != before.tag


def test_what_is_replaced_while_it_waits_is_seen_when_it_is_sent(stand: Stand) -> None:
    path = "metadata/timestamp.json"
    stand.ask(msgspec.structs.replace(GOOD, path=path, blocks=(0,)))
    while (event := stand.connection.next_event(0.0)) is not None:
        stand.server.take(event)
    (stand.root / path).unlink()
    assert [block.status for block in stand.answers()] == [STATUS_NOT_FOUND]


@pytest.mark.parametrize(
    "payload",
    [b"", b"\xff" * 100, b'{"json":1}', bytes(MAX_REQUEST_BYTES + 1), b"\x91" * 4000, os.urandom(512)],
    ids=["empty", "binary", "json", "large", "deep", "random"],
)
def test_poison_is_counted_and_the_next_good_request_is_answered(stand: Stand, payload: bytes) -> None:
    """Case 31, in its kind."""
    stand.ask(payload)
    assert stand.answers() == []
    assert stand.server.figures.bad == 1
    stand.ask(GOOD)
    assert len(stand.answers()) == 3


@pytest.mark.parametrize(
    "change",
    [{"v": 2}, {"block_bytes": 1}, {"blocks": ()}, {"blocks": tuple(range(65))}, {"path": "a" * 600}],
)
def test_who_asks_for_too_much_is_told_that_it_is_a_bad_request(
    stand: Stand, change: dict[str, object]
) -> None:
    stand.ask(msgspec.structs.replace(GOOD, **change))
    assert [block.status for block in stand.answers()] == [STATUS_BAD_REQUEST]
    assert stand.server.figures.bad == 1


def test_a_retained_request_is_nobodys(stand: Stand) -> None:
    stand.device.publish(Outgoing(DEVICE.block_request, encode_request(GOOD), qos=0, retain=True))
    stand.broker.go_away()
    stand.broker.come_back()
    # A shared subscription gets nothing retained; a broker that does not know that is borne with.
    stand.server.take(Arrived(DEVICE.block_request, encode_request(GOOD), retained=True, qos=0))
    stand.turn()
    assert stand.server.figures.bad == 1
    assert stand.server.figures.blocks == 0


def test_other_topics_are_none_of_its_business(stand: Stand) -> None:
    for topic in ("vedette/1/_announce/all", DEVICE.block_data, "vedette/1/a/b/blk/get/more", "other"):
        stand.server.take(Arrived(topic, encode_request(GOOD), retained=False, qos=0))
    assert stand.server.figures.requests == 0


def test_more_than_it_can_hold_is_busy_with_a_time_to_come_back(root: Path) -> None:
    stand = Stand(root, bytes_per_s=1000, queue=BlockQueue(limit_bytes=14_000))
    stand.ask(GOOD)
    other = DeviceTopics.of("plant-a", "cam-8")
    listener = stand.broker.connection([Subscription(other.block_data, qos=0)])
    listener.start()
    stand.ask(GOOD, device=other)
    stand.turn()
    refusals = [
        decode_data(message.payload)
        for message in stand.broker.published
        if message.topic == other.block_data
    ]
    assert [block.status for block in refusals] == [STATUS_BUSY]
    assert 200 <= refusals[0].offset <= 10_000
    assert stand.server.figures.busy == 1
    stand.files.close()


def test_the_rate_is_kept(root: Path) -> None:
    stand = Stand(root, bytes_per_s=1_000_000)
    start_ns = stand.clock.monotonic_ns()
    for number in range(500):
        stand.ask(msgspec.structs.replace(GOOD, request=number, xfer=str(number)))
        while (wait_s := stand.turn()) < 1.0:
            stand.clock.advance_s(wait_s + 1e-6)
        stand.received()
    took_s = (stand.clock.monotonic_ns() - start_ns) / 1e9
    assert stand.server.figures.sent_bytes == 500 * len(BLOB)
    assert stand.server.figures.sent_bytes / took_s < 1_050_000
    stand.files.close()


def test_what_the_network_does_not_take_is_not_lost(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.ask(GOOD)
    with monkeypatch.context() as full:
        full.setattr(stand.connection, "publish", lambda _message: None)
        assert 0 < stand.turn() < 0.1
    assert len(stand.answers()) == 3


def test_after_a_lost_connection_nothing_old_is_sent(stand: Stand) -> None:
    stand.ask(GOOD)
    stand.broker.go_away()
    stand.broker.come_back()
    stand.device.next_event(0.0)
    assert stand.answers() == []


def test_a_block_larger_than_the_broker_takes_is_a_bad_request(root: Path) -> None:
    stand = Stand(root)
    stand.broker.limits = msgspec.structs.replace(stand.broker.limits, max_packet_bytes=2000)
    stand.ask(msgspec.structs.replace(GOOD, blocks=(0, 1)))
    assert {block.status for block in stand.answers()} == {STATUS_BAD_REQUEST}
    stand.files.close()


def test_a_file_that_cannot_be_read_now_is_not_declared_absent(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptors(*_arguments: object, **_options: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", no_descriptors)
    for number in range(3):
        stand.ask(msgspec.structs.replace(GOOD, request=number))
    assert [block.status for block in stand.answers()] == [STATUS_BUSY] * 3
    assert len(stand.lines) == 1
    assert "Too many open files" in stand.lines[0]
    monkeypatch.undo()
    stand.ask(GOOD)
    assert len(stand.answers()) == 3


def test_many_files_do_not_cost_many_descriptors(root: Path) -> None:
    blobs = [bytes([number]) for number in range(50)]
    make_repository(root, {}, *blobs)
    stand = Stand(root)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough
    for blob in blobs:
        stand.ask(
            msgspec.structs.replace(GOOD, path=f"blobs/{hashlib.sha256(blob).hexdigest()}", blocks=(0,))
        )
        assert bytes(stand.answers()[0].data) == blob
    assert len(os.listdir("/proc/self/fd")) <= before + 4  # noqa: PTH208 - as above
    stand.files.close()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208 - as above


def test_one_line_says_how_a_transfer_went(stand: Stand) -> None:
    stand.ask(GOOD)
    stand.turn()
    stand.ask(msgspec.structs.replace(GOOD, xfer="y", path="blobs/evil\nline"))
    stand.turn()
    assert stand.lines == []
    stand.clock.advance_s(4)
    stand.turn()
    stand.turn()
    assert stand.lines == [
        f"plant-a/cam-7: {PATH}: 3 blocks, 10,000 bytes in 0.0 s",
        "plant-a/cam-7: blobs/evil?line: not there",
    ]


def test_a_flood_of_transfers_is_no_flood_of_lines(stand: Stand) -> None:
    """Case 58."""
    for number in range(6000):
        stand.ask(msgspec.structs.replace(GOOD, xfer=str(number), path="blobs/none"))
        stand.answers()
    stand.server.close()
    assert len(stand.lines) <= 25
    stand.clock.advance_s(10)
    stand.ask(GOOD)
    stand.turn()
    stand.server.close()
    assert any("lines were left out" in line for line in stand.lines)
    assert PATH in stand.lines[-1]
