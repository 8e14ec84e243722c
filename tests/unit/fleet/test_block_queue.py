"""What waits to be sent: within bounds, in turns, nothing twice and nothing stale."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.wire.blocks import BLOCK_EXPIRY_S, MAX_WINDOW, BlockRequest
from vedette.wire.topics import DeviceTopics
from vedette_fleet.block_queue import BlockQueue, ByteRate

S = 1_000_000_000
GREEDY, MODEST = DeviceTopics.of("a", "greedy"), DeviceTopics.of("a", "modest")
KIB = 1024


def ask(*blocks: int, block_bytes: int = 128 * KIB, request: int = 1, xfer: str = "x") -> BlockRequest:
    return BlockRequest(xfer, request, "blobs/a", block_bytes, blocks)


def drain(queue: BlockQueue, now_ns: int = 0) -> list[tuple[str, int]]:
    taken = []
    while (job := queue.take(now_ns)) is not None:
        taken.append((job.device.device, job.block))
    return taken


def test_devices_take_turns_however_much_one_of_them_asks() -> None:
    queue = BlockQueue()
    assert queue.offer(GREEDY, ask(*range(20)), 0)
    assert queue.offer(MODEST, ask(7, 8), 0)
    served = drain(queue)
    assert served[:4] == [("greedy", 0), ("modest", 7), ("greedy", 1), ("modest", 8)]
    assert len(served) == 22
    assert (queue.held_bytes, len(queue)) == (0, 0)


def test_turns_are_equal_in_bytes_and_not_in_blocks() -> None:
    queue = BlockQueue()
    queue.offer(GREEDY, ask(*range(16), block_bytes=128 * KIB), 0)
    queue.offer(MODEST, ask(*range(64), block_bytes=16 * KIB), 0)
    first = Counter(device for device, _ in drain(queue)[:18])
    assert first["modest"] == pytest.approx(8 * first["greedy"], rel=0.2)


def test_a_request_that_does_not_fit_is_refused_as_a_whole() -> None:
    queue = BlockQueue(limit_bytes=1 << 20)
    assert queue.offer(GREEDY, ask(*range(5)), 0)
    assert not queue.offer(MODEST, ask(*range(5)), 0)
    assert queue.offer(MODEST, ask(0, 1), 0)
    assert Counter(device for device, _ in drain(queue)) == {"greedy": 5, "modest": 2}


def test_one_device_cannot_take_all_of_the_room() -> None:
    queue = BlockQueue(limit_bytes=1 << 30, device_limit_bytes=10 * 130 * KIB)
    assert queue.offer(GREEDY, ask(*range(8)), 0)
    assert not queue.offer(GREEDY, ask(*range(8, 16)), 0)
    assert queue.offer(MODEST, ask(0), 0)


def test_the_largest_request_there_is_is_let_in_when_nothing_waits() -> None:
    assert BlockQueue().offer(GREEDY, ask(*range(MAX_WINDOW)), 0)


def test_what_waits_already_is_not_queued_twice_and_goes_under_the_newest_number() -> None:
    """No amplification: a device that is impatient gets each block once."""
    queue = BlockQueue()
    for number in range(1, 6):
        assert queue.offer(GREEDY, ask(0, 1, 1, request=number), 0)
    assert queue.repeated == 8
    jobs = [queue.take(0), queue.take(0), queue.take(0)]
    assert [None if job is None else (job.block, job.request.request) for job in jobs] == [
        (0, 5),
        (1, 5),
        None,
    ]


def test_other_transfers_and_sizes_of_block_are_not_the_same() -> None:
    queue = BlockQueue()
    queue.offer(GREEDY, ask(0), 0)
    queue.offer(GREEDY, ask(0, xfer="y"), 0)
    queue.offer(GREEDY, ask(0, block_bytes=512), 0)
    queue.offer(GREEDY, msgspec.structs.replace(ask(0), path="blobs/b"), 0)
    assert len(drain(queue)) == 4


def test_what_waited_too_long_is_dropped_and_what_was_asked_again_is_not() -> None:
    queue = BlockQueue()
    queue.offer(GREEDY, ask(0, 1), 0)
    queue.offer(GREEDY, ask(1, request=2), 20 * S)
    assert drain(queue, (BLOCK_EXPIRY_S + 1) * S) == [("greedy", 1)]
    assert queue.expired == 1


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3),  # device
            st.lists(st.integers(0, 20), min_size=1, max_size=8),
            st.sampled_from([512, 4096, 131_072]),
            st.integers(0, 6),  # blocks taken afterwards
        ),
        max_size=40,
    )
)
def test_its_books_balance_and_its_bounds_hold(steps: list[tuple[int, list[int], int, int]]) -> None:
    limit = 1 << 20
    queue = BlockQueue(limit_bytes=limit, device_limit_bytes=limit // 2)
    waiting: set[tuple[int, int, int]] = set()
    for device, blocks, block_bytes, takes in steps:
        request = ask(*blocks, block_bytes=block_bytes)
        if queue.offer(DeviceTopics.of("s", f"d{device}"), request, 0):
            waiting |= {(device, block_bytes, block) for block in blocks}
        assert queue.held_bytes <= limit
        assert len(queue) == len(waiting)
        for _ in range(takes):
            job = queue.take(0)
            assert (job is None) == (not waiting)
            if job is not None:
                waiting.remove((int(job.device.device[1:]), job.request.block_bytes, job.block))
    assert len(drain(queue)) == len(waiting)
    assert queue.held_bytes == 0


def test_a_rate_is_kept_over_time_and_after_a_pause_no_flood_follows() -> None:
    rate = ByteRate(1_000_000, 0)
    now_ns, sent = 0, 0
    while now_ns < 10 * S:
        wait_s = rate.wait_s(now_ns)
        if wait_s > 0:
            now_ns += round(wait_s * 1e9) + 1
            continue
        rate.spend(100_000)
        sent += 100_000
    assert 10_000_000 <= sent <= 10_400_000
    now_ns += 3600 * S
    burst = 0
    while rate.wait_s(now_ns) == 0:
        rate.spend(100_000)
        burst += 1
    assert burst <= 3


def test_without_a_rate_nothing_waits() -> None:
    rate = ByteRate(None, 0)
    rate.spend(1 << 40)
    assert rate.wait_s(0) == 0
