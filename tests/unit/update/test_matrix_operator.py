"""Fault matrix: aborts, downgrades, records of other agents, two at once, the store as the only way back."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest
from tests.unit.update.box import RUNTIME_NEEDS, Behaviour, Box, CountingFetcher, FakeTrust, offer_of
from tests.unit.update.driving import Box as Machine
from tests.unit.update.driving import box_in, offer
from tests.unit.update.test_driver_interrupted import answer, records

from vedette.errors import UnavailableError
from vedette.journal import Copy, decode_copy, encode_copy
from vedette.update import effects as ef
from vedette.update import events as ev
from vedette.update.causes import Cause, Result
from vedette.update.looking import Road
from vedette.update.phases import Phase
from vedette.update.record import SCHEMA, Mark, UpdateRecord, lost_record
from vedette.update.startup import open_state
from vedette.wire.rollout import Window

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.wire.release import ReleaseManifest


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path).start()


# Abort ----------------------------------------------------------------------------------------------------

ACCEPTED = {
    **dict.fromkeys(
        (
            Phase.PLAN,
            Phase.DEFERRED,
            Phase.FETCH,
            Phase.VERIFY_PATCH,
            Phase.APPLY,
            Phase.VERIFY_OUT,
            Phase.PREFLIGHT,
            Phase.SHADOW,
            Phase.READY,
        ),
        Phase.REPORT,
    ),
    Phase.SWITCH: Phase.ROLLBACK,
    Phase.TRIAL: Phase.ROLLBACK,
}
REJECTED = {
    Phase.IDLE: "nothing_to_abort",
    Phase.SAFE: "nothing_to_abort",
    Phase.TRUST: "nothing_to_abort",
    Phase.CONFIRM: "already_confirmed",
    Phase.REPORT: "already_confirmed",
    Phase.ROLLBACK: "rolling_back",
}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.UNKNOWN])
def test_abort_at_each_state_is_answered_and_obeyed_or_refused(phase: Phase) -> None:
    """Fault matrix: abort at each state; abort after CONFIRM."""
    box = box_in(phase)
    box.see(ev.Aborted())
    (said,) = [effect for effect in box.latest if isinstance(effect, ef.AnswerAbort)]
    if phase in ACCEPTED:
        assert (said.answer, box.phase) == ("accepted", ACCEPTED[phase])
        assert box.disk.blacklist[0].cause is Cause.OPERATOR_ABORT
    else:
        assert (said.answer, box.phase) == (f"rejected:{REJECTED[phase]}", phase)


def test_abort_of_a_shadow_ends_it(box: Box) -> None:
    """Fault matrix: abort at each state: SHADOW on a whole box."""
    box.offer(1, shadow=Window(60.0, 100, 3600.0))
    box.until_phase(Phase.SHADOW)
    box.until(lambda: box.live.stats().shadowed > 0)
    assert answer(box, box.driver.abort()) == "accepted"
    assert box.until_result().result is Result.ABORTED
    assert box.live.stats().shadowed == 0
    assert not any(call.startswith("trial") for call in box.live.calls)


# Older releases -------------------------------------------------------------------------------------------


def test_downgrade_validly_signed_is_refused_unless_it_is_meant(box: Box) -> None:
    """Fault matrix: downgrade (lower release counter) validly signed: refused unless `rollback_of`."""
    for version in (1, 2):
        box.offer(version)
        assert box.until_result().result is Result.SUCCESS
    bytes_before = box.fetcher.fetched_bytes
    box.offer(1, counter=3, rollout="old again")
    report = box.look_until_result()
    assert (report.result, report.cause) == (Result.REJECTED, Cause.ROLLBACK_ATTACK)
    assert (box.serving, box.fetcher.fetched_bytes) == ("2", bytes_before)
    box.offer(1, counter=4, rollout="of others", rollback_of=7)
    report = box.look_until_result()
    assert (report.result, report.cause) == (Result.REJECTED, Cause.WRONG_DEVICE)
    box.offer(1, counter=5, rollout="meant", rollback_of=2)
    assert box.look_until_result().result is Result.SUCCESS
    assert box.serving == "1"
    assert box.record.release_floor == 2
    box.restart().until_looked()
    assert box.serving == "1"


def test_downgrade_of_the_document_is_ignored_and_told_once(box: Box) -> None:
    """Fault matrix: lower counter, announce twice: no-ops; the older document is reported once."""
    box.offer(1, counter=5)
    box.until_result()
    looks = box.trust.looks
    for _ in range(3):
        box.driver.announce(ev.Announced(Mark(0, 5)))
        box.step()
        box.step()
    assert box.trust.looks == looks
    for _ in range(3):
        box.driver.announce(ev.Announced(Mark(0, 4)))
        box.until(lambda: box.idle)
    assert box.trust.looks == looks
    notices = [entry.notice for entry in box.outbox() if entry.notice]
    assert [notice.cause for notice in notices] == [Cause.ROLLBACK_ATTACK]


# Other agents ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["schema", "phase"])
@pytest.mark.parametrize("phase", [Phase.FETCH, Phase.APPLY, Phase.READY, Phase.TRIAL])
def test_agent_downgraded_between_phases_gives_up_the_candidate(box: Box, phase: Phase, change: str) -> None:
    """Fault matrix: agent upgraded/downgraded between phases (schema): unknown → rollback rule."""
    box.offer(1)
    box.until_result()
    box.offer(2)
    box.until_phase(phase).driver.close()
    for path in records(box):
        copy = decode_copy(path.read_bytes())
        assert isinstance(copy, Copy)
        payload = copy.payload.replace(b'"phase":"', b'"phase":"re')  # a word of a newer agent
        newer = copy._replace(schema=SCHEMA + 1) if change == "schema" else copy._replace(payload=payload)
        path.write_bytes(encode_copy(newer).ljust(path.stat().st_size, b"\0"))
    assert box.start().until_serving().serving == "1"
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_ROLLED_BACK, Cause.STATE_LOST)
    assert box.serving == "1"
    assert box.record.schema == SCHEMA
    box.offer(2, counter=9, rollout="again")
    assert box.look_until_result().result is Result.SUCCESS


def test_agent_upgraded_between_phases_goes_on_without_the_offer_it_cannot_read(box: Box) -> None:
    """Fault matrix: agent upgraded/downgraded between phases: the kept offer is of another version."""
    box.offer(1)
    box.until_phase(Phase.FETCH).driver.close()
    (box.root / "state" / "tiny.offer").write_bytes(b"0" * 64 + b'\n{"of": "another version"}')
    box.start()
    report = box.until_result()
    assert (report.result, report.cause) == (Result.FAILED_NO_CHANGE, Cause.STATE_LOST)
    assert box.until_serving().serving == "0"


@pytest.mark.parametrize("record", [lost_record(), UpdateRecord(phase=Phase.SAFE)], ids=["lost", "safe"])
def test_a_box_without_a_proven_model_throws_no_bundle_away(record: UpdateRecord) -> None:
    """I1, casebook 35: while the record names no good model, any bundle of the store may be the way back."""
    box = Machine(record)
    box.see(ev.Started())
    assert [effect.bundles for effect in box.did(ef.CollectGarbage)] == [False]
    box.see(ev.ProvenBad(Cause.LOAD_FAIL), ev.ProvenBad(Cause.LOAD_FAIL))
    box.see(ev.Announced(Mark(0, 1)), offer(), ev.PlanRefused(Cause.NO_SPACE, "full", 1), ev.ReportStored())
    assert not any(effect.bundles for effect in box.did(ef.CollectGarbage))


# Two at once ----------------------------------------------------------------------------------------------


def test_two_agents_on_one_state_folder(box: Box) -> None:
    """Fault matrix: two agents. The second is told so in every phase, and has touched nothing."""
    box.offer(1)
    for phase in (Phase.FETCH, Phase.TRIAL):
        box.until_phase(phase)
        before = {path: path.read_bytes() for path in records(box)}
        with pytest.raises(UnavailableError, match="another process updates"):
            open_state(box.root, "tiny", factory=box.factory)
        assert {path: path.read_bytes() for path in records(box)} == before
    assert box.until_result().result is Result.SUCCESS
    box.driver.close()
    descriptor = os.open(box.root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the first let go of it
    os.close(descriptor)


def test_second_update_mid_trial_waits_and_then_installs(box: Box) -> None:
    """Fault matrix: second update mid-TRIAL: queue rule; a withdrawn one is not taken from the queue."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    for version in (2, 3):
        box.offer(version)
        box.driver.announce(ev.Announced(Mark(0, version)))
        box.until(lambda: not box.driver.mailbox.waiting() and not box.driver._events)
    assert box.record.phase is Phase.TRIAL
    box.until(lambda: box.serving == "3" and box.idle)
    assert [report.counter for report in box.results()] == [1, 3]


