"""What waits on the disk: bounded, the most uncertain first, never too old, whole after a power cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.stubs.asked_cases import SHA, case_of

from vedette import fsops
from vedette.config.escalation import OfflineConfig
from vedette.escalate.backlog import Backlog, Entry
from vedette.escalate.backlog_files import BacklogFiles
from vedette.escalate.ticket import KeptCase, SentPicture
from vedette.fsops import Kind, Operation

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = OfflineConfig(disk=20_000, max_age_s=3600.0, drain_per_minute=60.0)


def kept(
    seq: int, *, uncertainty: float = 0.5, audit: bool = False, size: int = 3000, utc_s: float = 1e9
) -> KeptCase:
    picture = SentPicture(bytes(size), 64, 48, 0, 0, 1.0, f"s{seq}")
    return KeptCase(case_of(seq, uncertainty=uncertainty, audit=audit), picture, utc_s, kept=False)


def keep(files: BacklogFiles, case: KeptCase) -> bool:
    return files.keep(case, (1 if case.case.reason.value == "audit" else 0, case.case.uncertainty))


def drained(files: BacklogFiles) -> list[int]:
    order = []
    for minute in range(200):
        found = files.next_due(60.0 * minute, SHA)
        if found is None:
            break
        order.append(found[1].case.result.seq)
        files.done(found[0], answered=True)
    return order


def test_audits_come_first_and_then_the_most_uncertain(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    for seq, doubt, audit in ((1, 0.2, False), (2, 0.9, False), (3, 0.1, True), (4, 0.5, False)):
        assert keep(files, kept(seq, uncertainty=doubt, audit=audit))
    assert drained(files) == [3, 2, 4, 1]
    assert (len(files), list(tmp_path.iterdir())) == (0, [])


def test_where_room_is_short_the_surest_give_way_and_nobody_else(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    for seq in range(1, 6):
        assert keep(files, kept(seq, uncertainty=seq / 10))
    assert keep(files, kept(9, uncertainty=0.45))
    assert not keep(files, kept(10, uncertainty=0.01))
    assert not keep(files, kept(11, uncertainty=0.9, size=30_000))
    assert files.size_bytes <= LIMITS.disk
    assert drained(files) == [5, 9, 4, 3, 2]


def test_after_a_restart_all_that_was_whole_is_there(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    for seq in (1, 2):
        keep(files, kept(seq, uncertainty=seq / 10))
    (tmp_path / ".1-0000001-000000000000-0000000000000000.case.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("somebody's", encoding="utf-8")
    again = BacklogFiles(tmp_path, LIMITS)
    assert (len(again), again.size_bytes) == (2, files.size_bytes)
    assert drained(again) == [2, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_file_is_counted_and_removed(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    keep(files, kept(1))
    next(tmp_path.iterdir()).write_bytes(b"\xc1")
    assert files.next_due(0.0, SHA) is None
    assert (files.damaged, len(files), list(tmp_path.iterdir())) == (1, 0, [])


def test_one_that_had_no_answer_is_asked_about_again_and_not_twice_at_once(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    keep(files, kept(1))
    first = files.next_due(0.0, SHA)
    assert first is not None
    assert files.next_due(60.0, SHA) is None
    files.done(first[0], answered=False)
    again = files.next_due(120.0, SHA)
    assert again is not None
    assert again[0] == first[0]


def test_it_is_drained_at_its_rate(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    for seq in (1, 2, 3):
        keep(files, kept(seq))
    asked = [files.next_due(tenth / 10, SHA) is not None for tenth in range(25)]
    assert [place for place, was in enumerate(asked) if was] == [0, 10, 20]


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    keep(files, kept(1, utc_s=1e9))
    keep(files, kept(2, utc_s=1e9 + 1000))
    assert files.expire(1e9 + 3000) == 0
    assert files.expire(1e9 + 3601) == 1
    assert drained(files) == [2]


def test_cases_of_another_model_wait_for_it(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)
    keep(files, kept(1))
    assert files.next_due(0.0, "c" * 64) is None
    assert files.next_due(0.0, SHA) is not None


def test_a_full_disk_keeps_nothing_and_says_so(tmp_path: Path) -> None:
    files = BacklogFiles(tmp_path, LIMITS)

    class Full:
        def before(self, operation: Operation) -> None:
            if operation.kind is Kind.WRITE:
                raise OSError(28, "No space left on device")

    with fsops.traced(Full()):
        assert not keep(files, kept(1))
    assert "No space" in files.fault
    assert (len(files), list(tmp_path.iterdir())) == (0, [])
    assert keep(files, kept(2))
    assert files.fault == ""


def test_no_room_on_purpose_keeps_nothing(tmp_path: Path) -> None:
    assert not keep(BacklogFiles(tmp_path, OfflineConfig(disk=0)), kept(1))
    assert not keep(BacklogFiles(None, LIMITS), kept(1))


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.floats(0, 2), st.integers(1, 400), st.integers(0, 50)), max_size=60
    ),
    st.integers(0, 1000),
)
def test_it_is_never_larger_than_its_room_nor_does_a_surer_one_push_out_an_unsure_one(
    steps: list[tuple[int, float, int, int]], room: int
) -> None:
    policy = Backlog(room, 10.0, 60.0)
    for number, (audit, doubt, size, utc_s) in enumerate(steps):
        rank = (audit, doubt)
        victims = policy.victims(rank, size)
        if victims is None:
            continue
        assert all(victim.rank < rank for victim in victims)
        for victim in victims:
            del policy.entries[victim.name]
        policy.entries[str(number)] = Entry(str(number), rank, size, utc_s, "m")
        assert policy.size_bytes <= room
