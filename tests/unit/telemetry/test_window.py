"""The window under way, and the reports made of windows."""

from __future__ import annotations

import random
import threading
import time

import msgspec
import pytest
from tests.unit.telemetry.recorded import FIRST, LATENCY, SECOND, S

from vedette.errors import StorageError
from vedette.telemetry.ledger import CameraCounts, LedgerSnapshot
from vedette.telemetry.metrics import metrics_snapshot
from vedette.telemetry.report import Gathered, Moment, Reporter
from vedette.telemetry.sketch import Sketch
from vedette.telemetry.window import MAX_SERIES, OTHER_SERIES, WindowRecorder
from vedette.wire.messages import LatencyMs, ModelRef
from vedette.wire.plane import JSON_TYPE, MSGPACK_TYPE
from vedette.wire.telemetry import (
    OTHER,
    STAGES,
    BoxFigures,
    EscalationFigures,
    ProcessFigures,
    TelemetryReport,
    decode_report,
    deliver_of,
    pieces_of,
)


class Outbox:
    """Keeps messages as the link's outbox does, until its disk is full."""

    def __init__(self, room: int = 1000) -> None:
        self.messages: list[bytes] = []
        self.room = room

    def keep(self, payload: bytes, content_type: str) -> None:
        assert content_type in {MSGPACK_TYPE, JSON_TYPE}
        if len(self.messages) >= self.room:
            raise StorageError("no space", kind="no_space")
        self.messages.append(payload)

    def reports(self) -> list[TelemetryReport]:
        return [decode_report(message) for message in self.messages]


def reporter_of(window: WindowRecorder, max_bytes: int = 4096, content_type: str = MSGPACK_TYPE) -> Reporter:
    return Reporter(
        window, device="box", boot_id="boot", started_ns=0, max_bytes=max_bytes, content_type=content_type
    )


def counts(ok: int, *cameras: str, stale: int = 0) -> Gathered:
    each = CameraCounts(frames_in=ok + stale, ok=ok, dropped={"stale": stale} if stale else {})
    return Gathered(ledger=LedgerSnapshot(dict.fromkeys(cameras, each)), box=BoxFigures(agent="0.1.0"))


def moment(now_s: int) -> Moment:
    return Moment(now_s * S, 1.78e9 + now_s, clock_trusted=True)


def total_counts(reports: list[TelemetryReport]) -> dict[tuple[str, str], int]:
    """Values of `total` by camera and model's version."""
    found: dict[tuple[str, str], int] = {}
    for report in reports:
        for camera, own in pieces_of(report):
            for entry in own:
                key = camera.name, entry.model.version
                found[key] = found.get(key, 0) + entry.stages[STAGES.index("total")].count
    return found


def test_frames_stand_under_their_camera_and_the_model_that_answered() -> None:
    """In a trial two models answer in turn; each has its own figures."""
    window = WindowRecorder(0)
    for _ in range(3):
        window.record("front", FIRST, LATENCY, 0.05)
    window.record("front", SECOND, LATENCY, 0.05)
    window.record_stage("front", SECOND, "escalation", 800.0)
    outbox = Outbox()
    reporter_of(window).report(moment(60), counts(4, "front"), outbox.keep)
    (report,) = outbox.reports()
    assert total_counts([report]) == {("front", "1"): 3, ("front", "2"): 1}
    ((_, (first, second)),) = pieces_of(report)
    assert (first.model.digest, second.model.digest) == ("a" * 12, "b" * 12)
    medians = {
        stage: Sketch.of(histogram).quantile(0.5)
        for stage, histogram in zip(STAGES, first.stages, strict=True)
    }
    assert medians == {
        "transport": pytest.approx(0.1, rel=0.01),
        "queue": pytest.approx(0.4, rel=0.01),
        "preprocess": pytest.approx(0.2, rel=0.01),
        "infer": pytest.approx(4.6, rel=0.01),
        "postprocess": pytest.approx(0.3, rel=0.01),
        "total": pytest.approx(5.6, rel=0.01),
        "escalation": None,
    }
    assert Sketch.of(second.stages[-1]).quantile(0.5) == pytest.approx(800, rel=0.01)
    assert report.box is not None
    assert deliver_of(report.box).count == 4


