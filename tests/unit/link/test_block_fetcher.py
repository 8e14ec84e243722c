"""The fetcher without a network: a server that answers at once, silence, and lost connections."""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.waiting import until
from tests.unit.link.block_network import data_block

from vedette.clock import SystemClock
from vedette.errors import BadInputError, ChangedError, NotFoundError, UnavailableError
from vedette.link.block_fetcher import BlockFetcher
from vedette.link.block_inbox import BlockInbox
from vedette.mqtt.port import Limits, Outgoing
from vedette.wire.blocks import (
    BLOCK_EXPIRY_S,
    MAX_BLOCK_BYTES,
    STATUS_BAD_REQUEST,
    STATUS_BUSY,
    STATUS_CHANGED,
    STATUS_NOT_FOUND,
    BlockRequest,
    decode_request,
    encode_data,
    request_fault,
)
from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPICS = DeviceTopics.of("plant-a", "cam-7")
CONTENT = random.Random(1).randbytes(1_000_000)  # noqa: S311 - test content
SHA256 = hashlib.sha256(CONTENT).hexdigest()
LIMITS = Limits(5, 256 << 10, 20)
ROLE = b'{"signed":{}}' * 20_000


class Plane:
    """A fetcher, and a server that answers while it is asked; `answer` may say something else."""

    def __init__(self, *, stall_s: float = 5.0, interruption: _Flag | None = None) -> None:
        self.files = {f"blobs/{SHA256}": CONTENT, "metadata/1.root.json": ROLE}
        self.inbox = BlockInbox(SystemClock())
        self.inbox.connected(LIMITS)
        self.requests: list[BlockRequest] = []
        self.messages: list[Outgoing] = []
        self.answer: Callable[[BlockRequest], list[bytes]] = self.honest
        self.fetcher = BlockFetcher(
            TOPICS,
            self._publish,
            self.inbox,
            clock=SystemClock(),
            draw=lambda: 0.5,
            stall_s=stall_s,
            interruption=interruption,
        )

    def honest(self, request: BlockRequest) -> list[bytes]:
        content = self.files.get(request.path)
        if content is None:
            return [word(request, STATUS_NOT_FOUND)]
        return [data_block(content, request, number) for number in request.blocks]

    def silent(self, _request: BlockRequest) -> list[bytes]:
        return []

    def whole(self) -> bytes:
        return b"".join(self.fetcher.blob(SHA256, 0, len(CONTENT)))

    def _publish(self, message: Outgoing) -> int:
        self.messages.append(message)
        request = decode_request(message.payload)
        assert request_fault(request) is None
        self.requests.append(request)
        for payload in self.answer(request):
            self.inbox.arrived(payload)
        return 1


class _Flag:
    """An interruption, as `update.interruption` has one."""

    def __init__(self) -> None:
        self.is_set = False
        self.listeners: list[Callable[[], None]] = []

    @contextlib.contextmanager
    def told(self, listener: Callable[[], None]) -> Iterator[None]:
        self.listeners.append(listener)
        try:
            yield
        finally:
            self.listeners.remove(listener)


def word(request: BlockRequest, status: int, retry_after_ms: int = 0) -> bytes:
    return encode_data(status=status, xfer=request.xfer, request=request.request, offset=retry_after_ms)


def test_a_blob_comes_and_requests_go_on_the_devices_own_topic_and_do_not_outlive_their_use() -> None:
    plane = Plane()
    assert plane.whole() == CONTENT
    first = plane.messages[0]
    assert (first.topic, first.qos, first.retain) == ("vedette/1/plant-a/cam-7/blk/get", 0, False)
    assert first.expiry_s == BLOCK_EXPIRY_S
    assert {request.block_bytes for request in plane.requests} == {MAX_BLOCK_BYTES}


@pytest.mark.parametrize(
    ("broker_bytes", "block_bytes"),
    [(256 << 10, 131_072), (131_072, 126_976), (9000, 8192), (4000, 3488), (1024, 512)],
)
def test_blocks_are_as_large_as_the_brokers_packets_allow(broker_bytes: int, block_bytes: int) -> None:
    plane = Plane()
    plane.inbox.connected(Limits(5, broker_bytes, 20))
    assert b"".join(plane.fetcher.blob(SHA256, 1000, 9000)) == CONTENT[1000:9000]
    assert {request.block_bytes for request in plane.requests} == {block_bytes}


def test_a_broker_with_tiny_packets_is_named() -> None:
    plane = Plane()
    plane.inbox.connected(Limits(5, 1023, 20))
    with pytest.raises(UnavailableError, match="packets of 1023 bytes"):
        plane.whole()


def test_metadata_is_cut_one_byte_after_the_limit() -> None:
    plane = Plane()
    assert b"".join(plane.fetcher.metadata("metadata/1.root.json", 1 << 20)) == ROLE
    assert b"".join(plane.fetcher.metadata("metadata/1.root.json", 200_000)) == ROLE[:200_001]


