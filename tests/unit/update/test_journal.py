"""The two-copy record: what is found after damage, after a newer agent, and on a disk that fails."""

from __future__ import annotations

import errno
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crash.traces import FailAt, Recorder

from vedette.errors import InternalError, RecordSchemaError, StateLostError, StorageError
from vedette.fsops import Kind, Point, traced
from vedette.journal import Copy, Journal, decode_copy, encode_copy

if TYPE_CHECKING:
    from pathlib import Path


class Phase(Enum):
    IDLE = "idle"
    TRIAL = "trial"


class State(msgspec.Struct, frozen=True):
    number: int
    phase: Phase = Phase.IDLE


class LaterPhase(Enum):
    HOVER = "hover"


class LaterState(msgspec.Struct, frozen=True):
    number: int
    phase: LaterPhase = LaterPhase.HOVER


def journal(folder: Path) -> Journal[State]:
    """As a new process sees it."""
    return Journal(folder, "traffic", State, capacity_bytes=8192)


def written(folder: Path, *numbers: int) -> Journal[State]:
    """A journal with some records written one after another."""
    fresh = journal(folder)
    fresh.read()
    for number in numbers:
        fresh.write(State(number))
    return fresh


def copies(folder: Path) -> list[Path]:
    """The files of both copies."""
    return [folder / "traffic.rec.0", folder / "traffic.rec.1"]


def newest(folder: Path) -> Path:
    """The file of the newer copy."""

    def seq(path: Path) -> int:
        copy = decode_copy(path.read_bytes())
        return copy.seq if isinstance(copy, Copy) else -1

    return max(copies(folder), key=seq)


def test_the_first_start_is_no_loss(tmp_path: Path) -> None:
    """Nothing was ever written: that is said by None, and only then."""
    assert journal(tmp_path).read() is None


def test_what_was_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    """And its number goes on, so that the older copy is the next to go."""
    written(tmp_path, 1, 2, 3)
    again = journal(tmp_path)
    assert again.read() == State(3)
    again.write(State(4, Phase.TRIAL))
    assert journal(tmp_path).read() == State(4, Phase.TRIAL)


def test_a_write_touches_no_name_and_not_the_newer_copy(tmp_path: Path) -> None:
    """F2: one write in place and one sync, to the two copies in turn, named by the reason for it."""
    ready = written(tmp_path, 1, 2)
    recorder = Recorder(tmp_path)
    with traced(recorder):
        ready.write(State(3))
        ready.write(State(4), point=Point.SWITCH)
    seen = [(step.kind, step.point, step.path) for step in recorder.steps]
    assert seen == [
        (Kind.WRITE, Point.RECORD, "traffic.rec.0"),
        (Kind.SYNC, Point.RECORD, "traffic.rec.0"),
        (Kind.WRITE, Point.SWITCH, "traffic.rec.1"),
        (Kind.SYNC, Point.SWITCH, "traffic.rec.1"),
    ]


@pytest.mark.parametrize("damage", [b"", bytes(8192), b"VREC", b"\xff" * 8192])
def test_a_damaged_newest_copy_gives_the_one_before(tmp_path: Path, damage: bytes) -> None:
    """Casebook 35: empty, NUL-filled, cut short, garbage."""
    written(tmp_path, 1, 2, 3)
    newest(tmp_path).write_bytes(damage)
    again = journal(tmp_path)
    assert again.read() == State(2)
    assert len(again.damage) == 1
    again.write(State(9))
    assert journal(tmp_path).read() == State(9)


def test_a_missing_copy_is_made_again(tmp_path: Path) -> None:
    """Somebody deleted one; the next writes bring it back."""
    written(tmp_path, 1, 2, 3)
    newest(tmp_path).unlink()
    again = journal(tmp_path)
    assert again.read() == State(2)
    again.write(State(3))
    assert all(path.stat().st_size == 8192 for path in copies(tmp_path))


def test_when_both_copies_are_bad_the_state_is_lost_and_says_why(tmp_path: Path) -> None:
    """Never taken for a first start, also when one of them is missing."""
    written(tmp_path, 1, 2)
    copies(tmp_path)[0].write_bytes(bytes(8192))
    copies(tmp_path)[1].unlink()
    with pytest.raises(StateLostError, match=r"rec\.0: all zeros; traffic\.rec\.1: missing"):
        journal(tmp_path).read()


def test_after_a_loss_the_record_begins_anew_and_the_bad_copies_are_kept(tmp_path: Path) -> None:
    """Casebook 35: the unreadable state is moved aside, and it is no crash loop."""
    written(tmp_path, 1, 2)
    for path in copies(tmp_path):
        path.write_bytes(b"scrambled")
    again = journal(tmp_path)
    with pytest.raises(StateLostError):
        again.read()
    with pytest.raises(InternalError, match="before it was read"):
        again.write(State(7))
    again.reset(State(7))
    assert journal(tmp_path).read() == State(7)
    assert (tmp_path / "traffic.rec.0.bad").read_bytes() == b"scrambled"


def test_a_newer_schema_is_not_damage(tmp_path: Path) -> None:
    """After a downgrade of the agent: the record is whole, and its JSON is handed on."""
    later = Journal(tmp_path, "traffic", LaterState, schema=2, capacity_bytes=8192)
    later.read()
    later.write(LaterState(5))
    with pytest.raises(RecordSchemaError, match="schema 2; this agent reads up to 1") as caught:
        journal(tmp_path).read()
    assert msgspec.json.decode(caught.value.payload) == {"number": 5, "phase": "hover"}
    again = journal(tmp_path)
    again.reset(State(6))
    assert journal(tmp_path).read() == State(6)