def stick_of(box: Box, folder: Path, manifest: ReleaseManifest, *, blobs: bool) -> Road:
    """A folder whose trust says what the box knows already; with its blobs, or without."""
    trust = FakeTrust()
    trust.offer = offer_of(manifest)
    if blobs:
        return Road(trust, CountingFetcher(box.publisher.folder / "repository"))
    (folder / "blobs").mkdir()
    return Road(trust, CountingFetcher(folder))


@pytest.mark.parametrize("blobs", [True, False], ids=["with its blobs", "an old stick"])
def test_import_while_an_update_is_fetched(box: Box, tmp_path: Path, *, blobs: bool) -> None:
    """Fault matrix: CLI and network update at once. A stick helps where it can, and ruins nothing."""

    def fail(_sha256: str, _offset: int) -> None:
        if away[0]:
            raise UnavailableError("503")

    away = [True]
    box.fetcher.fail = fail
    manifest = box.offer(1)
    box.until_phase(Phase.FETCH)
    box.until(lambda: box.record.fetch_rounds > 1)
    (tmp_path / "stick").mkdir()
    road = stick_of(box, tmp_path / "stick", manifest, blobs=blobs)
    assert answer(box, box.driver.import_from(road)) == "tiny 1: is under way: fetch"
    rounds = box.record.fetch_rounds
    box.until(lambda: box.record.phase is not Phase.FETCH or box.record.fetch_rounds > rounds + 1)
    away[0] = False
    box.until(lambda: box.idle)
    assert [report.result for report in box.results()] == [Result.SUCCESS]
    assert box.serving == "1"
    assert isinstance(road.fetcher, CountingFetcher)
    assert (road.fetcher.fetched_bytes > 0) == blobs
    assert (box.fetcher.fetched_bytes == 0) == blobs


def test_import_in_a_trial_leaves_the_trial_alone(box: Box, tmp_path: Path) -> None:
    """Fault matrix: CLI update mid-TRIAL: what the stick offers waits for the end of the trial."""
    box.offer(1)
    box.until_phase(Phase.TRIAL)
    box.publisher.bundle(2)
    second = box.publisher.release(2, box.publisher.folder / "v2", needs=RUNTIME_NEEDS)
    stick = stick_of(box, tmp_path, second, blobs=True)
    assert isinstance(stick.trust, FakeTrust)
    stick.trust.offer = offer_of(second, counter=2)
    box.behaviours["1"] = Behaviour()
    assert (
        answer(box, box.driver.import_from(stick))
        == "tiny 2: waits for the end of the update that is under way"
    )
    box.until(lambda: box.serving == "2" and box.idle)
    assert [report.result for report in box.results()] == [Result.SUCCESS, Result.SUCCESS]