def test_what_is_not_there_is_not_found_after_one_question_so_that_the_walk_over_roots_ends() -> None:
    plane = Plane()
    with pytest.raises(NotFoundError, match=r"metadata/2\.root\.json over MQTT"):
        list(plane.fetcher.metadata("metadata/2.root.json", 100))
    assert len(plane.requests) == 1


def test_metadata_that_changes_meanwhile_is_fetched_anew() -> None:
    plane = Plane()
    plane.files["metadata/1.root.json"] = old = bytes(300_000)

    def change(request: BlockRequest) -> list[bytes]:
        if 1 in request.blocks:
            plane.files["metadata/1.root.json"] = ROLE
            plane.answer = plane.honest
            return [word(request, STATUS_CHANGED)]
        return [data_block(old, request, number) for number in request.blocks]

    plane.answer = change
    assert b"".join(plane.fetcher.metadata("metadata/1.root.json", 1 << 20)) == ROLE
    assert len({request.xfer for request in plane.requests}) == 2


def test_metadata_that_never_stays_the_same_ends_with_that_word() -> None:
    plane = Plane()
    plane.answer = lambda request: [word(request, STATUS_CHANGED)]
    with pytest.raises(ChangedError):
        list(plane.fetcher.metadata("metadata/1.root.json", 1 << 20))
    assert len(plane.requests) == 4


def test_without_a_connection_nothing_is_waited_for_and_the_reason_is_told() -> None:
    plane = Plane(stall_s=60.0)
    plane.inbox.lost("tls_expired: the broker's certificate expired on Tuesday")
    with pytest.raises(UnavailableError, match="not connected to the broker: tls_expired"):
        plane.whole()
    assert plane.requests == []


def test_no_server_answers() -> None:
    plane = Plane(stall_s=0.2)
    plane.answer = plane.silent
    with pytest.raises(UnavailableError, match=r"no block came for 0\.2 s") as raised:
        plane.whole()
    assert "serve-blocks" in str(raised.value.cure)
    assert not plane.fetcher.reachable()


def test_all_servers_are_busy_and_say_for_how_long() -> None:
    plane = Plane(stall_s=0.2)
    plane.answer = lambda request: [word(request, STATUS_BUSY, retry_after_ms=5000)]
    with pytest.raises(UnavailableError, match="busy") as raised:
        plane.whole()
    assert raised.value.retry_after_s is not None
    assert 4 < raised.value.retry_after_s <= 10


def test_a_server_that_does_not_understand_is_not_asked_again_and_again() -> None:
    plane = Plane()
    plane.answer = lambda request: [word(request, STATUS_BAD_REQUEST)]
    with pytest.raises(UnavailableError, match="does not understand"):
        plane.whole()
    assert len(plane.requests) == 1


def test_a_server_is_reachable_whatever_it_says() -> None:
    plane = Plane()
    assert plane.fetcher.reachable()
    plane.files["metadata/timestamp.json"] = b"{}"
    assert plane.fetcher.reachable()


def test_damaged_blocks_are_dropped_and_asked_for_again() -> None:
    plane = Plane()

    def damage_once(request: BlockRequest) -> list[bytes]:
        answers = plane.honest(request)
        if 2 in request.blocks:
            plane.answer = plane.honest
            place = request.blocks.index(2)
            harmed = bytearray(answers[place])
            harmed[-1] ^= 1
            answers[place] = bytes(harmed)
        return answers

    plane.answer = damage_once
    assert plane.whole() == CONTENT
    assert plane.fetcher.figures.damaged == 1
    assert plane.fetcher.figures.asked_again == 1


def test_what_comes_for_others_or_for_nobody_is_dropped_at_once_and_held_by_nobody() -> None:
    plane = Plane()
    stale = encode_data(status=0, xfer="stale", request=1, total_bytes=100_000, data=bytes(100_000))
    for _ in range(1000):
        plane.inbox.arrived(stale)
        plane.inbox.arrived(b"not a block")
    assert plane.inbox.foreign == 2000
    assert plane.whole() == CONTENT


def test_what_waits_is_bounded_in_bytes_and_what_was_dropped_is_asked_for_again() -> None:
    plane = Plane()
    plane.inbox = BlockInbox(SystemClock(), limit_bytes=4096 + 200)
    plane.inbox.connected(Limits(5, 5000, 20))
    plane.fetcher = BlockFetcher(
        TOPICS, plane._publish, plane.inbox, clock=SystemClock(), draw=lambda: 0.0, stall_s=20.0
    )
    assert b"".join(plane.fetcher.blob(SHA256, 0, 8192)) == CONTENT[:8192]
    assert plane.inbox.dropped == 1


def _fetch_on_a_thread(plane: Plane) -> tuple[threading.Thread, list[object]]:
    outcome: list[object] = []

    def fetch() -> None:
        try:
            outcome.append(plane.whole())
        except UnavailableError as error:
            outcome.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    return thread, outcome


