"""What the reporting thread looks after: results handed over for good, windows that survive, states told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.stubs.running import Running, camera, plan, stub_bundle, worker
from tests.stubs.waiting import until

from vedette.clock import ManualClock, SystemClock
from vedette.errors import StorageError, UnavailableError
from vedette.link.entries import Moment
from vedette.link.port import Keep, LinkStatus
from vedette.runtime.events import Happening
from vedette.runtime.events_observer import MAX_QUEUED, Observer
from vedette.runtime.events_updates import RETRY_MIN_S, Custody, ReportedState, step_of
from vedette.runtime.figures import Figures
from vedette.runtime.reporting import ReportThread
from vedette.runtime.reporting_duties import TelemetryDuty, home_state
from vedette.runtime.status import StatusDesk
from vedette.telemetry.report import Reporter
from vedette.telemetry.window import WindowRecorder
from vedette.update.causes import Cause, Result
from vedette.update.outbox import Notice, Outbox
from vedette.update.phases import Phase
from vedette.update.record import Candidate, Mark, Report, UpdateRecord
from vedette.wire.plane import ModelState
from vedette.wire.telemetry import decode_report, pieces_of

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.wire.messages import Result as FrameResult
    from vedette.wire.telemetry import TelemetryReport

LIVE = "synthetic:32x32@30"
MODEL = ModelState("person", "2", "cd" * 32)


class ShelfLink:
    """Implements `link.port.Link` over lists; `fault` plays a disk that refuses."""

    def __init__(self) -> None:
        self.events: dict[str, tuple[str, dict[str, object], Keep]] = {}
        self.reports: list[tuple[bytes, str]] = []
        self.changes = 0
        self.fault: StorageError | None = None

    def event(self, kind: str, data: dict[str, object], *, keep: Keep, event_id: str = "") -> str:
        """See Link."""
        if self.fault is not None:
            raise self.fault
        event_id = event_id or f"own-{len(self.events)}"
        self.events.setdefault(event_id, (kind, data, keep))
        return event_id

    def telemetry(self, payload: bytes, content_type: str) -> None:
        """See Link."""
        if self.fault is not None:
            raise self.fault
        self.reports.append((payload, content_type))

    def result(self, result: FrameResult) -> None:
        """See Link."""
        raise AssertionError(f"nobody offers answers here: {result}")

    def state_changed(self) -> None:
        """See Link."""
        self.changes += 1

    def status(self) -> LinkStatus:
        """See Link."""
        raise AssertionError("nobody asks")


def no_room() -> StorageError:
    return StorageError("the outbox is full", kind="no_space")


def report(update_id: str, seq: int = 1) -> Report:
    return Report(
        update_id, seq, Result.SUCCESS, None, "", MODEL.sha256, 2, "second", Mark(1, 2), MODEL.sha256, 999
    )


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    outbox = Outbox(tmp_path / "outbox")
    outbox.open()
    return outbox


def custody(outbox: Outbox, link: ShelfLink, said: list[str]) -> Custody:
    return Custody(
        outbox, link, model=lambda _sha256: MODEL, uniform=lambda _low, high: high, say=said.append
    )


def test_a_result_is_the_links_before_it_leaves_the_updates(outbox: Outbox) -> None:
    """With the name that it has for good, and for the fleet to read."""
    link = ShelfLink()
    outbox.put_report(report("u-1"))
    outbox.put_notice(Notice(Cause.IO_ERROR, "held for 9 s", Mark(1, 1)))
    custody(outbox, link, []).turn(1)
    kind, data, keep = link.events["update:u-1:1"]
    assert (kind, keep) == ("update_result", Keep.ALWAYS)
    assert (data["result"], data["name"], data["version"]) == ("success", "person", "2")
    (notice,) = [event for event in link.events.values() if event[0] == "update_notice"]
    assert (notice[1]["cause"], notice[2]) == ("io_error", Keep.NEWEST)
    assert outbox.entries() == ()


def test_a_link_without_room_leaves_the_result_where_it_is_and_is_asked_again_later(outbox: Outbox) -> None:
    link = ShelfLink()
    said: list[str] = []
    link.fault = no_room()
    outbox.put_report(report("u-1"))
    mover = custody(outbox, link, said)
    mover.turn(1)
    mover.turn(2)
    assert len(outbox.entries()) == 1
    assert len(said) == 1
    link.fault = None
    mover.turn(round((RETRY_MIN_S - 1) * 1e9))
    assert not link.events
    mover.turn(round((RETRY_MIN_S + 1) * 1e9))
    assert list(link.events) == ["update:u-1:1"]


def test_a_power_cut_between_the_two_hands_it_over_again_under_the_same_id(outbox: Outbox) -> None:
    """Casebook 29: at least once, and the id makes it once."""
    link = ShelfLink()
    outbox.put_report(report("u-1"))
    (entry,) = outbox.entries()
    link.event("update_result", {}, keep=Keep.ALWAYS, event_id=entry.event_id)  # and the power goes
    custody(outbox, link, []).turn(1)
    assert len(link.events) == 1
    assert outbox.entries() == ()


def test_an_entry_that_took_the_place_of_another_is_not_taken_for_it(outbox: Outbox) -> None:
    """Numbers begin anew; what was put in meanwhile must not go with the old one."""
    outbox.put_notice(Notice(Cause.IO_ERROR, "first", Mark(1, 1)))
    (first,) = outbox.entries()
    outbox.acknowledge(first)
    outbox.put_notice(Notice(Cause.IO_ERROR, "first", Mark(1, 1)))
    outbox.acknowledge(first)
    (second,) = outbox.entries()
    assert second.number == first.number
    assert second.event_id != first.event_id


CANDIDATE = Candidate(MODEL.sha256, 2, "ef" * 32, "second", Mark(1, 2))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (Phase.PLAN, Phase.FETCH, True),
        (Phase.TRIAL, Phase.ROLLBACK, True),
        (Phase.REPORT, Phase.IDLE, True),
        (Phase.IDLE, Phase.TRUST, False),
        (Phase.TRUST, Phase.IDLE, False),
    ],
)
def test_steps_of_an_update_are_told_and_looks_are_not(before: Phase, after: Phase, *, told: bool) -> None:
    record = UpdateRecord(phase=before, update_id="u-1", candidate=CANDIDATE)
    step = step_of(record, msgspec.structs.replace(record, phase=after))
    assert (step is not None) is told
    if step is not None:
        assert (step.data["from"], step.data["to"], step.keep) == (before.value, after.value, Keep.ALWAYS)


def test_events_wait_in_a_bound_for_a_disk_that_refuses_and_what_is_lost_is_counted() -> None:
    link = ShelfLink()
    said: list[str] = []
    link.fault = no_room()
    observer = Observer(link, wake=lambda: None, say=said.append)
    for number in range(MAX_QUEUED + 10):
        observer.happened(Happening("camera_down", f"camera-{number}", {"number": number}))
    observer.tell(1)
    observer.tell(2)
    assert len([line for line in said if "cannot be kept" in line]) == 1
    link.fault = None
    observer.tell(3)
    kinds = [kind for kind, _, _ in link.events.values()]
    assert kinds == ["camera_down"] * MAX_QUEUED + ["events_dropped"]
    assert [data for kind, data, _ in link.events.values() if kind == "events_dropped"] == [{"count": 10}]


def test_a_box_without_updates_still_says_what_serves() -> None:
    serving: list[ModelState] = []
    clock, link = ManualClock(), ShelfLink()
    state = ReportedState(
        None,
        serving=lambda: serving[0] if serving else None,
        labels={"class": "desk"},
        now=lambda: Moment("boot", 1.0, 1.7e9, utc_trusted=True),
        clock=clock,
    )
    assert state.reported(4).active is None
    serving.append(MODEL)
    state.turn(link, clock.monotonic_ns())
    state.turn(link, clock.monotonic_ns())
    said = state.reported(5)
    assert link.changes == 1
    assert (said.seq, said.active, said.phase, said.labels) == (5, MODEL, "none", {"class": "desk"})
    assert said.utc_s == 1.7e9


class Reporting:
    """A daemon with real children, its telemetry going to a shelf."""

    def __init__(self, folder: Path, *, interval_s: float = 0.3, doubt: str = "") -> None:
        self.run = Running(plan(worker(stub_bundle(folder / "b")), camera("one", LIVE, live=True)))
        clock = SystemClock()
        daemon = self.run.daemon
        window = WindowRecorder(daemon.started_ns)
        daemon.window = daemon.results._window = window
        desk = StatusDesk(clock, device="box")
        daemon._on_tick = desk.tick
        self.link = ShelfLink()
        self.said: list[str] = []
        reporter = Reporter(
            window, device="box", boot_id="boot", started_ns=daemon.started_ns, max_bytes=4096
        )
        duty = TelemetryDuty(
            reporter,
            Figures(clock, daemon, desk, lambda status: status),
            self.link,
            interval_s=interval_s,
            first_s=0.1,
            now=lambda: Moment("boot", 1.0, 1.7e9, utc_trusted=True),
            doubt=lambda: doubt,
            say=self.said.append,
        )
        daemon.companions.append(ReportThread([duty], daemon=daemon, desk=desk, clock=clock))

    def reports(self) -> list[Any]:
        return [decode_report(payload, content_type) for payload, content_type in self.link.reports]

    def answered(self) -> int:
        """Frames in all windows, by their sketches."""
        return sum(
            series.stages[5].count
            for report in self.reports()
            for _, own in pieces_of(report)
            for series in own
        )


def test_windows_add_up_to_the_books_and_the_last_one_is_reported_at_the_end(tmp_path: Path) -> None:
    """Nothing between the last interval and the end is lost, but what was answered while it ended."""
    reporting = Reporting(tmp_path)
    with reporting.run as run:
        run.until_answers("one", 20)
        until(lambda: len(reporting.link.reports) >= 2, "two windows")
    last = reporting.reports()[-1]
    (row,) = last.cameras.rows()
    ok = reporting.run.counts("one").ok
    assert row.ok[1] == sum(row.ok[0] for report in reporting.reports() for row in report.cameras.rows())
    assert 0 <= ok - row.ok[1] <= 5
    assert row.ok[1] <= reporting.answered() <= ok
    assert last.box.processes.keys() >= {"daemon", "worker"}
    assert {report.clock_trusted for report in reporting.reports()} == {True}


def test_a_report_that_cannot_be_kept_is_in_the_next_one(tmp_path: Path) -> None:
    """Casebook 45: a full disk costs detail in time, and no frame."""
    reporting = Reporting(tmp_path, doubt="it is before the newest signature")
    reporting.link.fault = no_room()
    with reporting.run as run:
        run.until_answers("one", 20)
        until(lambda: reporting.said, "the fault is said")
        run.until_answers("one", 20)
        reporting.link.fault = None
        until(lambda: reporting.link.reports, "a report")
    assert len([line for line in reporting.said if "telemetry waits" in line]) == 1
    first = reporting.reports()[0]
    assert (
        first.cameras.rows()[0].ok[0] >= 30
    )  # more than came since the fault; the last few may be in the next
    assert reporting.answered() >= 40
    assert first.clock_trusted is False


def test_a_dashboard_gets_the_figures_of_the_window(tmp_path: Path) -> None:
    reporting = Reporting(tmp_path)

    def answered(report: TelemetryReport) -> int:
        return sum(row.ok[0] for row in report.cameras.rows())

    with reporting.run as run:
        run.until_answers("one", 20)
        until(lambda: any(map(answered, reporting.reports()[1:])), "a whole window with answers")
    window = next(report for report in reporting.reports()[1:] if answered(report))
    shown = home_state([window])
    assert shown.fps == pytest.approx(answered(window) / (window.end_s - window.start_s))
    assert shown.cameras["one"].online
    assert shown.cameras["one"].latency_p95_ms == shown.latency_p95_ms
    assert shown.latency_p95_ms is not None


def test_an_agent_that_ends_before_it_began_reports_nothing_and_ends(tmp_path: Path) -> None:
    """A signal may come before the first look at anything."""
    reporting = Reporting(tmp_path)
    reporting.run.stopping.ask("a signal")
    with reporting.run as run:
        run.wait(within_s=60)
    assert reporting.answered() == 0


def test_a_turn_that_waits_for_the_supervisor_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """The supervisor ends the thread, and cannot answer it at the same time."""
    desk = StatusDesk(ManualClock(), device="box")
    reporting = Reporting(tmp_path)
    asked = threading.Thread(target=lambda: errors.append(_fault(desk, reporting.run)), daemon=True)
    errors: list[str] = []
    asked.start()
    until(lambda: desk._asked, "it asks")
    desk.close()
    asked.join(2)
    assert errors == ["the agent gave no status within 5 s; it may be ending"]
    assert _fault(desk, reporting.run) == "the agent is ending"


def _fault(desk: StatusDesk, run: Running) -> str:
    with pytest.raises(UnavailableError) as caught:
        desk.ask(run.daemon)
    return caught.value.cause