def test_windows_follow_each_other_without_a_gap() -> None:
    window, outbox = WindowRecorder(5 * S), Outbox()
    reporter = reporter_of(window)
    for minute in (1, 2, 3):
        window.record("front", FIRST, LATENCY, 0.0)
        reporter.report(moment(60 * minute), counts(minute, "front"), outbox.keep)
    reports = outbox.reports()
    assert [(report.seq, report.start_s, report.end_s) for report in reports] == [
        (1, 5.0, 60.0),
        (2, 60.0, 120.0),
        (3, 120.0, 180.0),
    ]
    assert [report.cameras.ok for report in reports] == [((1, 1),), ((1, 2),), ((1, 3),)]
    assert total_counts(reports) == {("front", "1"): 3}


def test_a_window_without_frames_is_a_report_all_the_same() -> None:
    """Silence of a camera is news; silence of a box is another."""
    outbox = Outbox()
    reporter_of(WindowRecorder(0)).report(moment(60), counts(0, "front"), outbox.keep)
    (report,) = outbox.reports()
    assert [(camera.name, own) for camera, own in pieces_of(report)] == [("front", [])]


@pytest.mark.parametrize("room", [0, 1, 2])
def test_what_could_not_be_kept_is_in_the_next_report(room: int) -> None:
    """A full disk between the parts of a report: nothing is lost and nothing is counted twice."""
    window, outbox = WindowRecorder(0), Outbox(room)
    cameras = tuple(f"camera-{number}" for number in range(6))
    reporter = reporter_of(window, max_bytes=1024, content_type=JSON_TYPE)
    rng = random.Random(7)  # noqa: S311 - reproducible data, no secret
    for camera in cameras:
        for _ in range(90):
            latency = LatencyMs(*(rng.lognormvariate(0, 0.8) for _ in range(6)))
            window.record(camera, FIRST, latency, 0.1)
    window.record(cameras[0], FIRST, msgspec.structs.replace(LATENCY, queue=-1.0), 0.1)
    with pytest.raises(StorageError):
        reporter.report(moment(60), counts(90, *cameras, stale=2), outbox.keep)
    outbox.room = 1000
    window.record(cameras[5], SECOND, LATENCY, 0.1)
    reporter.report(moment(120), counts(92, *cameras, stale=3), outbox.keep)
    reports = outbox.reports()
    totals = total_counts(reports)
    assert totals.pop((cameras[5], "2")) == 1
    assert totals == {(camera, "1"): 91 if camera == cameras[0] else 90 for camera in cameras}
    rows = [row for report in reports for row in report.cameras.rows()]
    for camera in cameras:
        own = [row for row in rows if row.name == camera]
        assert sum(row.ok[0] for row in own) == 92
        assert sum(row.dropped["stale"][0] for row in own) == 3
        assert max(row.ok[1] for row in own) == 92
    boxes = [report.box for report in reports if report.box is not None]
    assert sum(deliver_of(box).count for box in boxes) == 542
    assert sum(box.rejected[0] for box in boxes) == 1
    assert boxes[-1].rejected[1] == 1
    last = [report for report in reports if report.seq == 2]
    assert min(report.start_s for report in last) == 0.0


def test_ten_thousand_names_take_no_more_room_than_some() -> None:
    """Case 44: names from outside. Memory stays flat, frames are counted, known cameras are not hurt."""
    window, outbox = WindowRecorder(0), Outbox()
    window.record("front", FIRST, LATENCY, 0.0)
    for number in range(10_000):
        window.record("front", ModelRef(f"track {number}", "", ""), LATENCY, 0.0)
    window.record("front", FIRST, LATENCY, 0.0)
    since = window.since_start(59 * S)
    assert len(since.series) == MAX_SERIES
    assert since.series[OTHER_SERIES][0].count == 10_002 - 2 - (MAX_SERIES - 2)
    assert since.series["front", FIRST][0].count == 2
    reporter_of(window, 256 << 10).report(moment(60), counts(2, "front"), outbox.keep)
    (report,) = outbox.reports()
    assert report.box is not None
    assert report.box.overflow == (10_000 - (MAX_SERIES - 2),) * 2
    assert {camera.name for camera, _ in pieces_of(report)} == {"front", OTHER}


