"""What is said of an update while it goes on: once for each step, in words for people."""

from __future__ import annotations

from msgspec.structs import replace

from vedette.runtime.narration import Narrator, progress_text, short_text, size_text
from vedette.update.causes import Cause, Result
from vedette.update.phases import Phase
from vedette.update.record import Candidate, Mark, Report
from vedette.update.status import UpdateStatus

NEW, OLD = "b" * 64, "a" * 64
CANDIDATE = Candidate(NEW, 2, "c" * 64, "second", Mark(0, 2))
IDLE = UpdateStatus(Phase.IDLE)
FETCHING = UpdateStatus(
    Phase.FETCH, candidate=CANDIDATE, update_id="1", bytes_fetched=0, bytes_needed=4_000_000
)
REPORT = Report("1", 9, Result.SUCCESS, None, "", NEW, 2, "second", Mark(0, 2), NEW, 348)
S = 1_000_000_000


def told(*statuses: UpdateStatus) -> list[str]:
    """All that is said while the status goes through these, one a second."""
    narrator = Narrator(lambda sha256: {NEW: "person 2", OLD: "person 1"}[sha256])
    return [line for second, status in enumerate(statuses) for line in narrator.follow(status, second * S)]


def test_a_good_update_is_told_from_offer_to_confirmation() -> None:
    """Each step once, however often the status is looked at."""
    phases = (Phase.APPLY, Phase.PREFLIGHT, Phase.SWITCH, Phase.TRIAL, Phase.TRIAL, Phase.CONFIRM)
    steps = [replace(FETCHING, phase=phase) for phase in phases]
    lines = told(IDLE, FETCHING, FETCHING, *steps, replace(IDLE, last_result=REPORT))
    assert lines == [
        "update: person 2 by rollout second: 4.0 MB to fetch",
        "update: person 2: making its files",
        "update: person 2: trying it in a child process",
        "update: person 2: loading it beside the model that serves",
        "update: person 2: answering frames, on trial",
        "update: person 2: passed its trial",
        "update: person 2: confirmed, 348 bytes were fetched for it",
    ]


def test_the_offer_is_told_although_its_fetch_was_too_quick_to_see() -> None:
    """The status is looked at between two frames, and a delta may be a few bytes."""
    assert told(IDLE, replace(FETCHING, phase=Phase.PREFLIGHT))[0].endswith("4.0 MB to fetch")


def test_a_long_fetch_says_now_and_then_how_far_it_is() -> None:
    """Every ten seconds, not every look."""
    lines = told(IDLE, *(replace(FETCHING, bytes_fetched=second * 100_000) for second in range(1, 25)))
    assert lines[1:] == [
        "update: fetched 1.1 MB of 4.0 MB, 28%",
        "update: fetched 2.1 MB of 4.0 MB, 52%",
    ]


def test_a_bad_update_is_told_with_cause_and_what_serves_now() -> None:
    """Cause and detail at the fall, and in the result."""
    detail = "p95 30.0 ms is 3.00 times that of before, limit 1.50"
    fallen = replace(FETCHING, phase=Phase.ROLLBACK, cause=Cause.LATENCY_P95, detail=detail)
    report = replace(
        REPORT, result=Result.FAILED_ROLLED_BACK, cause=Cause.LATENCY_P95, detail=detail, serving=OLD
    )
    lines = told(IDLE, replace(FETCHING, phase=Phase.TRIAL), fallen, replace(IDLE, last_result=report))
    assert lines[-2:] == [
        f"update: person 2: taken back for latency_p95 ({detail})",
        f"update: person 2: failed rolled back (latency_p95): {detail}; person 1 serves",
    ]


def test_notes_of_the_start_and_trouble_are_told_once() -> None:
    """A record that was lost, a disk that refuses."""
    found = replace(IDLE, notes=("the update record is gone",))
    troubled = replace(found, trouble="the record cannot be written: no space")
    assert told(found, found, troubled, troubled) == [
        "update: the update record is gone",
        "update: the record cannot be written: no space",
    ]


def test_the_status_line_is_short_and_silent_when_nothing_goes_on() -> None:
    """Bytes of bytes and a percentage while fetching."""
    assert short_text(IDLE) == ""
    assert short_text(replace(IDLE, phase=Phase.TRIAL)) == "update trial"
    assert short_text(replace(FETCHING, bytes_fetched=1_000_000)) == "update 1.0 MB of 4.0 MB, 25%"


def test_sizes_and_progress_of_odd_values() -> None:
    """A damaged blob is fetched again, so more may come than was needed; nothing needed is no division."""
    assert progress_text(replace(FETCHING, bytes_fetched=5_000_000)) == "5.0 MB of 4.0 MB, 100%"
    assert progress_text(IDLE) == "0 bytes"
    assert [size_text(size) for size in (999, 1000, 1_234_000)] == ["999 bytes", "1.0 kB", "1.2 MB"]


def test_an_update_that_a_start_finds_goes_on_and_begins_nothing_anew() -> None:
    """It has nothing to fetch any more, so nothing of that is said."""
    trial = replace(FETCHING, phase=Phase.TRIAL, bytes_needed=348)
    switch = replace(trial, phase=Phase.SWITCH)
    assert told(trial, switch, trial) == [
        "update: person 2 by rollout second goes on: trial",
        "update: person 2: loading it beside the model that serves",
        "update: person 2: answering frames, on trial",
    ]


def test_a_fetch_that_waits_says_why_and_until_when() -> None:
    """Once for each reason, not at every look."""
    waits = replace(
        FETCHING, cause=Cause.CONNECTIVITY_LOST, detail="https://models/blobs/ab: HTTP 503", next_try_s=120.0
    )
    other = replace(waits, detail="https://models/blobs/ab: connection refused")
    lines = told(IDLE, FETCHING, waits, replace(waits, next_try_s=119.0), other)
    assert lines[1:] == [
        "update: https://models/blobs/ab: HTTP 503; tried again in 2 min 00 s",
        "update: https://models/blobs/ab: connection refused; tried again in 2 min 00 s",
    ]
