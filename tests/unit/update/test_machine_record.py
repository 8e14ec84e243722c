"""The record: on disk and back, newer ones salvaged."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.update.driving import FACTORY, Box, box_in

from vedette.trust.refusal import Refusal
from vedette.update import events as ev
from vedette.update.causes import Cause
from vedette.update.phases import PHASES, Phase
from vedette.update.record import FileProgress, Mark, UpdateRecord, on_disk, salvage_record


@pytest.mark.parametrize("phase", list(Phase))
def test_a_record_comes_back_from_json_as_it_was(phase: Phase) -> None:
    record = box_in(phase).record
    assert msgspec.json.decode(msgspec.json.encode(record), type=UpdateRecord) == record


def test_the_largest_record_fits_where_it_is_kept() -> None:
    """256 files are the most a bundle holds; the journal sets 64 KiB aside."""
    record = msgspec.structs.replace(
        box_in(Phase.FETCH).record, files=(FileProgress(100, 100),) * 256, detail="x" * 512
    )
    assert len(msgspec.json.encode(record)) < 16384


def test_phases_that_are_not_durable_leave_no_trace_on_disk() -> None:
    for phase in Phase:
        kept = on_disk(box_in(phase).record)
        assert kept.phase is phase or not PHASES[phase].durable
        assert PHASES[kept.phase].durable or kept.candidate is None


def test_an_unknown_phase_rolls_back_when_a_candidate_was_about() -> None:
    """Fault matrix: agent downgraded between phases. The release is not to blame."""
    newer = msgspec.json.decode(msgspec.json.encode(box_in(Phase.TRIAL).record))
    newer |= {"phase": "levitate", "schema": 7, "aura": 3, "blacklist": [{"cause": "bad_vibes"}]}
    record = salvage_record(msgspec.json.encode(newer))
    assert record is not None
    box = Box(record)
    box.see(ev.Started())
    assert box.phase is Phase.ROLLBACK
    box.see(ev.ProvenServes(FACTORY.sha256, 0), ev.ReportStored())
    assert box.results() == [("failed_rolled_back", Cause.STATE_LOST)]
    assert (box.record.blacklist, box.record.seen) == ((), Mark(0, 1))


def test_an_unknown_phase_without_a_candidate_is_idle() -> None:
    record = salvage_record(
        b'{"phase": "levitate", "active": {"sha256": "ab", "counter": 4}, "seen": [0, 9]}'
    )
    assert record is not None
    box = Box(record)
    box.see(ev.Started())
    assert (box.phase, box.record.seen) == (Phase.IDLE, Mark(0, 9))


@pytest.mark.parametrize("payload", [b"", b"null", b"[1]", b'{"active": 3}', b"\0" * 64])
def test_what_cannot_be_understood_at_all_is_nothing(payload: bytes) -> None:
    assert salvage_record(payload) is None


def test_every_word_that_trust_refuses_with_is_a_cause() -> None:
    assert {refusal.value for refusal in Refusal} <= {cause.value for cause in Cause}
