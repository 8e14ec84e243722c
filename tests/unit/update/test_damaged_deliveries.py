"""Nobody signs for the road: what was damaged or missing on one delivery says nothing of the release."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import Behaviour, Box, CountingFetcher, FakeTrust, offer_of
from tests.unit.update.test_driver_interrupted import answer

from vedette.errors import UnavailableError
from vedette.update.causes import Cause, Result
from vedette.update.looking import Road
from vedette.update.phases import Phase
from vedette.wire.release import EncodingKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY_S = 86400.0


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


def flip(blob: Path) -> None:
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(content)


HARMS: dict[str, tuple[Callable[[Path], None], Cause]] = {
    "a bit flipped": (flip, Cause.HASH_MISMATCH),
    "gone": (lambda blob: blob.unlink(), Cause.BLOB_MISSING),
}


class Delivery:
    """Release 1 on a road whose full blob of the weights is harmed, and the same release intact elsewhere."""

    def __init__(self, box: Box, harm: Callable[[Path], None]) -> None:
        self.box = box
        manifest = box.offer(1)
        repository = box.publisher.folder / "repository"
        self.intact = box.folder / "intact"
        shutil.copytree(repository, self.intact)
        self.blob = box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL)
        harm(self.blob)

    def stick(self) -> Road:
        trust = FakeTrust()
        trust.offer = self.box.trust.offer
        return Road(trust, CountingFetcher(self.intact), place="a stick")


@pytest.mark.parametrize(("harm", "cause"), HARMS.values(), ids=HARMS.keys())
def test_an_intact_copy_is_taken_at_once_after_a_damaged_delivery(
    box: Box, harm: Callable[[Path], None], cause: Cause
) -> None:
    """`update import` of the same release, by the same rollout and document; it says what it does."""
    delivery = Delivery(box, harm)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, cause)
    assert report.undelivered
    assert delivery.blob.name[:16] in report.detail
    assert box.serving == "0"
    assert answer(box, box.driver.import_from(delivery.stick())) == "tiny 1: the update begins"
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"


@pytest.mark.parametrize(("harm", "_cause"), HARMS.values(), ids=HARMS.keys())
def test_the_usual_road_is_tried_again_by_itself_but_not_without_end(
    box: Box, harm: Callable[[Path], None], _cause: Cause
) -> None:
    """A dozen times on the first day at most, then a few a day; once mended, the next try gets through."""
    delivery = Delivery(box, harm)
    box.until_result()

    def tries_within(seconds: float) -> int:
        before, end_ns = len(box.results()), box.clock.monotonic_ns() + round(seconds * 1e9)
        box.until(lambda: box.clock.monotonic_ns() >= end_ns)
        return len(box.results()) - before

    assert 3 <= tries_within(DAY_S) <= 12
    assert 1 <= tries_within(DAY_S) <= 5
    shutil.copy(delivery.intact / "blobs" / delivery.blob.name, delivery.blob)
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"


def test_many_looks_are_no_way_around_the_rest(box: Box) -> None:
    """With a poll every ten seconds and the agent started again and again."""
    Delivery(box, flip)
    for _ in range(30):
        box.look()
        box.restart()
    assert len(box.results()) == 3


def test_who_asks_at_the_box_is_heard_at_once(box: Box) -> None:
    """`update check`: somebody repaired the server, and knows it."""
    delivery = Delivery(box, flip)
    for _ in range(6):
        box.look()
    assert len(box.results()) == 3
    shutil.copy(delivery.intact / "blobs" / delivery.blob.name, delivery.blob)
    assert answer(box, box.driver.check()) == "tiny 1: the update begins"
    assert box.until_result().result is Result.SUCCESS


def test_what_is_wrong_with_the_release_itself_is_final(box: Box) -> None:
    """The blob has the signed hash, and makes another file than was signed; asking does not change that."""
    first = box.offer(1, base=box.factory)
    shutil.move(box.publisher.bundle(2), box.publisher.folder / "other")
    lying = box.publisher.swap_delta(first, box.factory, box.publisher.folder / "other")
    full = box.publisher.blob_of(first, "weights.bin", EncodingKind.FULL)
    full_of_lies = box.publisher.swap_full(lying, box.publisher.folder / "other")
    box.trust.offer = offer_of(full_of_lies)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.HASH_MISMATCH)
    assert not report.undelivered
    said = answer(box, box.driver.check())
    assert said.startswith("tiny 1: not tried: finished here with failed_no_change (hash_mismatch)")
    assert full.exists()
    assert len(box.results()) == 1


def test_the_answer_to_who_asks_is_what_the_machine_decided(box: Box) -> None:
    """Not only what was found."""
    box.behaviours["2"] = Behaviour(p95_ms=80.0)
    assert answer(box, box.driver.check()) == "nothing for this device"
    box.offer(1)
    assert answer(box, box.driver.check()) == "tiny 1: the update begins"
    assert box.until_result().result is Result.SUCCESS
    assert answer(box, box.driver.check()) == "tiny 1: serves already"
    box.offer(2)
    box.look_until_result()
    said = answer(box, box.driver.check())
    assert said.startswith("tiny 2: not tried: it failed here for latency_p95 by rollout roll-2")
    box.offer(3, not_before_utc=1_900_000_000)
    assert answer(box, box.driver.check()).startswith("tiny 3: put off for ")
    box.trust.error = UnavailableError("no network")
    asked = box.driver.check()
    box.until(asked.done)
    with pytest.raises(UnavailableError, match="no network"):
        asked.result()


def test_who_asks_while_the_agent_ends_is_told(box: Box) -> None:
    box.until_looked()
    asked = box.driver.check()
    box.driver.close()
    with pytest.raises(UnavailableError):
        asked.result(timeout=0)


def test_a_server_that_is_back_is_not_waited_for(box: Box) -> None:
    """The fetch waits out its backoff of up to an hour; `update check` ends that."""
    away = [True]

    def fail(_sha256: str, _offset: int) -> None:
        if away[0]:
            raise UnavailableError("https://models.example/blobs/ab: HTTP 503")

    box.fetcher.fail = fail
    box.offer(1)
    box.until(lambda: box.record.fetch_rounds >= 9)
    status = box.driver.snapshot()
    assert status.phase is Phase.FETCH
    assert (status.cause, status.detail) == (
        Cause.CONNECTIVITY_LOST,
        "https://models.example/blobs/ab: HTTP 503",
    )
    assert status.next_try_s is not None
    assert status.next_try_s > 600
    away[0] = False
    begun_ns = box.clock.monotonic_ns()
    assert answer(box, box.driver.check()) == "tiny 1: is under way: fetch"
    box.until(lambda: box.record.phase is not Phase.FETCH)
    assert box.clock.monotonic_ns() - begun_ns < 30e9
    assert box.driver.snapshot().cause is None
    assert box.until_result().result is Result.SUCCESS


def test_a_server_that_says_come_again_in_hours_is_named_meanwhile(box: Box) -> None:
    """And whoever asks at the box is not told to wait for hours."""
    away = [True]

    def fail(_sha256: str, _offset: int) -> None:
        if away[0]:
            raise UnavailableError("HTTP 503, later", retry_after_s=7200.0)

    box.fetcher.fail = fail
    box.offer(1)
    box.until(lambda: (box.driver.snapshot().next_try_s or 0) > 3600)
    assert box.driver.snapshot().detail == "HTTP 503, later"
    away[0] = False
    begun_ns = box.clock.monotonic_ns()
    assert answer(box, box.driver.check()) == "tiny 1: is under way: fetch"
    assert box.until_result().result is Result.SUCCESS
    assert box.clock.monotonic_ns() - begun_ns < 600e9


def test_progress_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    """The part file has bytes, so the status says so."""
    box = Box(tmp_path)
    box.publisher.weights_count = 400_000
    box.start()
    manifest = box.offer(1)
    blob = box.publisher.blob_of(manifest, "weights.bin", EncodingKind.FULL)

    def fail(sha256: str, offset: int) -> None:
        if sha256 == blob.name and offset >= 200_000:
            raise UnavailableError("reset")

    box.fetcher.fail = fail
    box.until(lambda: box.record.fetch_rounds >= 1)
    before = box.driver.snapshot()
    assert before.bytes_fetched >= 131_072
    box.restart()
    box.until(lambda: box.record.phase is Phase.FETCH and box.record.fetch_rounds >= 2)
    after = box.driver.snapshot()
    assert after.bytes_needed == before.bytes_needed
    assert 131_072 <= after.bytes_fetched <= after.bytes_needed
    box.fetcher.fail = lambda _sha256, _offset: None
    box.until_phase(Phase.PREFLIGHT)
    done = box.driver.snapshot()
    assert done.bytes_fetched == done.bytes_needed
