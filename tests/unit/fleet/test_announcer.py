"""Announcements say what the folder holds, when it changes, and again to a broker that forgot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from tests.stubs.fake_connection import FakeBroker
from tests.unit.fleet.stand import Desk, bundle

from vedette.clock import ManualClock
from vedette.errors import BadInputError
from vedette.wire.plane import Announcement
from vedette.wire.topics import announcements
from vedette_fleet.announcement_files import read_announcement
from vedette_fleet.announcer import Announcer

if TYPE_CHECKING:
    from pathlib import Path


class Stand:
    def __init__(self, folder: Path, broker: FakeBroker | None = None) -> None:
        self.clock = ManualClock()
        self.broker = broker or FakeBroker()
        self.lines: list[str] = []
        self.connection = self.broker.connection()
        self.announcer = Announcer(
            self.connection, folder, clock=self.clock, log=self.lines.append, channel="all", spread_s=30.0
        )
        self.connection.start()

    def turn(self, *, seconds: float = 1.0) -> None:
        self.clock.advance_s(seconds)
        for _ in range(2):  # what is published in the first is acknowledged in the second
            while (event := self.connection.next_event(0.0)) is not None:
                self.announcer.take(event)
            self.announcer.work()

    def kept(self) -> Announcement | None:
        message = self.broker.retained.get(announcements())
        return None if message is None else msgspec.json.decode(message.payload, type=Announcement)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path).initialised()


def test_what_is_published_is_announced_and_kept_and_said_once(desk: Desk) -> None:
    stand = Stand(desk.repository.path)
    for _ in range(5):
        stand.turn()
    published = desk.repository.load()
    assert stand.kept() == Announcement(
        timestamp_version=published.timestamp.signed.version,
        rollouts_version=published.roles["rollouts"].signed.version,
        spread_s=30.0,
    )
    assert len(stand.broker.published) == 1
    assert len(stand.lines) == 1


def test_a_release_is_announced_within_a_second(desk: Desk, tmp_path: Path) -> None:
    stand = Stand(desk.repository.path)
    stand.turn()
    before = stand.kept()
    desk.release(bundle(tmp_path, "1"))
    stand.turn(seconds=1.0)
    after = stand.kept()
    assert before is not None
    assert after is not None
    assert after.timestamp_version > before.timestamp_version


def test_a_broker_that_lost_its_memory_hears_it_again(desk: Desk) -> None:
    stand = Stand(desk.repository.path)
    stand.turn()
    stand.broker.go_away()
    stand.turn()
    stand.broker.come_back(memory=False)
    stand.turn()
    assert stand.kept() is not None
    assert len(stand.broker.published) == 2


def test_it_is_said_again_long_before_it_expires(desk: Desk) -> None:
    stand = Stand(desk.repository.path)
    stand.turn()
    stand.turn(seconds=3601)
    assert len(stand.broker.published) == 2
    assert len(stand.lines) == 1


def test_a_folder_that_is_half_copied_is_said_once_and_looked_at_again(desk: Desk) -> None:
    stand = Stand(desk.repository.path)
    path = desk.repository.path / "metadata" / "timestamp.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    for _ in range(3):
        stand.turn()
    assert len(stand.lines) == 1
    assert "no TUF metadata" in stand.lines[0]
    path.write_bytes(whole)
    stand.turn()
    assert stand.kept() is not None


def test_a_broker_that_refuses_is_not_asked_every_second(desk: Desk) -> None:
    stand = Stand(desk.repository.path)
    stand.broker.refuse = lambda _message: "Not authorized"
    for _ in range(10):
        stand.turn()
    assert stand.announcer.refusal == "Not authorized"
    assert stand.lines == ["the broker refuses the announcement: Not authorized"]
    stand.broker.refuse = lambda _message: ""
    stand.turn(seconds=3601)
    assert stand.kept() is not None


def test_a_broker_without_memory_is_mentioned(desk: Desk) -> None:
    broker = FakeBroker()
    broker.limits = msgspec.structs.replace(broker.limits, retain=False)
    stand = Stand(desk.repository.path, broker)
    stand.turn()
    assert "keeps no messages" in stand.lines[0]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "No such file"),
        (b"", "no TUF metadata"),
        (b'{"signed":{"version":"1","meta":{}}}', "no TUF metadata"),
        (b'{"signed":{"version":1,"meta":{}}}', "does not list snapshot.json"),
        (b'{"signed":{"version":1,"meta":{"snapshot.json":{"version":99}}}}', "No such file"),
    ],
)
def test_what_is_no_repository_is_named(tmp_path: Path, content: bytes | None, fault: str) -> None:
    (tmp_path / "metadata").mkdir()
    if content is not None:
        (tmp_path / "metadata" / "timestamp.json").write_bytes(content)
    with pytest.raises(BadInputError, match=fault):
        read_announcement(tmp_path, spread_s=0.0)
