"""Escalations in reports, on the status screen, in summaries and the fleet's table: counted, not averaged."""

from __future__ import annotations

import io

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace
from rich.console import Console
from tests.unit.fleet.test_top_figures import Fleet
from tests.unit.telemetry.recorded import recorded_report

from vedette.api.messages import AgentStatus, EscalationStatus
from vedette.cli.status import screen
from vedette.escalate.messages import EscalatorFigures, Promise, Spend
from vedette.runtime.escalation_status import as_figures, as_it_holds, joined
from vedette.telemetry.escalation_window import EscalationCounts, since, total
from vedette.telemetry.summary import escalation_lines
from vedette.wire.plane import JSON_TYPE, MSGPACK_TYPE
from vedette.wire.report_split import split_report
from vedette.wire.telemetry import BoxFigures, EscalationFigures, TelemetryReport, encode_report
from vedette_fleet.top_view import render

PROMISE = Promise(
    guarantee="agreement",
    mode="calibrated",
    epsilon=0.02,
    delta=0.05,
    threshold=0.81,
    samples=900,
    samples_needed=300,
    unmet_share=0.004,
    held_epsilon=0.024,
    agreement=0.931,
    agreement_low=0.91,
    agreement_high=0.95,
    local_agreement=(0.71, 0.68, 0.74),
)
CAMERAS = {
    "front": EscalationCounts(40, 5, 1, 0, {"answered": 12, "agreed": 30, "declined_cool_down": 70}),
    "yard": EscalationCounts(7, 0, 0, 0, {"answered": 3, "declined_budget": 9, "failed_busy": 4}),
}
FIGURES = EscalatorFigures(
    promise=PROMISE,
    spend=Spend(calls_day=49, calls_day_limit=2000, bytes_day=800_000, money_day=0.0123),
    asked=49,
    sent_bytes=812_345,
    rtt_p50_ms=120.0,
    rtt_p90_ms=400.0,
    backlog=3,
    backlog_bytes=60_000,
    fault="the key is wrong",
)


def totals(**counts: int) -> EscalationFigures:
    return EscalationFigures(**{name: total(count) for name, count in counts.items()})  # type: ignore[arg-type] # counts only


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20))
def test_increments_of_all_windows_add_up_to_what_was_counted(grown: list[int]) -> None:
    before: EscalationFigures | None = None
    seen, sum_of_windows = 0, 0
    for growth in grown:
        seen += growth
        now = msgspec.structs.replace(totals(calls=seen), outcomes={"answered": total(seen)})
        window = since(now, before)
        assert window.calls[1] == seen
        sum_of_windows += window.calls[0]
        assert window.outcomes["answered"] == window.calls
        before = now
    assert sum_of_windows == seen


def test_a_total_that_went_back_is_a_new_beginning() -> None:
    assert since(totals(calls=4), totals(calls=9)).calls == (4, 4)


def test_the_processes_before_are_counted_on() -> None:
    """The asking process may be started again; what the box counted does not fall back to nothing."""
    first = EscalatorFigures(asked=5, sent_bytes=100, outcomes={"answered": 5}, backlog=7)
    second = EscalatorFigures(asked=2, sent_bytes=30, outcomes={"answered": 1, "agreed": 1}, backlog=1)
    both = joined(first, second)
    assert (both.asked, both.sent_bytes, both.backlog) == (7, 130, 1)
    assert both.outcomes == {"answered": 6, "agreed": 1}


def test_what_was_unmet_is_taken_off_and_where_nothing_is_promised_nothing_holds() -> None:
    """Each of them counts as wrong, in the promise and in the agreement."""
    found = as_it_holds(PROMISE, 0.01)
    assert found.unmet_share == 0.01
    assert found.held_epsilon == pytest.approx(0.03)
    assert found.agreement == pytest.approx(0.921)
    assert found.agreement_low == pytest.approx(0.9)
    assert as_it_holds(PROMISE, 0.0).held_epsilon == 0.02
    assert as_it_holds(replace(PROMISE, guarantee="none"), 0.0).held_epsilon == 1.0
    assert as_it_holds(Promise(mode="threshold"), 0.4).held_epsilon == 0.0  # nobody asked for any


def test_all_cameras_are_added_up() -> None:
    found = as_figures(FIGURES, CAMERAS)
    assert found.escalated == (47, 47)
    assert found.audits == (5, 5)
    assert found.waiting == 1
    assert found.outcomes["answered"] == (15, 15)
    assert found.agreement == (0.931, 0.91, 0.95)


def status_of(**changes: object) -> EscalationStatus:
    plain = EscalationStatus(
        model="large at https://cloud",
        state="ready",
        fault="",
        restarts=0,
        cameras=CAMERAS,
        promise=PROMISE,
        spend=FIGURES.spend,
        figures=as_figures(FIGURES, CAMERAS),
        pause_s=0.0,
        backlog_bytes=60_000,
        training_samples=12,
        training_bytes=2_000_000,
    )
    return msgspec.structs.replace(plain, **changes)