def test_a_transfer_that_waits_is_cancelled_at_once_and_the_next_one_is_not() -> None:
    plane = Plane(stall_s=60.0)
    plane.answer = plane.silent
    thread, outcome = _fetch_on_a_thread(plane)
    until(lambda: plane.requests, "it asked")
    began_s = time.monotonic()
    plane.fetcher.cancel()
    thread.join(30.0)
    assert time.monotonic() - began_s < 30.0, "it waited for the stall"
    assert isinstance(outcome[0], UnavailableError)
    assert "given up" in outcome[0].cause
    plane.answer = plane.honest
    assert plane.whole() == CONTENT


def test_an_interruption_ends_what_is_under_way_and_refuses_what_would_begin() -> None:
    flag = _Flag()
    plane = Plane(interruption=flag)
    pieces = plane.fetcher.blob(SHA256, 0, len(CONTENT))
    next(pieces)
    flag.is_set = True
    for listener in flag.listeners:
        listener()
    with pytest.raises(UnavailableError, match="given up"):
        list(pieces)
    assert flag.listeners == []
    with pytest.raises(UnavailableError, match="given up"):
        plane.whole()


def test_a_connection_that_comes_back_in_time_goes_on_and_asks_again_at_once() -> None:
    plane = Plane(stall_s=30.0)

    def lose_the_rest(request: BlockRequest) -> list[bytes]:
        if max(request.blocks) < 3:
            return plane.honest(request)
        plane.inbox.lost("closed: the broker was restarted")
        return []

    plane.answer = lose_the_rest
    thread, outcome = _fetch_on_a_thread(plane)
    until(lambda: plane.inbox.standing.limits is None, "the connection was lost")
    plane.answer = plane.honest
    plane.inbox.connected(LIMITS)
    thread.join(2.0)
    assert outcome == [CONTENT]


def test_a_connection_that_stays_away_ends_it_within_the_stall_limit() -> None:
    plane = Plane(stall_s=0.3)

    def lose(request: BlockRequest) -> list[bytes]:
        plane.inbox.lost("unreachable: no route to host")
        return plane.honest(request)[:1]

    plane.answer = lose
    with pytest.raises(UnavailableError, match="not connected to the broker: unreachable"):
        plane.whole()


def test_a_broker_that_comes_back_with_smaller_packets_ends_it_and_the_next_try_fits() -> None:
    plane = Plane()
    pieces = plane.fetcher.blob(SHA256, 0, len(CONTENT))
    got = next(pieces)
    plane.inbox.lost("closed")
    plane.inbox.connected(Limits(5, 20_000, 20))
    with pytest.raises(UnavailableError, match="smaller packets"):
        list(pieces)
    rest = b"".join(plane.fetcher.blob(SHA256, len(got), len(CONTENT)))
    assert got + rest == CONTENT
    assert plane.requests[-1].block_bytes == 16_384


def test_a_link_too_slow_for_large_blocks_gets_smaller_ones() -> None:
    """Case 40: 2 KB/s would never bring 128 KiB within a stall limit of 30 s."""
    plane = Plane(stall_s=0.1)

    def only_small(request: BlockRequest) -> list[bytes]:
        return plane.honest(request) if request.block_bytes <= 16_384 else []

    plane.answer = only_small
    for _ in range(3):
        with pytest.raises(UnavailableError, match="no block came"):
            plane.whole()
    assert plane.whole() == CONTENT
    sizes = [request.block_bytes for request in plane.requests]
    assert sizes == sorted(sizes, reverse=True)
    plane.answer = plane.honest
    for _ in range(3):
        assert plane.whole() == CONTENT
    assert plane.requests[-1].block_bytes == MAX_BLOCK_BYTES


def test_a_slow_reader_is_not_taken_for_a_silent_server() -> None:
    plane = Plane(stall_s=0.2)
    got = bytearray()
    pause = threading.Event()
    for number, piece in enumerate(plane.fetcher.blob(SHA256, 0, 400_000)):
        got += piece
        if number == 1:
            pause.wait(0.5)  # a disk that syncs
    assert got == CONTENT[:400_000]


def test_a_request_that_the_broker_would_never_take_is_an_error_with_its_cause() -> None:
    plane = Plane()

    def refuse(_message: Outgoing) -> None:
        raise BadInputError("a packet of 300 bytes is above the broker's limit")

    plane.fetcher = BlockFetcher(TOPICS, refuse, plane.inbox, clock=SystemClock(), draw=lambda: 0.5)
    with pytest.raises(UnavailableError, match="above the broker's limit"):
        plane.whole()


def test_several_transfers_at_a_time_do_not_mix() -> None:
    plane = Plane()
    first = plane.fetcher.blob(SHA256, 0, len(CONTENT))
    head = next(first)
    assert b"".join(plane.fetcher.metadata("metadata/1.root.json", 1 << 20)) == ROLE
    assert head + b"".join(first) == CONTENT