def test_an_unknown_word_is_not_damage_either(tmp_path: Path) -> None:
    """A phase that this agent does not know, under the same schema."""
    later = Journal(tmp_path, "traffic", LaterState, capacity_bytes=8192)
    later.read()
    later.write(LaterState(5))
    with pytest.raises(RecordSchemaError, match="hover"):
        journal(tmp_path).read()


def test_both_copies_say_what_must_not_be_collected(tmp_path: Path) -> None:
    """F8: the older copy may be what is found after the next power cut."""
    ready = written(tmp_path, 1, 2)
    assert ready.references() == (State(2), State(1))
    newest(tmp_path).write_bytes(b"")
    assert ready.references() == (State(1),)


def test_a_failed_sync_is_not_tried_again_on_the_same_file(tmp_path: Path) -> None:
    """EIO: a new file takes the place, and the record is written."""
    ready = written(tmp_path, 1, 2)
    before = copies(tmp_path)[0].stat().st_ino
    recorder = FailAt(1, errno.EIO)
    with traced(recorder):
        ready.write(State(3))
    assert copies(tmp_path)[0].stat().st_ino != before
    assert journal(tmp_path).read() == State(3)


def test_a_full_disk_does_not_keep_a_record_from_being_written(tmp_path: Path) -> None:
    """Casebook 36: its space was set aside when it was made."""
    ready = written(tmp_path, 1, 2)
    with traced(FailAt(0, errno.ENOSPC)):
        ready.write(State(3))
    assert journal(tmp_path).read() == State(3)


def test_a_full_disk_at_the_first_record_is_named(tmp_path: Path) -> None:
    """And the record can be made when there is space again."""
    first = journal(tmp_path)
    first.read()
    with traced(FailAt(0, errno.ENOSPC)), pytest.raises(StorageError) as caught:
        first.write(State(1))
    assert caught.value.kind == "no_space"
    first.write(State(1))
    assert journal(tmp_path).read() == State(1)


def test_a_failed_write_never_shares_its_number(tmp_path: Path) -> None:
    """The torn copy is the next to be overwritten; the good one stays."""
    ready = written(tmp_path, 1, 2)
    with traced(FailAt(0, errno.EIO)), pytest.raises(StorageError) as caught:
        ready.write(State(3))
    assert caught.value.kind == "io_error"
    assert journal(tmp_path).read() == State(2)
    ready.write(State(4))
    assert ready.references() == (State(4), State(2))


def test_a_read_only_disk_can_still_be_read(tmp_path: Path) -> None:
    """The box goes on serving; only writing is refused."""
    written(tmp_path, 1, 2)
    ready = journal(tmp_path)
    with traced(FailAt(0, errno.EROFS)):
        assert ready.read() == State(2)
        with pytest.raises(StorageError, match="Read-only"):
            ready.write(State(3))


def test_what_is_acted_on_was_synced(tmp_path: Path) -> None:
    """A process killed between write and sync left a record that only the cache holds."""
    written(tmp_path, 1, 2)
    recorder = Recorder(tmp_path)
    with traced(recorder):
        journal(tmp_path).read()
    assert [step.kind for step in recorder.steps] == [Kind.SYNC, Kind.SYNC_FOLDER]


def test_a_record_has_a_bound(tmp_path: Path) -> None:
    """More than its capacity is our own mistake, and changes nothing."""

    class Wide(msgspec.Struct):
        text: str

    wide = Journal(tmp_path, "wide", Wide, capacity_bytes=256)
    wide.read()
    wide.write(Wide("a"))
    with pytest.raises(InternalError, match="256 were set aside"):
        wide.write(Wide("a" * 300))
    assert wide.read() == Wide("a")


def test_a_record_that_is_not_needed_any_more_leaves_nothing(tmp_path: Path) -> None:
    """Its copies, bad copies and leftovers go."""
    ready = written(tmp_path, 1, 2)
    ready.reset(State(3))
    ready.remove()
    assert not any(tmp_path.iterdir())


@given(st.integers(1, 1 << 60), st.integers(0, 65535), st.binary(max_size=300), st.binary(max_size=40))
def test_a_copy_survives_the_way_to_bytes_and_back(
    seq: int, schema: int, payload: bytes, rest: bytes
) -> None:
    """Whatever follows it in the file."""
    copy = Copy(seq, schema, payload)
    assert decode_copy(encode_copy(copy) + rest) == copy


@given(st.binary(max_size=200), st.data())
def test_a_changed_copy_is_never_taken_for_a_good_one(payload: bytes, data: st.DataObject) -> None:
    """Any flipped byte and any cut is said, and nothing is raised."""
    raw = bytearray(encode_copy(Copy(7, 1, payload)))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert isinstance(decode_copy(bytes(raw)), str)
    assert isinstance(decode_copy(encode_copy(Copy(7, 1, payload))[:at]), str)


@given(st.binary(max_size=200))
def test_garbage_is_no_record(raw: bytes) -> None:
    """Nothing is raised."""
    assert isinstance(decode_copy(raw), str)
