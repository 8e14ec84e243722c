"""The outbox: results are kept in order, once, and never dropped; notices make room for them."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from vedette.errors import StorageError
from vedette.fsops import Kind, Operation, traced
from vedette.update.causes import Cause, Result
from vedette.update.outbox import DEFAULT_MAX_BYTES, KEPT_RESULTS, Notice, Outbox
from vedette.update.record import Mark, Report

if TYPE_CHECKING:
    from pathlib import Path


def report(number: int, *, detail: str = "") -> Report:
    return Report(
        f"u{number}", 1, Result.SUCCESS, None, detail, "a" * 64, number, "r", Mark(0, 1), "b" * 64, 9
    )


def notice(number: int) -> Notice:
    return Notice(Cause.EXPIRED, f"notice {number} {'x' * 300}", Mark(0, number))


def fill(outbox: Outbox) -> None:
    for number in range(1, 30):
        outbox.put_report(report(number))


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    made = Outbox(tmp_path / "outbox", max_bytes=4096)
    made.open()
    return made


def test_results_and_notices_are_kept_in_order(outbox: Outbox, tmp_path: Path) -> None:
    """Another process of the same box reads the same."""
    outbox.put_report(report(1))
    outbox.put_notice(notice(1))
    outbox.put_report(report(2))
    entries = Outbox(tmp_path / "outbox").entries()
    assert [entry.number for entry in entries] == [1, 2, 3]
    assert [entry.result for entry in entries] == [report(1), None, report(2)]
    assert entries[1].notice == notice(1)


def test_the_same_is_kept_once(outbox: Outbox) -> None:
    """After a power cut the machine reports again."""
    for _ in range(2):
        outbox.put_report(report(1))
        outbox.put_notice(notice(1))
    assert len(outbox.entries()) == 2


def test_what_was_delivered_is_forgotten(outbox: Outbox) -> None:
    """And numbers go on."""
    outbox.put_report(report(1))
    outbox.put_report(report(2))
    first = outbox.entries()[0]
    outbox.acknowledge(first)
    outbox.acknowledge(first)
    outbox.put_report(report(3))
    assert [entry.number for entry in outbox.entries()] == [2, 3]


def test_a_full_outbox_drops_the_oldest_notices_and_no_result(outbox: Outbox) -> None:
    """The issue's bound in bytes: what is the update's state stays."""
    outbox.put_report(report(0))
    for number in range(20):
        outbox.put_notice(notice(number))
    assert outbox.dropped_notices > 0
    with pytest.raises(StorageError, match="full") as refused:
        fill(outbox)
    assert refused.value.kind == "no_space"
    assert "never dropped" in str(refused.value.cure)
    results = [entry.result for entry in outbox.entries()]
    assert results == [report(number) for number in range(len(results))]
    assert len(results) > 5
    with pytest.raises(StorageError, match="full"):
        outbox.put_notice(notice(99))


def test_an_event_of_absurd_size_is_refused(outbox: Outbox) -> None:
    """It would push everything else out."""
    with pytest.raises(StorageError, match="limit"):
        outbox.put_report(report(1, detail="x" * 10_000))


def test_a_damaged_file_hides_nothing_else(outbox: Outbox, tmp_path: Path) -> None:
    """Half-made and rotten files are passed over; strangers are left alone."""
    outbox.put_report(report(1))
    outbox.put_report(report(2))
    (tmp_path / "outbox" / "00000001.json").write_bytes(b"\0" * 40)
    (tmp_path / "outbox" / ".00000003.json.tmp").write_bytes(b"half")
    (tmp_path / "outbox" / "readme").write_text("not ours")
    outbox.open()
    assert [entry.result for entry in outbox.entries()] == [report(2)]
    assert not (tmp_path / "outbox" / ".00000003.json.tmp").exists()


class FullUntil:
    """A disk that is full until a file is deleted."""

    def __init__(self) -> None:
        self.full = True

    def before(self, operation: Operation) -> None:
        if operation.kind is Kind.UNLINK and operation.path.endswith(".reserve"):
            self.full = False
        elif self.full and operation.kind is Kind.WRITE:
            raise OSError(errno.ENOSPC, "no space left", operation.path)


def test_a_full_disk_can_be_reported_from_the_reserve(outbox: Outbox, tmp_path: Path) -> None:
    """Casebook 36: what was held back is given up for it, and set aside again."""
    with traced(FullUntil()):
        outbox.put_report(report(1))
    assert [entry.result for entry in outbox.entries()] == [report(1)]
    assert not (tmp_path / "outbox" / ".reserve").exists()
    outbox.open()
    assert (tmp_path / "outbox" / ".reserve").stat().st_size > 0


def test_without_a_link_old_results_make_room_for_new_ones(tmp_path: Path) -> None:
    """Nobody acknowledges them, and an update must not wait for that for ever; the newest 64 stay."""
    outbox = Outbox(tmp_path / "outbox", linked=False)
    outbox.open()
    for number in range(1, 400):
        outbox.put_report(report(number, detail="x" * 512))
        if number % 7 == 0:
            outbox.put_notice(notice(number))
    kept = [entry.result.counter for entry in outbox.entries() if entry.result is not None]
    assert kept == list(range(400 - len(kept), 400))
    assert len(kept) >= KEPT_RESULTS
    assert outbox.dropped_results == 399 - len(kept) > 0
    weight_bytes = sum(path.stat().st_size for path in (tmp_path / "outbox").glob("*.json"))
    assert weight_bytes <= DEFAULT_MAX_BYTES


def test_the_newest_results_stay_whatever_comes(tmp_path: Path) -> None:
    """Even the largest that there can be, 64 times."""
    outbox = Outbox(tmp_path / "outbox", linked=False)
    outbox.open()
    for number in range(1, 200):
        outbox.put_report(report(number, detail="\N{SNOWMAN}" * 512))
    kept = [entry.result.counter for entry in outbox.entries() if entry.result is not None]
    assert len(kept) >= KEPT_RESULTS
    assert kept[-1] == 199


def test_with_a_link_no_result_makes_room(tmp_path: Path) -> None:
    """It comes back, and all of them are delivered."""
    outbox = Outbox(tmp_path / "outbox", linked=True)
    outbox.open()

    def put_all() -> None:
        for number in range(1, 400):
            outbox.put_report(report(number, detail="x" * 512))

    with pytest.raises(StorageError, match="the outbox is full"):
        put_all()
    kept = [entry.number for entry in outbox.entries()]
    assert kept == list(range(1, len(kept) + 1))
