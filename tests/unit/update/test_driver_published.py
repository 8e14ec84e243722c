"""The driver on a repository that the operator's own tools made: TUF, manifests, deltas, rollouts."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.fleet.stand import NOW, Desk
from tests.unit.update.box import Box, CountingFetcher

from vedette.trust.client import TufTrust
from vedette.trust.documents import Device
from vedette.update.causes import Cause, Result
from vedette.update.looking import Road
from vedette.update.phases import Phase
from vedette.wire.rollout import Guards, Window
from vedette_fleet import rollout as edits
from vedette_fleet.rollout import Terms
from vedette_fleet.rollout_files import edit_rollouts

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.clock import ManualClock

TERMS = Terms({"class": "desk"}, (10_000,), 0, 0.0, None, Window(30.0, 100, 3600.0), Guards())


class Wall:
    """A clock that was right when the repository was made."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def utc_s(self) -> float:
        return NOW.timestamp() + self._clock.monotonic_ns() / 1e9

    def synchronised(self) -> bool | None:
        return True


class PublishedBox(Box):
    """A box that follows a desk's repository, from its folder."""

    def follow(self, desk: Desk) -> PublishedBox:
        self.fetcher = CountingFetcher(desk.repository.path)
        trust = TufTrust(
            self.fetcher,
            self.root / "state" / "trust",
            bootstrap=(desk.repository.path / "metadata" / "1.root.json").read_bytes(),
            build_utc_s=int(NOW.timestamp()) - 86400,
            device=Device("box-1", "tiny", {"class": "desk"}),
            clock=Wall(self.clock),
        )
        self.ports["road"] = Road(trust, self.fetcher)
        self.start()
        return self


def publish(desk: Desk, box: Box, version: int, **play: str) -> None:
    """Release a bundle, and roll it out to everybody."""
    desk.release(box.publisher.bundle(version, **play))
    edit_rollouts(
        desk.workshop,
        lambda known: edits.start(
            known.plan,
            f"roll-{version}",
            known.release(f"tiny@{version}"),
            TERMS,
            counters=known.counters(),
            rollback_of=None,
        ),
    )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "desk").mkdir()
    return Desk(tmp_path / "desk").initialised()


@pytest.fixture
def box(tmp_path: Path, desk: Desk) -> Box:
    return PublishedBox(tmp_path / "device").follow(desk)


def test_two_releases_are_installed_the_second_by_its_delta(box: Box, desk: Desk) -> None:
    """From the operator's commands to a confirmed model."""
    publish(desk, box, 1)
    assert box.until_result().result is Result.SUCCESS
    first_bytes = box.fetcher.fetched_bytes
    publish(desk, box, 2)
    report = box.look_until_result()
    assert (report.result, box.serving) == (Result.SUCCESS, "2")
    assert report.bytes_fetched < first_bytes / 10
    assert [result.counter for result in box.results()] == [1, 2]


def test_a_withdrawal_reaches_a_box_before_its_switch(box: Box, desk: Desk) -> None:
    """The last question is answered by the document of this moment."""
    publish(desk, box, 1)
    box.until_phase(Phase.READY)
    edit_rollouts(desk.workshop, lambda known: edits.abort(known.plan, "roll-1"))
    assert box.until_result().result is Result.ABORTED
    assert box.serving == "0"


def test_an_old_copy_of_the_repository_is_refused_and_told_of(box: Box, desk: Desk, tmp_path: Path) -> None:
    """A replay does not take back what was installed, nor stop the box."""
    publish(desk, box, 1)
    box.until_result()
    shutil.copytree(desk.repository.path, tmp_path / "old")
    publish(desk, box, 2)
    assert box.look_until_result().result is Result.SUCCESS
    shutil.rmtree(desk.repository.path)
    shutil.copytree(tmp_path / "old", desk.repository.path)
    box.driver.announce()
    box.until(lambda: any(entry.notice for entry in box.outbox()))
    assert [entry.notice.cause for entry in box.outbox() if entry.notice] == [Cause.ROLLBACK_ATTACK]
    assert box.serving == "2"


def test_a_restart_in_the_middle_needs_no_repository(box: Box, desk: Desk) -> None:
    """What was verified at the start is kept: the network may be gone from the last blob on."""
    publish(desk, box, 1)
    box.until_phase(Phase.VERIFY_PATCH)
    shutil.rmtree(desk.repository.path)
    box.restart()
    assert box.until_result().result is Result.SUCCESS
    assert box.serving == "1"
