"""What comes between: operators, newer releases, full disks, lost records; the box goes on serving."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import RUNTIME_NEEDS, Behaviour, Box, CountingFetcher, FakeTrust

from vedette.errors import NotFoundError, TrustError, UnavailableError
from vedette.fsops import Operation, Point, traced
from vedette.update import events as ev
from vedette.update.causes import Cause, Result
from vedette.update.looking import Road
from vedette.update.phases import Phase
from vedette.update.plan import ClockWindow
from vedette.update.record import SCHEMA, Mark
from vedette.update.settings import UpdateSettings
from vedette.update.startup import open_state
from vedette.update.veto import Objections

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from vedette.wire.release import ReleaseNeeds

WORKING = (Phase.FETCH, Phase.VERIFY_PATCH, Phase.APPLY, Phase.VERIFY_OUT, Phase.PREFLIGHT, Phase.READY)
HOUR_S = 3600.0


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


def answer(box: Box, future: Future[str]) -> str:
    box.until(future.done)
    return future.result()


# The operator ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", WORKING)
def test_an_abort_before_the_switch_changes_nothing(box: Box, phase: Phase) -> None:
    """Accepted, reported, cleaned up, and the same rollout is not taken up again by itself."""
    box.offer(1)
    box.until_phase(phase)
    assert answer(box, box.driver.abort()) == "accepted"
    report = box.until_result()
    assert (report.result, report.cause) == (Result.ABORTED, Cause.OPERATOR_ABORT)
    assert box.serving == "0"
    assert box.staged() == []
    fetched = box.fetcher.fetched_bytes
    box.look().restart().until_looked()
    assert box.fetcher.fetched_bytes == fetched
    assert len(box.results()) == 1


@pytest.mark.parametrize("phase", [Phase.SWITCH, Phase.TRIAL])
def test_an_abort_in_a_trial_rolls_back(box: Box, phase: Phase) -> None:
    """The model of before serves again."""
    box.offer(1)
    box.until_phase(phase)
    assert answer(box, box.driver.abort()) == "accepted"
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.OPERATOR_ABORT)
    assert box.serving == "0"


def test_an_abort_after_the_end_is_answered_and_does_nothing(box: Box) -> None:
    """The order of words and deeds that hawkBit and Zephyr got wrong."""
    assert answer(box, box.driver.abort()) == "rejected:nothing_to_abort"
    box.offer(1)
    box.until_result()
    assert answer(box, box.driver.abort()) == "rejected:already_confirmed"
    assert box.serving == "1"


def test_a_stopping_agent_leaves_no_one_waiting(box: Box) -> None:
    """Who asks at the end is told so."""
    waiting = box.driver.abort()
    box.driver.close()
    with pytest.raises(UnavailableError, match="stopping"):
        waiting.result(0)
    with pytest.raises(UnavailableError, match="stopping"):
        box.driver.abort().result(0)


def test_a_rollout_withdrawn_just_before_the_switch_is_not_switched_to(box: Box) -> None:
    """The last word is asked for when the window opens, however long that took."""
    box.offer(1)
    box.until_phase(Phase.READY)
    box.trust.gone.add("roll-1")
    report = box.until_result()
    assert report.result is Result.ABORTED
    assert not any(call.startswith("trial") for call in box.live.calls)


def test_a_rollout_withdrawn_in_the_trial_is_rolled_back(box: Box) -> None:
    """An announcement brings the news."""
    box.behaviours["1"] = Behaviour()
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    box.trust.gone.add("roll-1")
    box.driver.announce(ev.Announced(Mark(0, 2)))
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.OPERATOR_ABORT)


def test_a_paused_rollout_waits_before_the_switch(box: Box) -> None:
    """And goes on when it is resumed."""
    box.offer(1)
    box.until_phase(Phase.READY)
    box.trust.paused = True
    begun_ns = box.clock.monotonic_ns()
    box.until(lambda: box.clock.monotonic_ns() - begun_ns > HOUR_S * 1e9)
    assert box.record.phase is Phase.READY
    box.trust.paused = False
    assert box.until_result().result is Result.SUCCESS


def test_a_newer_release_replaces_one_that_is_being_fetched(box: Box) -> None:
    """It is superseded, and the newer one installs."""
    box.offer(1)
    box.until_phase(Phase.FETCH)
    box.offer(2)
    box.driver.announce(ev.Announced(Mark(0, 2)))
    assert box.until_result().result in {Result.SUPERSEDED, Result.SUCCESS}
    box.until(lambda: box.serving == "2" and box.idle)
    assert [report.result for report in box.results()] == [Result.SUPERSEDED, Result.SUCCESS]


def test_a_newer_release_waits_for_the_end_of_a_trial(box: Box) -> None:
    """Two changes at once could not be told apart."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    box.offer(2)
    box.driver.announce(ev.Announced(Mark(0, 2)))
    box.until(lambda: box.serving == "2" and box.idle)
    assert [report.result for report in box.results()] == [Result.SUCCESS, Result.SUCCESS]


