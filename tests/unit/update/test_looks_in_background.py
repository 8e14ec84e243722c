"""A look at what is signed may take as long as a bad server likes; nothing else waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import Behaviour, Box, FakeTrust
from tests.unit.update.test_driver_interrupted import answer

from vedette.clock import ManualClock
from vedette.errors import UnavailableError
from vedette.update.background import in_thread
from vedette.update.causes import Cause, Result
from vedette.update.looking import Road
from vedette.update.paced_source import FILE_S, REFRESH_S, PacedSource
from vedette.update.phases import Phase
from vedette.update.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vedette.trust.offer import Offer

SOON_S = 10.0


class StuckTrust(FakeTrust):
    """Looks are held up while `may_go` is clear; `entered` says that one is."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = threading.Event()
        self.may_go.set()
        self.entered = threading.Event()
        self.at_once = 0

    def refresh(self) -> Offer | None:
        self.at_once += 1
        assert self.at_once == 1, "one look at a time"
        self.entered.set()
        assert self.may_go.wait(60.0)
        self.at_once -= 1
        return super().refresh()


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    trust = StuckTrust()
    box = Box(tmp_path, trust=trust, ports={"background": in_thread}).start()
    yield box
    trust.may_go.set()
    box.driver.close()


def hold_up_a_look(box: Box) -> StuckTrust:
    """From now on the metadata server drips."""
    trust = box.trust
    assert isinstance(trust, StuckTrust)
    trust.entered.clear()
    trust.may_go.clear()
    box.driver.announce()
    box.until(trust.entered.is_set)
    return trust


def test_a_bad_candidate_is_judged_while_a_look_is_held_up(box: Box) -> None:
    """In the middle of its trial; the look's end comes when it comes, in whatever phase."""
    box.behaviours["1"] = Behaviour(failed=0.5)
    box.offer(1)
    box.driver.announce()
    box.until_phase(Phase.TRIAL)
    trust = hold_up_a_look(box)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.ERROR_RATE)
    assert box.serving == "0"
    since_s = box.driver.snapshot().looking_s
    assert since_s is not None
    assert since_s > 0
    trust.may_go.set()
    looks = trust.looks
    box.until(lambda: trust.looks > looks and box.idle and not box.parts.looking.under_way)
    assert box.driver.snapshot().looking_s is None
    assert len(box.results()) == 1


def test_a_candidate_is_confirmed_while_a_look_is_held_up(box: Box) -> None:
    box.offer(1)
    box.driver.announce()
    box.until_phase(Phase.TRIAL)
    hold_up_a_look(box)
    assert box.until_result().result is Result.SUCCESS


def test_an_abort_is_taken_while_a_look_is_held_up(box: Box) -> None:
    box.offer(1)
    box.driver.announce()
    box.until_phase(Phase.TRIAL)
    hold_up_a_look(box)
    assert answer(box, box.driver.abort()) == "accepted"
    assert box.until_result().cause is Cause.OPERATOR_ABORT


def test_a_stick_waits_for_the_look_that_is_under_way_and_not_longer(box: Box) -> None:
    """Two looks share one memory of what was verified."""
    box.until_looked()
    trust = hold_up_a_look(box)
    stick = FakeTrust()
    box.offer(1)
    stick.offer, trust.offer = trust.offer, None
    found = box.driver.import_from(Road(stick, box.fetcher))
    for _ in range(5):
        box.step()
    assert not found.done()
    trust.may_go.set()
    assert answer(box, found) == "tiny 1: the update begins"
    assert box.until_result().result is Result.SUCCESS


