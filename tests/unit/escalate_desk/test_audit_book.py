"""A model's audits outlive power cuts, restarts and other models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from vedette import fsops
from vedette.escalate import audit_book
from vedette.escalate.audit_book import AuditBook, book_path
from vedette.escalate.audit_record import (
    MAGIC,
    AuditSample,
    Drifted,
    Looked,
    Record,
    pack_record,
    parse_records,
)
from vedette.fsops import Kind, Operation
from vedette.gate.calibrate import Calibration
from vedette.gate.setting import GateMode, Platt
from vedette.wire.escalation import Guarantee

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

FOUND = Calibration(GateMode.CALIBRATED, Guarantee.AGREEMENT, 0.7, 1.3, Platt(1.1, 0.2, {3: 0.5}), 400, 190)


def sample(number: int) -> AuditSample:
    return AuditSample(
        float(number),
        f"s{number}",
        score=0.5,
        inclusion=0.02,
        kept=True,
        agreed=False,
        local=1,
        cloud=2,
        logits=bytes([number % 256]) * 12,
    )


def opened(path: Path) -> AuditBook:
    book = AuditBook(path)
    book.open()
    return book


records = st.one_of(
    st.builds(
        AuditSample,
        st.floats(0, 1e10),
        st.text(max_size=9),
        st.floats(0, 1),
        st.floats(0.001, 1),
        st.booleans(),
        st.booleans(),
        st.integers(-1, 999),
        st.integers(-1, 999),
        st.binary(max_size=40),
        st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), st.booleans()), max_size=3).map(tuple),
        st.floats(0, 1),
    ),
    st.builds(Looked, st.integers(1, 99), st.integers(0, 9999), st.just(FOUND)),
    st.builds(Drifted, st.floats(0, 1e10), st.text(max_size=9), st.integers(0, 99)),
)


@given(st.lists(records, max_size=6), st.data())
def test_whatever_is_cut_off_the_records_before_are_whole(written: list[Record], data: st.DataObject) -> None:
    packed = [pack_record(record) for record in written]
    content = MAGIC + b"".join(packed)
    assert parse_records(content) == (written, len(content), "")
    cut = data.draw(st.integers(len(MAGIC), len(content)))
    found = parse_records(content[:cut])
    assert found.records == written[: len(found.records)]
    assert found.whole_bytes <= cut
    assert (found.whole_bytes == cut) == (found.damage == "")


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_read_or_called_damaged(content: bytes) -> None:
    for start in (b"", MAGIC):
        found = parse_records(start + content)
        assert found.damage or found.whole_bytes == len(start + content)


def test_what_was_synced_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.book"
    book = opened(path)
    for number in range(3):
        book.append(sample(number))
    book.append(Looked(1, 3, FOUND))
    book.close()
    again = opened(path)
    assert (again.samples, again.looked, again.looks) == (
        [sample(i) for i in range(3)],
        Looked(1, 3, FOUND),
        1,
    )
    again.append(sample(9))
    again.close()
    assert [one.utc_s for one in opened(path).samples] == [0, 1, 2, 9]


def test_a_power_cut_in_the_middle_costs_what_was_being_written(tmp_path: Path) -> None:
    path = tmp_path / "a.book"
    book = opened(path)
    for number in range(3):
        book.append(sample(number))
    book.close()
    path.write_bytes(path.read_bytes()[:-5])
    again = opened(path)
    assert "cut short" in again.damage
    assert len(again.samples) == 2
    again.append(sample(7))
    again.close()
    after = opened(path)
    assert (after.damage, [one.utc_s for one in after.samples]) == ("", [0, 1, 7])


def test_what_is_no_book_is_said_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.book"
    path.write_bytes(b"something else")
    assert "no book" in opened(path).damage
    assert opened(path).damage == ""


def test_after_a_drift_nothing_before_counts_but_the_looks_do(tmp_path: Path) -> None:
    path = tmp_path / "a.book"
    book = opened(path)
    book.append(sample(1))
    book.append(Looked(4, 1, FOUND))
    book.append(Drifted(2.0, "scores", 4))
    book.append(sample(2))
    book.close()
    again = opened(path)
    assert ([one.utc_s for one in again.samples], again.looked, again.looks) == ([2.0], None, 4)


def test_a_book_is_bounded_and_forgets_no_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_book, "MAX_SAMPLES", 40)
    monkeypatch.setattr(audit_book, "MAX_BYTES", 6000)
    path = tmp_path / "a.book"
    book = opened(path)
    book.append(Looked(5, 1, FOUND))
    book.append(Drifted(0.0, "errors", 5))
    for number in range(1000):
        book.append(sample(number))
        assert path.stat().st_size <= 6000 + 200
        assert len(book.samples) <= 50
    book.close()
    again = opened(path)
    assert again.looks == 5
    assert again.samples[-1] == sample(999)
    assert len(again.samples) >= 20


def test_a_disk_that_refuses_is_said_and_the_sample_counts_all_the_same(tmp_path: Path) -> None:
    book = opened(tmp_path / "a.book")

    class Full:
        def before(self, operation: Operation) -> None:
            if operation.kind is Kind.WRITE:
                raise OSError(28, "No space left on device")

    with fsops.traced(Full()):
        book.append(sample(1))
    assert "audit cannot be written down" in book.fault
    assert book.samples == [sample(1)]
    book.append(sample(2))
    assert book.fault == ""
    book.close()
    assert [one.utc_s for one in opened(tmp_path / "a.book").samples] == [2]


def test_a_sync_that_fails_writes_the_book_anew(tmp_path: Path) -> None:
    """Pages that could not be written may be gone: the file cannot be trusted any more."""
    path = tmp_path / "a.book"
    book = opened(path)
    book.append(sample(1))
    failed: list[str] = []

    class Once:
        def before(self, operation: Operation) -> None:
            if operation.kind is Kind.SYNC and not failed:
                failed.append(operation.path)
                raise OSError(5, "Input/output error")

    with fsops.traced(Once()):
        book.sync()
    assert failed == [str(path)]
    book.append(sample(2))
    book.close()
    assert [one.utc_s for one in opened(path).samples] == [1, 2]


def test_without_a_place_on_the_disk_it_is_kept_in_memory() -> None:
    book = AuditBook(None)
    book.open()
    book.append(sample(1))
    book.sync()
    book.close()
    assert book.samples == [sample(1)]


def test_a_model_that_comes_back_finds_its_book_and_the_oldest_of_many_go(tmp_path: Path) -> None:
    names = [f"{number:064x}" for number in range(12)]
    for name in names:
        opened(book_path(tmp_path, name)).close()
    left = sorted(path.stem for path in tmp_path.iterdir())
    assert len(left) == audit_book.MAX_BOOKS
    assert names[-1] in left
    assert book_path(tmp_path, left[0]).exists()