def test_a_stick_is_looked_at_once_and_fetched_from(box: Box, tmp_path: Path) -> None:
    """`vedette-agent update import`: the same checks, another road."""
    box.until_looked()
    stick = FakeTrust()
    box.offer(1)
    stick.offer, box.trust.offer = box.trust.offer, None
    fetcher = CountingFetcher(box.fetcher._folder)
    found = box.driver.import_from(Road(stick, fetcher))
    assert answer(box, found) == "tiny 1: the update begins"
    assert box.until_result().result is Result.SUCCESS
    assert box.fetcher.fetched_bytes == 0 < fetcher.fetched_bytes
    empty = CountingFetcher(tmp_path)
    refused = box.driver.import_from(Road(FailingTrust(), empty))
    box.until(refused.done)
    with pytest.raises(NotFoundError, match="no repository"):
        refused.result()


class FailingTrust(FakeTrust):
    """A folder without a repository."""

    def __init__(self) -> None:
        super().__init__()
        self.error = NotFoundError("the folder holds no repository")


# The moment -----------------------------------------------------------------------------------------------


def test_a_box_outside_its_window_waits(tmp_path: Path) -> None:
    """And while it is too hot."""
    hot = [True]
    window = ClockWindow(120, 300)
    box = Box(
        tmp_path,
        settings=UpdateSettings(window=window),
        ports={"veto": lambda: Objections(too_hot=hot[0])},
    ).start()
    box.offer(1)
    box.until_phase(Phase.DEFERRED)
    assert box.fetcher.requests == []
    hot[0] = False
    report = box.until_result()
    assert report.result is Result.SUCCESS
    minute = box.parts.planning._moment._minute()
    assert minute is not None
    assert window.wait_min(minute) == 0


def test_a_fleet_that_is_offered_a_release_starts_spread_out(tmp_path: Path) -> None:
    """Casebook 61: the rollout's jitter, a place of each box's own, and polls that drift apart."""
    starts, polls = [], []
    for number in range(6):
        box = Box(tmp_path / str(number))
        box.boots = number
        box.start()
        box.offer(1, jitter_s=900.0)
        box.until_phase(Phase.FETCH)
        starts.append(box.clock.monotonic_ns() / 1e9)
        box.trust.offer = None
        box.driver.abort()
        box.until(lambda box=box: box.idle)  # type: ignore[misc]
        looks = box.trust.looks
        box.until(lambda box=box, looks=looks: box.trust.looks > looks)  # type: ignore[misc]
        polls.append(box.clock.monotonic_ns() / 1e9)
    assert max(starts) - min(starts) > 200
    assert all(later - before > 1 for before, later in zip(sorted(starts), sorted(starts)[1:], strict=False))
    assert max(polls) - min(polls) > 600


def test_refused_metadata_is_said_once_and_the_box_goes_on(box: Box) -> None:
    """Casebook 39: expired is not "nothing new", and verification is never off."""
    box.trust.error = TrustError("timestamp version 3 is expired", kind="expired")
    box.until_looked(3)
    assert box.serving == "0"
    notices = [entry.notice for entry in box.outbox() if entry.notice]
    assert [(notice.cause, notice.detail) for notice in notices] == [
        (Cause.EXPIRED, "timestamp version 3 is expired")
    ]
    box.trust.error = None
    box.offer(1)
    assert box.until_result().result is Result.SUCCESS