def test_a_box_that_is_updated_for_years_still_shows_its_newest_model() -> None:
    """Since the start: the models that answered longest ago go to OTHER, the newest is always itself."""
    window = WindowRecorder(0)
    for release in range(2 * MAX_SERIES):
        window.record("front", ModelRef("person", str(release), ""), LATENCY, 0.0)
        window.take(release * S)
    whole = window.since_start(10_000 * S)
    assert len(whole.series) <= MAX_SERIES
    assert whole.series["front", ModelRef("person", str(2 * MAX_SERIES - 1), "")][0].count == 1
    assert sum(sketches[0].count for sketches in whole.series.values()) == 2 * MAX_SERIES
    assert whole.deliver.count == 2 * MAX_SERIES


def test_since_the_start_is_not_disturbed_by_what_is_put_back() -> None:
    window, outbox = WindowRecorder(0), Outbox(0)
    window.record("front", FIRST, LATENCY, 0.1)
    with pytest.raises(StorageError):
        reporter_of(window).report(moment(60), counts(1, "front"), outbox.keep)
    window.record("front", FIRST, LATENCY, 0.1)
    sources = {"front": ProcessFigures(1, 2)}
    gathered = msgspec.structs.replace(counts(2, "front"), sources=sources)
    snapshot = metrics_snapshot(window.since_start(61 * S), gathered)
    ((series,), deliver) = snapshot.series, snapshot.deliver
    assert {stage.stage: stage.count for stage in series.stages} == dict.fromkeys(STAGES[:6], 2)
    assert deliver is not None
    assert deliver.count == 2
    assert deliver.sum_s == pytest.approx(0.0002)
    (row,) = snapshot.cameras.rows()
    assert (row.ok, row.source) == ((2, 2), ProcessFigures(1, 2))


def test_what_is_no_duration_is_counted_and_spoils_nothing() -> None:
    """Case 46: a clock that was set back; the other stages of the frame are still recorded."""
    window = WindowRecorder(0)
    window.record("front", FIRST, LatencyMs(-3.0, 0.4, 0.2, float("nan"), 0.3, float("inf")), 1e15)
    window.record_stage("front", FIRST, "escalation", -1.0)
    closed = window.take(60 * S)
    assert closed.rejected == 5
    assert [sketch.count for sketch in closed.series["front", FIRST]] == [0, 1, 1, 0, 1, 0, 0]
    with pytest.raises(ValueError, match="not in"):
        window.record_stage("front", FIRST, "lunch", 1.0)


def test_many_threads_lose_no_frame() -> None:
    window = WindowRecorder(0)
    taken = []

    def record() -> None:
        for _ in range(300):
            window.record("front", FIRST, LATENCY, 0.0)

    threads = [threading.Thread(target=record) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken.append(window.take(S))
    for thread in threads:
        thread.join(10)
    taken.append(window.take(2 * S))
    assert sum(sketches[0].count for closed in taken for sketches in closed.series.values()) == 1200


def test_recording_a_frame_costs_nothing_beside_it() -> None:
    """At most 20 us; the best of several rounds, because the machine is shared."""
    window = WindowRecorder(0)

    def round_ns() -> int:
        began_ns = time.perf_counter_ns()
        for _ in range(300):
            window.record("front", FIRST, LATENCY, 0.05)
        return time.perf_counter_ns() - began_ns

    assert min(round_ns() for _ in range(8)) / 300 <= 20_000


def test_repetitions_and_escalations_of_a_window_are_what_came_since_the_last_report_that_was_kept() -> None:
    """A report that the disk refused is made up for by the next one."""
    window = WindowRecorder(0)
    reporter = reporter_of(window)
    outbox = Outbox()

    def gathered(reused: int, calls: int) -> Gathered:
        box = BoxFigures(escalation=EscalationFigures(calls=(calls, calls)))
        plain = counts(reused + 1, "front")
        return msgspec.structs.replace(plain, box=box, reuse={"front": (reused, 3, 1)})

    def refuse(_payload: bytes, _type: str) -> None:
        raise StorageError("the disk is full", kind="no_space")

    reporter.report(moment(60), gathered(5, 2), outbox.keep)
    with pytest.raises(StorageError):
        reporter.report(moment(120), gathered(9, 4), refuse)
    reporter.report(moment(180), gathered(20, 7), outbox.keep)
    first, second = outbox.reports()
    assert [report.cameras.rows()[0].reused for report in (first, second)] == [(5, 5), (15, 20)]
    assert [report.cameras.rows()[0].checks for report in (first, second)] == [(3, 3), (0, 3)]
    calls = [
        report.box.escalation.calls for report in (first, second) if report.box and report.box.escalation
    ]
    assert calls == [(2, 2), (5, 7)]