def on_screen(found: EscalationStatus) -> str:
    status = AgentStatus(
        agent="1",
        device="box",
        uptime_s=1.0,
        model=None,
        engine=None,
        worker_restarts=0,
        cameras=(),
        escalation=found,
    )
    return "\n".join(screen(msgspec.json.decode(msgspec.json.encode(status), type=AgentStatus)))


def test_the_status_says_what_is_promised_what_holds_and_what_it_costs() -> None:
    shown = on_screen(status_of())
    for line in (
        "escalates  to large at https://cloud",
        "gate       calibrated on audits of this very model; threshold 0.81",
        "promise    at most 2.00% below it, with confidence 95%",
        "! 0.40% of the last hour's frames were unsure and unanswered by it: what holds is 2.40%",
        "agreement  71.0% of local answers (95 % interval 68.0% to 74.0%)",
        "93.1% with corrections, or more (95 % interval 91.0% to 95.0%)",
        "asked      about 47 unsure answers and 5 at random, 49 calls, 1 under way",
        "15 corrected by it",
        "70 not asked: the same scene was asked about a moment ago",
        "4 failed: busy",
        "answers    in 120 ms, 9 of 10 in 400 ms",
        "spent      49 of 2,000 calls today",
        "waiting    3 on the disk",
        "training   12 samples",
    ):
        assert line in shown, shown


def test_the_status_says_what_is_wrong() -> None:
    uncalibrated = Promise(mode="uncalibrated", threshold=0.02, samples=3, samples_needed=150)
    shown = on_screen(
        status_of(state="resting", fault="the key is wrong", restarts=2, pause_s=61.0, promise=uncalibrated)
    )
    for line in (
        "to large at https://cloud, resting",
        "! the key is wrong",
        "! the asking process was started again 2 times",
        "! it failed too often lately: not asked for 1 min 01 s",
        "3 of 150 audits that calibrating takes",
    ):
        assert line in shown, shown
    assert "promise" not in shown.replace("promises nothing", "")


def test_the_summary_of_a_run_says_it_too() -> None:
    lines = escalation_lines(as_figures(FIGURES, CAMERAS))
    assert lines[0] == (
        "large model: asked about 47 unsure answers and 5 at random, 49 calls, 0.81 MB sent, "
        "0.0123 of money today"
    )
    assert "    71.0% of the local answers agree with it (95 % interval 68.0% to 74.0%)" in lines
    assert lines[-1].startswith("    93.1% or more of the answers, corrections included")
    assert any(line.endswith("30 confirmed by it") for line in lines)


@pytest.mark.parametrize("content_type", [MSGPACK_TYPE, JSON_TYPE])
def test_a_report_with_all_of_it_is_read_as_it_was_written_and_stays_below_the_bar(content_type: str) -> None:
    """Eight cameras, everything else a box can say, and every word of escalation at once."""
    words = ("answered", "agreed", "expired", "declined_budget", "declined_cool_down", "failed_unmapped")
    everything = msgspec.structs.replace(
        as_figures(FIGURES, CAMERAS), outcomes=dict.fromkeys(words, (123, 45678))
    )
    recorded = recorded_report()
    assert recorded.box is not None
    report = msgspec.structs.replace(
        recorded, box=msgspec.structs.replace(recorded.box, escalation=everything)
    )
    decode = msgspec.json.decode if content_type == JSON_TYPE else msgspec.msgpack.decode
    assert decode(encode_report(report, content_type), type=TelemetryReport) == report
    if content_type == MSGPACK_TYPE:
        assert all(len(payload) < 4096 for payload in split_report(report, 4096))


def test_the_fleet_adds_counts_up_and_shows_each_devices_promise() -> None:
    fleet = Fleet()
    for device, seq in (("a", 1), ("a", 2), ("b", 1)):
        box = BoxFigures(
            escalation=EscalationFigures(
                outcomes={"answered": (3, 3 * seq), "agreed": (5, 5 * seq), "declined_budget": (2, 2 * seq)},
                escalated=(10, 10 * seq),
                calls=(8, 8 * seq),
                money_day=0.5 * seq,
                mode="calibrated",
                epsilon=0.02,
                held_epsilon=0.024,
                local_agreement=(0.93, 0.91, 0.95),
            )
        )
        fleet.report(
            TelemetryReport(
                device=device,
                boot_id="boot",
                started_s=0.0,
                seq=seq,
                start_s=60.0 * (seq - 1),
                end_s=60.0 * seq,
                box=box,
            )
        )
        fleet.now_s += 60.0
    found = fleet.row("a").escalation
    assert found is not None
    assert (found.calls, found.answers, found.corrected, found.unmet) == (16, 16, 6, 4)
    assert (found.mode, found.held_epsilon, found.money_day) == ("calibrated", 0.024, 1.0)
    every = fleet.total.escalation
    assert every is not None
    assert (every.calls, every.corrected, every.money_day) == (24, 9, 1.5)
    shown = io.StringIO()
    Console(file=shown, width=140, color_system=None).print(
        render(fleet.figures.view(fleet.now_s), width=140, height=50)
    )
    assert "6 of 16" in shown.getvalue()
    assert "93.0% (91%-95%)" in shown.getvalue()
    assert "2.40% of 2.00%" in shown.getvalue()