# What does not fit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"opset": (99, 99)}, "opsets 99"),
        ({"runtime": "99.0"}, "99.0"),
        ({"arch": ("riscv128",)}, "riscv128"),
        ({"accelerators": ("tpu",)}, "tpu"),
        ({"memory_mb": 10_000_000}, "10000000 MB"),
        ({"engine": ""}, "does not say"),
    ],
)
def test_what_does_not_fit_is_rejected_before_a_byte_is_fetched(
    box: Box, changes: dict[str, object], words: str
) -> None:
    """Casebook 5 and 64: both sides named, no failure, said once over restarts."""
    import msgspec

    needs: ReleaseNeeds = msgspec.structs.replace(RUNTIME_NEEDS, **changes)
    box.offer(1, needs=needs)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.REJECTED, Cause.WRONG_DEVICE)
    assert words in report.detail
    assert box.fetcher.requests == []
    box.look().restart().until_looked()
    assert len(box.results()) == 1


def test_no_space_is_found_out_before_a_byte_is_fetched_and_tried_again_when_there_is(box: Box) -> None:
    """Casebook 36: said once, and only more space makes it try again."""
    box.space.free = 10_000
    box.offer(1)
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.NO_SPACE)
    box.until_looked(3).restart().until_looked()
    assert box.fetcher.requests == []
    assert len(box.results()) == 1
    box.space.free = 1 << 30
    assert box.look_until_result().result is Result.SUCCESS


# A disk that refuses --------------------------------------------------------------------------------------


class FailingDisk:
    """Refuses every step for one reason; `code` 0 refuses nothing."""

    def __init__(self, *points: Point, code: int = errno.ENOSPC) -> None:
        self.points = points
        self.code = code

    def before(self, operation: Operation) -> None:
        if self.code and operation.point in self.points:
            raise OSError(self.code, "refused", operation.path)


def test_a_disk_that_fills_up_half_way_ends_the_update_clean(box: Box) -> None:
    """Casebook 36: the plan was right and the disk lied; own remains go, the report still fits."""
    box.offer(1)
    with traced(FailingDisk(Point.OUTPUT)):
        report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.NO_SPACE)
    assert box.staged() == []
    assert box.serving == "0"
    box.look()
    box.until(lambda: box.serving == "1" and box.idle)


def test_a_record_that_cannot_be_written_holds_the_update_and_not_the_box(box: Box) -> None:
    """Casebook 36: nothing is done that the disk does not know of; afterwards it is said."""
    box.until_looked()
    box.offer(1)
    disk = FailingDisk(Point.RECORD, code=errno.EROFS)
    with traced(disk):
        box.driver.announce()
        box.until(lambda: "cannot be written" in box.driver.snapshot().trouble)
        begun_ns = box.clock.monotonic_ns()
        box.until(lambda: box.clock.monotonic_ns() - begun_ns > HOUR_S * 1e9, steps=500)
        assert box.fetcher.requests == []
        assert box.serving == "0"
        disk.code = 0
        assert box.until_result().result is Result.SUCCESS
    assert box.driver.snapshot().trouble == ""
    notices = [entry.notice for entry in box.outbox() if entry.notice]
    assert ["could not be written" in notice.detail for notice in notices] == [True]


