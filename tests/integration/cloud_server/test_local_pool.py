"""The pool with real processes over engines that hang, die and fail on purpose."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.stubs.running import stub_bundle, worker

from vedette.api.refusal import RequestRefusedError
from vedette.api.request_frames import RequestFrame
from vedette.clock import SystemClock
from vedette.errors import BundleError, VedetteError
from vedette.wire.pixels import PixelFormat, describe
from vedette_cloud.batching import BatchLimits
from vedette_cloud.local_pool import LocalPool
from vedette_cloud.messages import Answer, ChildSpec
from vedette_cloud.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

MB = 1 << 20
# The stub's calls before the first request: its own check, and one warm-up.
FIRST = 2


def with_pool(
    folder: Path,
    story: Callable[[LocalPool], Awaitable[None]],
    *,
    run_timeout_s: float = 10.0,
    queue_bytes: int = 64 * MB,
    **options: str,
) -> list[str]:
    """Play a story with a pool of one process; what it said."""
    said: list[str] = []
    spec = ChildSpec(worker(stub_bundle(folder / "bundle"), **options), 1)

    async def play() -> None:
        pool = LocalPool(
            spec,
            BatchLimits(1, 0, queue_bytes),
            processes=1,
            run_timeout_s=run_timeout_s,
            clock=SystemClock(),
            meter=Metrics(),
            say=said.append,
        )
        try:
            await pool.start()
            await story(pool)
        finally:
            await pool.close()

    asyncio.run(asyncio.wait_for(play(), 60))
    return said


async def ask(pool: LocalPool, timeout_s: float = 20.0) -> Answer:
    now_ns = time.monotonic_ns()
    frame_format = describe(8, 8, PixelFormat.BGR24)
    frame = RequestFrame(frame_format, (memoryview(bytes(frame_format.frame_bytes)),))
    return await pool.ask(frame, captured_ns=now_ns, deadline_ns=now_ns + round(timeout_s * 1e9))


async def status_of(request: Awaitable[Answer]) -> int:
    try:
        answer = await request
    except RequestRefusedError as refusal:
        return refusal.status
    return 500 if answer.result.failed else 200


def test_a_crash_costs_the_request_in_hand_and_the_one_behind_it_is_answered(tmp_path: Path) -> None:
    async def story(pool: LocalPool) -> None:
        assert await status_of(ask(pool)) == 200
        first, second = await asyncio.gather(status_of(ask(pool)), status_of(ask(pool)))
        assert (first, second) == (503, 200)

    said = with_pool(tmp_path, story, crash_on=str(FIRST + 2))
    assert any("killed by SIGSEGV" in line for line in said), said


def test_a_run_that_hangs_is_ended_and_the_next_is_answered(tmp_path: Path) -> None:
    async def story(pool: LocalPool) -> None:
        assert await status_of(ask(pool)) == 200
        assert await status_of(ask(pool)) == 503
        assert await status_of(ask(pool)) == 200

    said = with_pool(tmp_path, story, run_timeout_s=1.0, hang_on=str(FIRST + 2))
    assert any("did not answer within 1 s" in line for line in said), said


def test_a_run_that_fails_is_told_and_costs_no_process(tmp_path: Path) -> None:
    async def story(pool: LocalPool) -> None:
        pids = pool.pids
        assert await status_of(ask(pool)) == 500
        assert await status_of(ask(pool)) == 200
        assert pool.pids == pids

    with_pool(tmp_path, story, raise_on=str(FIRST + 1))


def test_who_waits_too_long_hears_so_and_a_full_queue_refuses_at_once(tmp_path: Path) -> None:
    async def story(pool: LocalPool) -> None:
        slow = [asyncio.create_task(status_of(ask(pool, timeout_s))) for timeout_s in (20, 0.2)]
        await asyncio.sleep(0)  # they are in the queue, or before the model
        statuses = await asyncio.gather(*(status_of(ask(pool, 20)) for _ in range(4)))
        assert 503 in statuses
        assert await asyncio.gather(*slow) == [200, 504]

    with_pool(tmp_path, story, run_s="0.6", queue_bytes=3 * 5000)


def test_a_bundle_that_cannot_be_served_is_told_at_the_start(tmp_path: Path) -> None:
    async def story(_: LocalPool) -> None:
        pytest.fail("it started")

    with pytest.raises(VedetteError) as caught:
        with_pool(tmp_path, story, load_fail="bundle")
    assert caught.value.exit_code == BundleError.exit_code
