"""The window brings files in through any weather, asks for nothing twice without a cause, and ends."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.link.block_network import MS, Network, S, Weather, data_block

from vedette.errors import ChangedError, NotFoundError, UnavailableError
from vedette.link.block_window import MAX_ASKS, BlockFigures, BlockWindow
from vedette.wire.blocks import (
    MAX_WINDOW,
    STATUS_BAD_REQUEST,
    STATUS_BUSY,
    STATUS_CHANGED,
    STATUS_NOT_FOUND,
    BlockRequest,
    decode_data,
    encode_data,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENT = random.Random(1).randbytes(300_000)  # noqa: S311 - test content
BLOCK = 1024


def make_window(
    start: int = 0,
    end: int = len(CONTENT),
    *,
    draw: Callable[[], float] = lambda: 0.5,
    figures: BlockFigures | None = None,
    block_bytes: int = BLOCK,
    buffer_bytes: int = 2 << 20,
    absences: int = 1,
    up_to: bool = False,
) -> BlockWindow:
    return BlockWindow(
        "blobs/x",
        xfer="t",
        block_bytes=block_bytes,
        start=start,
        end=end,
        draw=draw,
        figures=figures or BlockFigures(),
        up_to=up_to,
        absences=absences,
        buffer_bytes=buffer_bytes,
    )


def word(status: int, request: BlockRequest, *, retry_after_ms: int = 0) -> bytes:
    """An answer without a block."""
    return encode_data(status=status, xfer=request.xfer, request=request.request, offset=retry_after_ms)


@given(
    weather=st.builds(
        Weather,
        drop=st.floats(0, 0.3),
        duplicate=st.floats(0, 0.5),
        late=st.floats(0, 0.5),
        stray=st.floats(0, 0.3),
    ),
    start=st.integers(0, 60_000),
    size=st.integers(1, 60_000),
    block_bytes=st.sampled_from([512, 1000, 4096]),
    seed=st.integers(0, 1 << 32),
)
@settings(max_examples=60, deadline=None)
def test_it_completes_in_any_weather_and_gives_the_right_bytes_once(
    weather: Weather, start: int, size: int, block_bytes: int, seed: int
) -> None:
    network = Network(CONTENT, weather, seed=seed)
    end = min(start + size, len(CONTENT))
    window = make_window(start, end, draw=network.draw, block_bytes=block_bytes)
    given_up = False
    try:
        assert network.run(window) == CONTENT[start:end]
    except UnavailableError:
        given_up = True
    # With a third of all messages lost, eight tries of one block may well fail.
    assert not given_up or weather.drop > 0.1


@given(seed=st.integers(0, 1 << 32), shape=st.sampled_from(["drop", "duplicate", "late"]))
@settings(max_examples=40, deadline=None)
def test_with_one_block_in_twenty_lost_doubled_or_late_no_more_is_fetched_again_than_was_lost(
    seed: int, shape: str
) -> None:
    figures = BlockFigures()
    network = Network(CONTENT, Weather(**{shape: 0.05}), seed=seed)  # type: ignore[arg-type]
    assert network.run(make_window(draw=network.draw, figures=figures)) == CONTENT
    assert figures.asked_again_bytes <= 1.2 * network.traffic.lost_bytes
    if shape != "drop":
        assert figures.asked_again == 0


@given(seed=st.integers(0, 1 << 32), drop=st.floats(0, 0.2), late=st.floats(0, 0.2))
@settings(max_examples=40, deadline=None)
def test_a_block_is_asked_for_again_only_after_its_time_and_no_more_are_under_way_than_fit(
    seed: int, drop: float, late: float
) -> None:
    network = Network(CONTENT, Weather(drop=drop, late=late), seed=seed)
    try:
        network.run(make_window(draw=network.draw, buffer_bytes=16 * BLOCK))
    except UnavailableError:
        assert drop > 0
    asked_ns: dict[int, int] = {}
    for at_ns, request in network.traffic.requests:
        assert len(request.blocks) <= 16
        for number in request.blocks:
            # The shortest patience there is; so no network can make it ask quicker.
            assert at_ns - asked_ns.get(number, -S) >= 250 * MS
            asked_ns[number] = at_ns


def test_in_good_weather_each_block_is_asked_for_once_and_the_window_grows() -> None:
    network = Network(CONTENT, Weather(jitter_ns=0))
    assert network.run(make_window(draw=network.draw)) == CONTENT
    asked = Counter(number for _, request in network.traffic.requests for number in request.blocks)
    assert set(asked.values()) == {1}
    # 293 blocks at 20 ms a round trip would take 2.9 s with two under way.
    assert network.now_ns < S


def test_behind_a_bottleneck_few_blocks_queue_up() -> None:
    """A broker drops what waits too long, and 2 MB in a queue of 1 MB/s are two seconds."""
    network = Network(CONTENT * 10, Weather(bytes_per_s=1e6, jitter_ns=0, latency_ns=1 * MS))
    under_way, most = 0, 0

    def count(request: BlockRequest, _now_ns: int) -> None:
        nonlocal under_way, most
        under_way += len(request.blocks)
        most = max(most, under_way - came())

    window = make_window(0, len(CONTENT) * 10, draw=network.draw, block_bytes=8192)

    def came() -> int:
        return len([None for block in network.traffic.sent_blocks.values() if block])

    network._answer = count
    assert network.run(window) == CONTENT * 10
    assert most < 32
    assert network.now_ns < 4 * S


def test_on_a_link_of_20_kilobytes_a_second_nearly_nothing_is_sent_twice() -> None:
    """Case 40: 8 MB at that speed, in the largest blocks, of which one takes 6.5 s."""
    figures = BlockFigures()
    content = CONTENT * 27
    network = Network(content, Weather(bytes_per_s=20_000, latency_ns=100 * MS))
    window = make_window(0, len(content), draw=network.draw, block_bytes=128 << 10, figures=figures)
    assert network.run(window) == content
    assert network.traffic.sent_bytes <= 1.1 * len(content)
    assert network.now_ns <= 1.15 * len(content) / 20_000 * S


def test_a_network_that_slows_down_a_thousandfold_is_not_flooded() -> None:
    figures = BlockFigures()
    network = Network(CONTENT, Weather(latency_ns=1 * MS, jitter_ns=0))

    def slow_down(request: BlockRequest, _now_ns: int) -> None:
        if max(request.blocks) > 50:
            network.weather.latency_ns = 1000 * MS

    network._answer = slow_down
    assert network.run(make_window(draw=network.draw, figures=figures)) == CONTENT
    # What was under way is asked for again two or three times, until the first answer says how long it takes.
    assert figures.asked_again <= 3 * MAX_WINDOW


def test_memory_is_bounded_while_the_first_block_stays_away() -> None:
    """The adversary delivers everything but the first block."""
    asked: set[int] = set()

    def without_first(request: BlockRequest, _now_ns: int) -> list[bytes]:
        asked.update(request.blocks)
        return [data_block(CONTENT, request, number) for number in request.blocks if number]

    network = Network(CONTENT, Weather(), answer=without_first)
    with pytest.raises(UnavailableError, match=f"block 0 was asked for {MAX_ASKS} times"):
        network.run(make_window(draw=network.draw, buffer_bytes=8 * BLOCK))
    assert asked == set(range(8))


def test_duplicates_and_strays_cause_no_request() -> None:
    """FreeRTOS 3109: each duplicate made the device ask again, and each answer came twice."""
    window = make_window(0, 2 * BLOCK)
    request = window.request(0)
    assert request is not None
    first = decode_data(data_block(CONTENT, request, 0))
    assert window.take(first, 1 * MS)
    for _ in range(100):
        assert not window.take(first, 2 * MS)
        assert window.request(2 * MS) is None
    stale = encode_data(status=0, xfer="other", request=1, offset=BLOCK, total_bytes=len(CONTENT), data=b"x")
    assert not window.take(decode_data(stale), 3 * MS)
    assert bytes(window.pop() or b"") == CONTENT[:BLOCK]
    assert not window.take(first, 4 * MS)
    assert window.request(5 * MS) is None


def test_a_timer_runs_for_every_block_from_before_it_is_sent() -> None:
    """Field: the request was lost in a full queue, and nothing ever asked again."""
    window = make_window(0, 2 * BLOCK)
    request = window.request(0)
    assert request is not None
    due_ns = window.next_due_ns()
    assert due_ns is not None
    assert window.request(due_ns - 1) is None
    # One timer is not the other one's, but both run out within the jitter.
    again = window.request(due_ns + 1 * S)
    assert again is not None
    assert again.blocks == request.blocks
    assert again.request != request.request


def test_blocks_of_the_wrong_place_or_length_are_not_kept() -> None:
    figures = BlockFigures()
    window = make_window(figures=figures)
    request = window.request(0)
    assert request is not None
    for offset, data in ((1, bytes(BLOCK)), (0, bytes(BLOCK - 1)), (0, b""), (BLOCK * 40, bytes(BLOCK))):
        block = encode_data(
            status=0, xfer="t", request=request.request, offset=offset, total_bytes=len(CONTENT), data=data
        )
        assert not window.take(decode_data(block), 1)
    assert (figures.damaged, figures.unasked) == (3, 1)
    assert window.pop() is None


def test_the_connection_is_another_one_so_all_is_asked_for_again_at_once_and_nobody_is_blamed() -> None:
    window = make_window()
    for turn in range(3 * MAX_ASKS):
        request = window.request(turn)
        assert request is not None, "it was not asked for again, or was given up"
        assert request.blocks == (0, 1)
        window.forget_flight(turn)


@pytest.mark.parametrize(("absences", "asks"), [(1, 1), (3, 3)])
def test_nobody_has_the_file(absences: int, asks: int) -> None:
    network = Network(CONTENT, Weather(), answer=lambda request, _: [word(STATUS_NOT_FOUND, request)])
    with pytest.raises(NotFoundError):
        network.run(make_window(draw=network.draw, absences=absences))
    assert len(network.traffic.requests) == asks


def test_one_server_of_two_lacks_the_file() -> None:
    turns = iter(range(1 << 20))

    def every_other(request: BlockRequest, _now_ns: int) -> list[bytes] | None:
        return [word(STATUS_NOT_FOUND, request)] if next(turns) % 2 == 0 else None

    network = Network(CONTENT, Weather(), answer=every_other)
    assert network.run(make_window(0, 20_000, draw=network.draw, absences=3)) == CONTENT[:20_000]


def test_a_file_that_is_withdrawn_meanwhile_is_not_found() -> None:
    def later_gone(request: BlockRequest, _now_ns: int) -> list[bytes] | None:
        return [word(STATUS_NOT_FOUND, request)] if request.blocks[0] > 20 else None

    network = Network(CONTENT, Weather(), answer=later_gone)
    with pytest.raises(NotFoundError):
        network.run(make_window(draw=network.draw))


@pytest.mark.parametrize("how", ["said", "size", "tag"])
def test_a_file_that_changes_meanwhile_is_not_spliced(how: str) -> None:
    def change(request: BlockRequest, _now_ns: int) -> list[bytes] | None:
        if request.blocks[0] < 10:
            return None
        if how == "said":
            return [word(STATUS_CHANGED, request)]
        other = CONTENT if how == "tag" else CONTENT + b"more"
        return [data_block(other, request, number, tag=8) for number in request.blocks]

    network = Network(CONTENT, Weather(), answer=change)
    with pytest.raises(ChangedError):
        network.run(make_window(draw=network.draw))


def test_requests_name_the_size_and_tag_that_were_told() -> None:
    network = Network(CONTENT, Weather())
    network.run(make_window(draw=network.draw))
    first, last = network.traffic.requests[0][1], network.traffic.requests[-1][1]
    assert (first.of_bytes, first.of_tag) == (0, 0)
    assert (last.of_bytes, last.of_tag) == (len(CONTENT), 7)


def test_a_blob_that_is_shorter_there_than_was_signed() -> None:
    network = Network(CONTENT[:10_000], Weather())
    with pytest.raises(UnavailableError, match="ends at byte 10000 of 300000"):
        network.run(make_window(draw=network.draw))


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5000, 5001, 20_000])
def test_a_file_of_unknown_size_ends_where_it_ends_or_at_the_limit(size: int) -> None:
    network = Network(CONTENT[:size], Weather())
    window = make_window(0, 5001, draw=network.draw, up_to=True)
    assert network.run(window) == CONTENT[: min(size, 5001)]
    assert network.traffic.requests[0][1].blocks == (0,)


def test_busy_servers_are_left_alone_as_long_as_they_say_and_cost_no_try() -> None:
    busy_until_ns = 20 * S
    asked_ns: list[int] = []

    def busy(request: BlockRequest, now_ns: int) -> list[bytes] | None:
        asked_ns.append(now_ns)
        return [word(STATUS_BUSY, request, retry_after_ms=1000)] if now_ns < busy_until_ns else None

    network = Network(CONTENT, Weather(), answer=busy)
    assert network.run(make_window(0, 50_000, draw=network.draw)) == CONTENT[:50_000]
    refused = [at_ns for at_ns in asked_ns if at_ns < busy_until_ns]
    assert MAX_ASKS < len(refused) < 22
    pauses = [after - before for before, after in itertools.pairwise(refused)]
    assert min(pauses) >= 1 * S
    assert len(set(pauses)) > 1, "all devices would come back at the same moment"


@pytest.mark.parametrize("retry_after_ms", [0, 1 << 60])
def test_nonsense_of_a_busy_server_neither_floods_nor_stops_for_ever(retry_after_ms: int) -> None:
    """Case 49, in its kind."""
    window = make_window()
    request = window.request(0)
    assert request is not None
    window.take(decode_data(word(STATUS_BUSY, request, retry_after_ms=retry_after_ms)), 0)
    assert 100 * MS <= window.paused_until_ns <= 60 * S
    assert window.next_due_ns() == window.paused_until_ns
    assert window.request(window.paused_until_ns - 1) is None
    assert window.request(window.paused_until_ns) is not None


def test_a_server_that_does_not_understand_us() -> None:
    network = Network(CONTENT, Weather(), answer=lambda request, _: [word(STATUS_BAD_REQUEST, request)])
    with pytest.raises(UnavailableError, match="does not understand"):
        network.run(make_window(draw=network.draw))


def test_an_unknown_status_is_no_block() -> None:
    figures = BlockFigures()
    window = make_window(figures=figures)
    request = window.request(0)
    assert request is not None
    assert not window.take(decode_data(word(99, request)), 0)
    assert figures.damaged == 1