def test_a_box_that_starts_on_a_read_only_disk_in_a_trial_serves_what_is_proven(box: Box) -> None:
    """No record, no candidate; the model of before answers."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    box.driver.close()
    disk = FailingDisk(*Point, code=errno.EROFS)
    with traced(disk):
        box.start()
        begun_ns = box.clock.monotonic_ns()
        box.until(lambda: box.clock.monotonic_ns() - begun_ns > 600e9)
        assert box.serving == "0"
        assert not any(call.startswith("trial") for call in box.live.calls)
    assert box.until_result().result is Result.SUCCESS


def test_a_report_that_cannot_be_stored_is_stored_later_and_once(box: Box) -> None:
    """Casebook 37: a lost report never costs the model."""
    box.offer(1)
    disk = FailingDisk(Point.OUTBOX, code=errno.EIO)
    with traced(disk):
        box.until_phase(Phase.REPORT)
        begun_ns = box.clock.monotonic_ns()
        box.until(lambda: box.clock.monotonic_ns() - begun_ns > 600e9)
        assert (box.record.phase, box.serving) == (Phase.REPORT, "1")
        disk.code = 0
        box.until_result()
    assert [report.result for report in box.results()] == [Result.SUCCESS]


# What a start finds ---------------------------------------------------------------------------------------


def records(box: Box) -> list[Path]:
    return sorted((box.root / "state").glob("tiny.rec.?"))


def test_a_lost_record_is_made_up_from_the_store(box: Box) -> None:
    """Casebook 35: both copies zeroed; the newest confirmed model serves, the floor stands, it is said."""
    for version in (1, 2):
        box.offer(version)
        box.until_result()
    box.driver.close()
    for path in records(box):
        path.write_bytes(bytes(len(path.read_bytes())))
    box.start().until_serving()
    assert box.serving == "2"
    box.until_looked()
    assert box.serving == "2"
    assert box.record.release_floor == 2
    assert box.record.active is not None
    notices = [entry.notice.cause for entry in box.outbox() if entry.notice]
    assert Cause.STATE_LOST in notices
    box.offer(3, counter=9)
    assert box.until_result().result is Result.SUCCESS


def test_a_record_that_vanished_is_a_lost_one(box: Box) -> None:
    """Not a new box: that would serve the factory's model again."""
    box.offer(1)
    box.until_result()
    box.driver.close()
    for path in records(box):
        path.unlink()
    assert box.start().until_looked().serving == "1"


def test_a_newer_agent_s_record_gives_up_its_candidate_and_keeps_what_is_proven(box: Box) -> None:
    """An agent that was put back reads what it can."""
    from vedette.journal import Copy, decode_copy, encode_copy

    box.offer(1)
    box.until_result()
    box.offer(2)
    box.until_phase(Phase.TRIAL).driver.close()
    for path in records(box):
        copy = decode_copy(path.read_bytes())
        assert isinstance(copy, Copy)
        content = encode_copy(copy._replace(schema=SCHEMA + 1))
        path.write_bytes(content.ljust(path.stat().st_size, b"\0"))
    box.start()
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.STATE_LOST)
    assert box.serving == "1"


def test_a_damaged_active_model_gives_way_to_the_factory_s(box: Box) -> None:
    """Casebook 35: hashed before it is loaded; said, and when it is offered again it is repaired."""
    manifest = box.offer(1)
    box.until_result()
    box.driver.close()
    weights = box.opened.store.find(manifest.bundle_sha256).bundle / "weights.bin"
    weights.write_bytes(b"\0" * weights.stat().st_size)
    box.trust.offer = None
    box.start().until_serving()
    assert box.serving == "0"
    box.until_looked()
    assert box.serving == "0"
    assert "does not serve" in " ".join(entry.notice.detail for entry in box.outbox() if entry.notice)
    box.offer(1, counter=2)
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"


def test_a_model_that_falls_silent_while_it_serves_is_replaced(box: Box) -> None:
    """Not by the first restart of its worker: only when it stays away."""
    box.offer(1)
    box.until_result()
    box.until(lambda: not box.driver._slots.serving)
    box.live.dead = True
    begun_ns = box.clock.monotonic_ns()
    box.until(lambda: box.serving != "")
    assert 300e9 < box.clock.monotonic_ns() - begun_ns < 900e9


def test_two_agents_do_not_update_one_box(box: Box) -> None:
    """The second is told so, by name of the folder."""
    with pytest.raises(UnavailableError, match="another process"):
        open_state(box.root, "tiny", factory=None)


def test_the_status_says_how_far_it_is(box: Box) -> None:
    """Bytes fetched of bytes needed, while they are fetched."""
    seen = []

    def look(_sha256: str, _offset: int) -> None:
        box.driver._breathe()
        seen.append(box.driver.snapshot())
        box.clock.advance_s(1.0)

    manifest = box.offer(1)
    box.fetcher.fail = look
    box.until_result()
    status = seen[-1]
    assert status.phase is Phase.FETCH
    assert status.candidate is not None
    assert status.candidate.sha256 == manifest.bundle_sha256
    assert 0 < status.bytes_fetched <= status.bytes_needed
    last = box.driver.snapshot()
    assert last.last_result is not None
    assert last.last_result.result is Result.SUCCESS
    assert last.next_look_s is not None