def test_polls_cut_no_request_of_a_fetch(tmp_path: Path) -> None:
    """With a poll far shorter than a blob takes; a newer release still takes the place of the old one."""
    box = Box(tmp_path)
    box.publisher.weights_count = 900_000
    box.settings = box.settings.__class__(poll_s=0.5, first_look_s=0.0)
    box.start()
    manifest = box.offer(1)

    def slowly(_sha256: str, _offset: int) -> None:
        box.clock.advance_s(0.4)

    box.fetcher.fail = slowly
    looks = box.trust.looks
    box.until(lambda: box.record.phase not in {Phase.IDLE, Phase.TRUST, Phase.PLAN, Phase.FETCH})
    assert box.trust.looks - looks > 3
    assert sorted(box.fetcher.requests) == sorted(set(box.fetcher.requests))
    assert len(box.fetcher.requests) <= len(manifest.files)
    box.fetcher.fail = lambda _sha256, _offset: None
    assert box.until_result().result is Result.SUCCESS


def test_a_newer_release_is_seen_in_the_middle_of_a_blob(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.publisher.weights_count = 900_000
    box.settings = box.settings.__class__(poll_s=0.5, first_look_s=0.0)
    box.start()
    box.offer(1)
    newer: list[int] = []

    def slowly(_sha256: str, offset: int) -> None:
        box.clock.advance_s(0.4)
        if offset > 100_000 and not newer:
            newer.append(offset)
            box.offer(2)

    box.fetcher.fail = slowly
    assert box.until_result().result in {Result.SUPERSEDED, Result.SUCCESS}
    box.until(lambda: box.serving == "2" and box.idle)
    assert [report.result for report in box.results()] == [Result.SUPERSEDED, Result.SUCCESS]


def test_whether_the_server_is_reached_is_asked_beside_the_watch() -> None:
    """A probe that hangs leaves the figures as they were."""
    clock, may_answer = ManualClock(), threading.Event()

    def ask() -> bool:
        return may_answer.wait(60.0)

    reach = Reach(ask, clock, lambda: 0.0, background=in_thread)
    assert not reach.look().reached
    clock.advance_s(40.0)
    assert reach.look().lost_s == pytest.approx(40.0)
    may_answer.set()
    until_s = threading.Event()
    for _ in range(2000):
        if reach.look().reached:
            break
        until_s.wait(0.005)  # another thread's answer; there is no clock to inject
    assert reach.look().reached


# The pace of metadata -------------------------------------------------------------------------------------


class Dripping:
    """Gives so many bytes a piece, each after so many seconds."""

    def __init__(self, clock: ManualClock, piece_bytes: int, each_s: float) -> None:
        self._clock = clock
        self._piece = bytes(piece_bytes)
        self._each_s = each_s

    def metadata(self, _path: str, max_bytes: int) -> Iterator[bytes]:
        for _ in range(0, max_bytes, len(self._piece)):
            self._clock.advance_s(self._each_s)
            yield self._piece


def test_a_file_that_drips_is_given_up_after_half_a_minute() -> None:
    """A byte a second keeps every watch over silence quiet."""
    clock = ManualClock()
    source = PacedSource(Dripping(clock, 1, 1.0), clock)
    with pytest.raises(UnavailableError, match=r"timestamp\.json: given up, \d+ bytes came in \d+ s"):
        list(source.metadata("metadata/timestamp.json", 10_000))
    assert FILE_S <= clock.monotonic_ns() / 1e9 <= FILE_S + 2


def test_many_small_files_that_come_slowly_are_given_up_together() -> None:
    """A new root after another, each quick enough for itself."""
    clock = ManualClock()
    source = PacedSource(Dripping(clock, 100, 5.0), clock)
    for version in range(20):
        list(source.metadata(f"metadata/{version}.root.json", 100))
    clock.advance_s(30.0)
    with pytest.raises(UnavailableError, match=r"21\.root\.json: given up"):
        list(source.metadata("metadata/21.root.json", 100))
    assert clock.monotonic_ns() / 1e9 <= REFRESH_S + 20
    source.begin()
    assert list(source.metadata("metadata/timestamp.json", 100))


def test_a_slow_link_is_not_shut_out() -> None:
    """Casebook 40: two kilobytes a second bring a rollout document of half a megabyte."""
    clock = ManualClock()
    source = PacedSource(Dripping(clock, 2000, 1.0), clock)
    assert len(b"".join(source.metadata("targets/rollouts.json", 500_000))) == 500_000
