"""The outbox: what is kept stays kept, what is dropped is counted, a damaged file costs no start."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest

from vedette.errors import StorageError
from vedette.link.entries import Kind, Moment
from vedette.link.outbox import Outbox
from vedette.link.port import Keep
from vedette.link.sqlite_file import ASIDE_NAME, DATABASE_NAME, RESERVE_BYTES, RESERVE_NAME, SqliteFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIMIT_BYTES = 64_000


class Box:
    """An outbox that can be closed as if the process ended, and opened again."""

    def __init__(self, folder: Path, *, max_bytes: int = LIMIT_BYTES) -> None:
        self._folder = folder / "link"
        self._max_bytes = max_bytes
        self.moment = Moment("boot-1", 100.0, 0.0, utc_trusted=False)
        self._open()

    def restart(self) -> None:
        self.file.close()
        self._open()

    def _open(self) -> None:
        self.file = SqliteFile(self._folder, max_bytes=self._max_bytes)
        self.outbox = Outbox(self.file, max_bytes=self._max_bytes, now=lambda: self.moment)
        self.outbox.open()

    @property
    def path(self) -> Path:
        return self._folder / DATABASE_NAME

    def event(self, text: str, keep: Keep = Keep.ALWAYS, event_id: str = "") -> str:
        def compose(identity: str, lost: int) -> bytes:
            return json.dumps({"id": identity, "text": text, "lost": lost}).encode()

        return self.outbox.put_event(compose, keep, event_id)

    def waiting(self, keep: Keep = Keep.ALWAYS) -> list[dict[str, object]]:
        """All that waits, oldest first."""
        seen: list[int] = []
        found = []
        while (entry := self.outbox.next(keep, newest=False, excluded=seen)) is not None:
            seen.append(entry.number)
            found.append(json.loads(entry.payload) if entry.kind is Kind.EVENT else {"r": entry.payload})
        return found


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_events_survive_a_restart_in_order_and_leave_when_acknowledged(box: Box) -> None:
    for text in ("one", "two", "three"):
        box.event(text)
    box.restart()
    assert [event["text"] for event in box.waiting()] == ["one", "two", "three"]
    first = box.outbox.next(Keep.ALWAYS, newest=False, excluded=())
    assert first is not None
    box.outbox.remove([first.number])
    box.restart()
    assert [event["text"] for event in box.waiting()] == ["two", "three"]
    assert box.outbox.counts().events == 2


def test_ids_never_repeat_neither_after_a_restart_nor_after_all_was_delivered(box: Box) -> None:
    ids = set()
    for _ in range(3):
        for _ in range(5):
            ids.add(box.event("x"))
        while (entry := box.outbox.next(Keep.ALWAYS, newest=False, excluded=())) is not None:
            box.outbox.remove([entry.number])
        box.restart()
    assert len(ids) == 15


def test_the_same_event_told_twice_is_one_row(box: Box) -> None:
    assert box.event("first", event_id="u-7:3") == "u-7:3"
    box.restart()
    assert box.event("again", event_id="u-7:3") == "u-7:3"
    assert [event["text"] for event in box.waiting()] == ["first"]


def test_telemetry_goes_for_events_oldest_first_and_is_counted(box: Box) -> None:
    """Case 45: bounded by bytes; loss is counted."""
    for number in range(100):
        box.outbox.put_report(bytes([number]) * 1000, "x")
    counts = box.outbox.counts()
    assert counts.waiting_bytes <= LIMIT_BYTES
    assert counts.reports + counts.dropped_reports == 100
    newest = box.outbox.next(Keep.NEWEST, newest=True, excluded=())
    assert newest is not None
    assert newest.payload[0] == 99
    for number in range(40):
        box.event("e" * 1000, event_id=f"e{number}")
    assert len(box.waiting()) == 40
    counts = box.outbox.counts()
    assert counts.waiting_bytes <= LIMIT_BYTES
    assert counts.reports + counts.dropped_reports == 100


def test_an_event_that_may_not_be_dropped_is_refused_when_only_such_wait(box: Box) -> None:
    kept = 40
    for number in range(kept):
        box.event("e" * 1000, event_id=f"e{number}")
    with pytest.raises(StorageError) as refused:
        box.event("e" * 30_000, event_id="one too many")
    assert refused.value.kind == "no_space"
    assert "mqtt.outbox" in refused.value.diagnostics()
    assert len(box.waiting()) == kept
    box.outbox.put_report(b"r" * 30_000, "x")
    assert box.outbox.counts().dropped_reports == 1
    assert len(box.waiting()) == kept


def test_the_events_that_are_left_tell_of_every_one_that_was_lost(box: Box) -> None:
    for number in range(60):
        box.event("n" * 1000, Keep.NEWEST, event_id=f"n{number}")
    box.restart()
    for number in range(60, 120):
        box.event("n" * 1000, Keep.NEWEST, event_id=f"n{number}")
    left = box.waiting(Keep.NEWEST)
    assert [event["id"] for event in left][-1] == "n119"
    assert sum(int(str(event["lost"])) for event in left) == 120 - len(left) > 60


def test_a_new_event_that_found_no_room_is_told_of_once(box: Box) -> None:
    kept = 0
    while box.outbox.counts().waiting_bytes < LIMIT_BYTES - 1300:
        kept += 1
        box.event("a" * 1000, event_id=f"a{kept}")
    assert box.event("no room" * 200, Keep.NEWEST) == ""
    assert box.event("no room" * 200, Keep.NEWEST) == ""
    first = box.outbox.next(Keep.ALWAYS, newest=False, excluded=())
    assert first is not None
    box.outbox.remove([first.number])
    box.restart()
    box.event("fits", Keep.NEWEST)
    box.event("too", Keep.NEWEST)
    assert [event["lost"] for event in box.waiting(Keep.NEWEST)] == [2, 0]


def test_a_file_of_rubbish_is_moved_aside_and_told_of(box: Box) -> None:
    box.event("lost")
    box.file.close()
    box.path.write_bytes(b"this is not a database" * 1000)
    box.restart()
    replaced = box.file.take_replaced()
    assert replaced is not None
    assert replaced.moved_to == ASIDE_NAME
    assert (box.path.parent / ASIDE_NAME).read_bytes().startswith(b"this is not")
    assert box.file.take_replaced() is None
    box.event("new")
    assert [event["text"] for event in box.waiting()] == ["new"]


def test_of_a_damaged_page_the_other_rows_are_saved(box: Box) -> None:
    """Update state is worth an attempt: what can still be read goes over, at its old place in the order."""
    for number in range(40):
        box.event("e" * 900, event_id=f"e{number}")
    box.file.close()
    content = bytearray(box.path.read_bytes())
    at = content.index(b'"e20"')
    page = at // 4096 * 4096
    content[page : page + 4096] = b"\xff" * 4096
    box.path.write_bytes(content)
    box.restart()
    replaced = box.file.take_replaced()
    assert replaced is not None
    saved = [str(event["id"]) for event in box.waiting()]
    assert replaced.saved_entries == len(saved) > 20
    assert "e0" in saved
    assert "e39" in saved
    assert saved == sorted(saved, key=lambda name: int(name[1:]))


def test_damage_that_is_met_while_running_costs_no_call(box: Box) -> None:
    for number in range(40):
        box.event("e" * 900, event_id=f"e{number}")
    box.file.close()
    header = bytearray(box.path.read_bytes())
    header[:100] = bytes(100)
    box.path.write_bytes(header)
    assert box.event("still kept", event_id="after") == "after"
    assert [event["id"] for event in box.waiting()] == ["after"]
    assert box.file.take_replaced() is not None


def _delete(path: Path) -> None:
    path.unlink()


def _delete_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


def _delete_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def _put_another_there(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE entries (number)")


@pytest.mark.parametrize("deed", [_delete, _delete_log, _delete_folder, _put_another_there])
def test_a_file_that_is_deleted_under_the_agent_is_written_anew(
    box: Box, deed: Callable[[Path], None]
) -> None:
    """Whoever clears the folder costs no event, and is told of."""
    first = box.event("before", event_id="u-1:1")
    own_id = box.event("named by the outbox")
    box.outbox.put_report(b"figures", "x")
    deed(box.path)
    assert box.event("after", event_id="u-1:2") == "u-1:2"
    told = box.file.take_replaced()
    assert told is not None
    assert told.saved_entries == 3
    assert "while it was in use" in told.reason
    box.restart()
    assert [event["id"] for event in box.waiting()] == [first, own_id, "u-1:2"]
    assert box.event("the next") not in {first, own_id}
    assert box.outbox.counts().reports == 1
    assert box.file.take_replaced() is None


def test_a_deleted_file_without_room_for_a_new_one_stays_in_use_until_there_is(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.event("kept", event_id="a")
    box.path.unlink()

    def full(_database: sqlite3.Connection, _folder: Path) -> Path:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("vedette.link.sqlite_file.copy_out", full)
    with pytest.raises(StorageError) as refused:
        box.event("no room", event_id="b")
    assert refused.value.kind == "no_space"
    monkeypatch.undo()
    box.event("room again", event_id="c")
    box.restart()
    assert [event["id"] for event in box.waiting()] == ["a", "c"]


def test_a_row_whose_payload_was_changed_is_not_sent(box: Box) -> None:
    box.event("true", event_id="a")
    box.event("other", event_id="b")
    box.file.close()
    with sqlite3.connect(box.path) as database:
        database.execute("UPDATE entries SET payload = ? WHERE event_id = 'a'", (b'{"text": "false"}',))
    database.close()
    box.restart()
    assert [event["text"] for event in box.waiting()] == ["other"]
    assert box.outbox.counts().damaged == 1


def test_a_file_of_a_newer_agent_is_moved_aside_but_read_as_far_as_it_goes(box: Box) -> None:
    box.event("kept", event_id="a")
    box.file.close()
    with sqlite3.connect(box.path) as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    box.restart()
    replaced = box.file.take_replaced()
    assert replaced is not None
    assert "schema" in replaced.reason
    assert [event["id"] for event in box.waiting()] == ["a"]


def test_a_folder_that_cannot_be_written_says_so_and_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "link").write_text("a file where the folder should be")
    file = SqliteFile(tmp_path / "link", max_bytes=LIMIT_BYTES)
    outbox = Outbox(file, max_bytes=LIMIT_BYTES, now=lambda: Moment("b", 1.0))
    with pytest.raises(StorageError) as refused:
        outbox.put_event(lambda identity, _lost: identity.encode(), Keep.ALWAYS)
    assert str(tmp_path / "link") in refused.value.cause
    assert outbox.put_event(lambda identity, _lost: identity.encode(), Keep.NEWEST, "n") == "n"
    assert outbox.counts().dropped_events == 1
    (tmp_path / "link").unlink()
    assert outbox.put_event(lambda identity, _lost: identity.encode(), Keep.ALWAYS)


def test_a_second_agent_on_the_same_folder_is_refused(box: Box) -> None:
    second = SqliteFile(box.path.parent, max_bytes=LIMIT_BYTES)
    with pytest.raises(StorageError, match="locked"):
        second.run(lambda database: database.execute("SELECT 1"))


def test_what_was_set_aside_is_sent_no_more_until_it_is_taken_back(box: Box) -> None:
    box.event("x" * 3000, event_id="large")
    box.event("small", event_id="small")
    first = box.outbox.next(Keep.ALWAYS, newest=False, excluded=())
    assert first is not None
    assert box.outbox.set_aside(first.number, "too_large") == first
    assert [event["id"] for event in box.waiting()] == ["small"]
    assert (box.outbox.counts().events, box.outbox.counts().set_aside) == (1, 1)
    box.restart()
    assert [event["id"] for event in box.waiting()] == ["small"]
    box.outbox.take_back("too_large", 2000)
    assert [event["id"] for event in box.waiting()] == ["small"]
    box.outbox.take_back("too_large", 9000)
    assert [event["id"] for event in box.waiting()] == ["large", "small"]
    assert box.outbox.counts().set_aside == 0


def test_what_was_set_aside_makes_room_first(box: Box) -> None:
    box.event("x" * 30_000, Keep.NEWEST, event_id="large")
    first = box.outbox.next(Keep.NEWEST, newest=False, excluded=())
    assert first is not None
    box.outbox.set_aside(first.number, "too_large")
    box.outbox.put_report(b"r" * 20_000, "x")
    box.event("y" * 30_000, event_id="needs room")
    assert box.outbox.counts().set_aside == 0
    assert box.outbox.counts().reports == 1


def test_update_state_that_was_set_aside_never_makes_room(box: Box) -> None:
    box.event("x" * 30_000, event_id="result")
    first = box.outbox.next(Keep.ALWAYS, newest=False, excluded=())
    assert first is not None
    box.outbox.set_aside(first.number, "ended_link")
    for _ in range(5):
        box.outbox.put_report(b"r" * 20_000, "x")
    with pytest.raises(StorageError, match="the outbox is full"):
        box.event("y" * 40_000, event_id="another")
    assert box.outbox.counts().set_aside == 1
    box.outbox.take_back("ended_link")
    assert [event["id"] for event in box.waiting()] == ["result"]


def test_room_is_held_back(box: Box) -> None:
    reserve = box.path.parent / RESERVE_NAME
    assert reserve.stat().st_size == RESERVE_BYTES
    reserve.unlink()
    box.outbox.remove([])
    assert reserve.exists()


def test_what_was_lost_while_the_disk_refused_is_told_when_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "link").write_text("a file where the folder should be")
    file = SqliteFile(tmp_path / "link", max_bytes=LIMIT_BYTES)
    outbox = Outbox(file, max_bytes=LIMIT_BYTES, now=lambda: Moment("b", 1.0))
    for number in range(3):
        outbox.put_event(lambda identity, _lost: identity.encode(), Keep.NEWEST, f"n{number}")
    (tmp_path / "link").unlink()
    outbox.put_event(lambda _identity, lost: str(lost).encode(), Keep.NEWEST, "told")
    entry = outbox.next(Keep.NEWEST, newest=True, excluded=())
    assert entry is not None
    assert entry.payload == b"3"
