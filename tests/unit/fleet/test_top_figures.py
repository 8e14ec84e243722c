"""The fleet from its messages: merged, counted once, and right in whatever order they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.telemetry.recorded import MODEL, head, recorded_report, sketch_of, stages_of

from vedette.wire.plane import JSON_TYPE, MSGPACK_TYPE, DeviceStatus, ModelState, Reported
from vedette.wire.report_split import split_report
from vedette.wire.telemetry import (
    BoardFigures,
    BoxFigures,
    CameraFigures,
    EngineFigures,
    ReportedModel,
    Series,
    TelemetryReport,
    encode_report,
    report_with,
)
from vedette.wire.topics import DeviceTopics
from vedette_fleet import fleet_figures
from vedette_fleet.fleet_device import MAX_KEYS, MAX_WINDOWS
from vedette_fleet.fleet_figures import DeviceRow, FleetFigures, FleetRow, Message
from vedette_fleet.top_view import render

if TYPE_CHECKING:
    import random

UTC_S = 1_780_000_000.0


class Fleet:
    """Devices that talk to the figures over a broker that is not there."""

    def __init__(self, **options: float) -> None:
        self.figures = FleetFigures(**options)  # type: ignore[arg-type] # horizon_s only
        self.now_s = 1000.0

    def say(
        self, device: str, kind: str, payload: bytes, *, retained: bool = False, content_type: str = ""
    ) -> None:
        topic = f"{DeviceTopics.of('site', device).branch}/{kind}"
        self.figures.take(Message(topic, payload, content_type, retained, self.now_s, UTC_S + self.now_s))

    def report(self, report: TelemetryReport, content_type: str = MSGPACK_TYPE) -> None:
        self.say(report.device, "tele/report", encode_report(report, content_type), content_type=content_type)

    def status(
        self,
        device: str,
        *,
        online: bool = True,
        session: str = "s1",
        boot_id: str = "boot",
        retained: bool = False,
    ) -> None:
        status = DeviceStatus(online=online, device=device, boot_id=boot_id, session=session, agent="0.2.0")
        self.say(device, "status", msgspec.json.encode(status), retained=retained)

    def row(self, device: str) -> DeviceRow:
        return next(row for row in self.figures.view(self.now_s).devices if row.device == f"site/{device}")

    @property
    def total(self) -> FleetRow:
        return self.figures.view(self.now_s).total


def window(
    values_ms: list[float],
    *,
    seq: int = 1,
    device: str = "a",
    boot_id: str = "boot",
    started_s: float = 0.0,
    end_s: float | None = None,
    total: int | None = None,
    dropped: int = 0,
    above_rate: int = 0,
    model: ReportedModel = MODEL,
    utc_s: float = 0.0,
    trusted: bool = True,
) -> TelemetryReport:
    """One camera's window of 60 s; `total` answers since the start."""
    count = len(values_ms)
    end_s = 60.0 * seq if end_s is None else end_s
    camera = CameraFigures(
        "front",
        (count + dropped + above_rate, (total or count) + dropped + above_rate),
        (count, total or count),
        {cause: (frames, frames) for cause, frames in (("stale", dropped), ("rate", above_rate)) if frames},
    )
    empty = sketch_of([]).histogram()
    stages = stages_of(empty, empty, empty, empty, empty, sketch_of(values_ms).histogram())
    return report_with(
        msgspec.structs.replace(
            head(seq, device=device),
            boot_id=boot_id,
            started_s=started_s,
            start_s=end_s - 60.0,
            end_s=end_s,
            utc_s=utc_s,
            clock_trusted=trusted,
        ),
        [(camera, [Series("front", model, stages)])],
    )


def test_a_slow_device_shows_in_the_fleets_percentiles() -> None:
    """Case 43: averaged, p95 and p99 would be 455 twice; the truth is 12 and 900."""
    fleet = Fleet()
    fleet.report(window([10.0] * 990 + [12.0] * 10, device="a"))
    fleet.report(window([10.0] * 50 + [900.0] * 50, device="b"), JSON_TYPE)
    assert fleet.total.latency.p95_ms == pytest.approx(12.0, rel=0.01)
    assert fleet.total.latency.p99_ms == pytest.approx(900.0, rel=0.01)
    assert fleet.total.latency.count == 1100
    assert fleet.row("b").latency.p50_ms == pytest.approx(10.0, rel=0.01)
    assert fleet.total.throughput.fps == pytest.approx(1100 / 60)
    assert fleet.total.devices == fleet.total.online == 2


def test_a_report_that_comes_twice_counts_once() -> None:
    """QoS 1 delivers at least once, and an outbox sends again what was not acknowledged."""
    fleet = Fleet()
    for _ in range(3):
        fleet.report(window([10.0] * 60, dropped=2))
    row = fleet.row("a")
    assert (row.latency.count, row.throughput.ok, row.throughput.dropped) == (60, 60, 2)
    assert row.losses == {"stale": 2}
    assert row.repeated == 2


def test_frames_that_nobody_wanted_are_no_loss() -> None:
    """Of a camera of 30 frames a second whose owner asked for 15, half are not lost."""
    fleet = Fleet()
    fleet.report(window([10.0] * 60, dropped=1, above_rate=61))
    row = fleet.row("a")
    assert (row.throughput.frames_in, row.throughput.ok, row.throughput.dropped) == (61, 60, 1)
    assert row.losses == {"stale": 1}


def test_parts_of_one_report_are_one_window() -> None:
    fleet = Fleet()
    for payload in split_report(recorded_report(), 1024):
        fleet.say("box-0042", "tele/report", payload, content_type=MSGPACK_TYPE)
    row = fleet.row("box-0042")
    assert row.latency.count == 8 * 1800
    assert row.throughput.fps == pytest.approx(8 * 1790 / 60)
    assert row.losses == {"superseded": 8 * 880, "stale": 8 * 20}
    assert row.temperature_c == 61.7


def test_reports_out_of_order_end_in_the_same_figures() -> None:
    """Totals are the newest window's, whenever it came."""
    reports = [window([float(seq)] * 60, seq=seq, total=60 * seq) for seq in range(1, 6)]
    views = []
    for order in (reports, reports[::-1], [reports[3], reports[0], reports[4], reports[1], reports[2]]):
        fleet = Fleet(horizon_s=150.0)
        for report in order:
            fleet.report(report)
        views.append((fleet.row("a").latency, fleet.row("a").throughput))
    assert views[0] == views[1] == views[2]
    assert views[0][0].count == 180, "of 300 s, the windows that ended within 150"


def test_a_backlog_from_yesterday_is_not_taken_for_now() -> None:
    """Case 45: an outbox drains oldest first; once the newest is there, the old ones are known to be old."""
    fleet = Fleet()
    for seq in range(1, 100):
        fleet.report(window([500.0] * 60, seq=seq))
    fleet.report(window([10.0] * 60, seq=1500))
    row = fleet.row("a")
    assert row.latency.count == 60
    assert row.latency.p99_ms == pytest.approx(10.0, rel=0.01)
    fleet.report(window([500.0] * 60, seq=200))
    assert fleet.row("a").latency.count == 60
    assert fleet.row("a").late == 1


def test_what_is_long_ago_is_forgotten_even_when_nothing_new_comes() -> None:
    fleet = Fleet(horizon_s=100.0)
    fleet.report(window([10.0] * 60))
    fleet.now_s += 99
    assert fleet.row("a").latency.count == 60
    fleet.now_s += 2
    row = fleet.row("a")
    assert row.latency.p50_ms is None
    assert row.throughput.fps == 0
    fleet.now_s += 300
    assert fleet.row("a").state == "silent"


@pytest.mark.parametrize("skew_s", [-86_400.0, -3600.0, 0.0, 3600.0, 1e9])
def test_a_wrong_wall_clock_changes_nothing_but_its_own_column(skew_s: float) -> None:
    """Case 46: a box an hour slow, an hour fast, in 1970."""
    fleet = Fleet()
    for seq in (1, 2, 3):
        fleet.now_s += 60
        fleet.report(window([10.0] * 60, seq=seq, utc_s=max(1.0, UTC_S + fleet.now_s + skew_s)))
    row = fleet.row("a")
    assert row.latency.count == 180
    assert row.late == 0
    assert bool(row.clock) == (skew_s != 0)


def test_an_untrusted_clock_is_said_so() -> None:
    fleet = Fleet()
    fleet.report(window([1.0], utc_s=5.0, trusted=False))
    assert fleet.row("a").clock == "untrusted"


def test_a_restarted_agent_begins_anew_and_its_backlog_does_not_win() -> None:
    """Totals are of the newest start; an old start's report that comes late changes none of them."""
    fleet = Fleet()
    fleet.report(window([10.0] * 60, seq=9, started_s=100.0, end_s=1000.0, total=5000, dropped=7))
    fleet.report(window([20.0] * 30, seq=1, started_s=1500.0, end_s=1560.0, dropped=1))
    fleet.report(window([10.0] * 60, seq=10, started_s=100.0, end_s=1060.0, total=5060, dropped=9))
    row = fleet.row("a")
    assert row.losses == {"stale": 1}
    assert row.late == 1


def test_a_reboot_is_told_by_the_birth_or_by_trusted_clocks() -> None:
    """Monotonic clocks of two boots cannot be compared."""
    fleet = Fleet()
    fleet.status("a", boot_id="new")
    fleet.report(window([1.0] * 5, boot_id="new", dropped=1, end_s=60.0))
    fleet.report(window([1.0] * 5, boot_id="old", dropped=8, end_s=99_999.0, seq=2))
    assert fleet.row("a").losses == {"stale": 1}
    fleet = Fleet()
    fleet.report(window([1.0] * 5, boot_id="new", dropped=1, utc_s=UTC_S))
    fleet.report(window([1.0] * 5, boot_id="old", dropped=8, utc_s=UTC_S - 900, seq=2))
    assert fleet.row("a").losses == {"stale": 1}
    fleet.report(window([1.0] * 5, boot_id="newer", dropped=3, utc_s=UTC_S + 900, seq=2))
    assert fleet.row("a").losses == {"stale": 3}


def test_a_will_that_arrives_late_means_nothing() -> None:
    """The broker publishes the will of a connection that was replaced long ago."""
    fleet = Fleet()
    fleet.status("a", session="first")
    fleet.status("a", session="second")
    fleet.status("a", session="first", online=False)
    assert fleet.row("a").state == "online"
    fleet.status("a", session="second", online=False)
    assert fleet.row("a").state == "offline"
    fleet.report(window([1.0]))
    assert fleet.row("a").state == "online", "what still reports is not gone"


def test_what_the_broker_remembers_is_not_news() -> None:
    fleet = Fleet()
    fleet.status("a", retained=True)
    assert fleet.row("a").seen_s is None
    fleet.status("b")
    assert fleet.row("b").seen_s == 0


def test_updates_show_where_they_stand_and_models_side_by_side() -> None:
    fleet = Fleet()
    old, new = ReportedModel("person", "9", "aa"), ReportedModel("person", "10", "bb")
    fleet.report(window([10.0] * 50, device="a", model=old))
    fleet.report(window([10.0] * 50, device="b", model=old))
    fleet.report(window([30.0] * 50, device="b", model=new, seq=2))
    reported = Reported(
        seq=4,
        boot_id="boot",
        utc_s=0.0,
        phase="fetch",
        active=ModelState("person", "9", "a" * 64),
        candidate=ModelState("person", "10", "b" * 64),
        bytes_fetched=50,
        bytes_needed=200,
    )
    fleet.say("b", "reported", msgspec.json.encode(reported), retained=True)
    older = msgspec.structs.replace(reported, seq=3, phase="idle")
    fleet.say("b", "reported", msgspec.json.encode(older))
    row = fleet.row("b")
    assert (row.model, row.candidate, row.phase, row.progress) == ("person 9", "person 10", "fetch", 0.25)
    view = fleet.figures.view(fleet.now_s)
    assert [(model.version, model.devices, model.latency.count) for model in view.models] == [
        ("9", 2, 100),
        ("10", 1, 50),
    ]
    assert view.total.updating == 1


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("status", b"{nonsense"),
        ("status", b"\xff\xfe"),
        ("status", b"[" * 60_000),
        ("reported", b'{"seq": "many"}'),
        ("reported", b" " * 100_000),
        ("tele/report", b"\x00"),
        ("tele/report", b"9" * 300_000),
        ("tele/report", encode_report(window([1.0], device="somebody-else"))),
        (
            "tele/report",
            encode_report(msgspec.structs.replace(recorded_report(), device="a", sketches=b"bad")),
        ),
    ],
)
def test_a_message_that_makes_no_sense_is_counted_and_harms_nothing(kind: str, payload: bytes) -> None:
    """Case 31 and its kind; the next good message is taken."""
    fleet = Fleet()
    fleet.say("a", kind, payload)
    assert fleet.total.bad_messages == 1
    assert kind in fleet.total.last_bad
    assert fleet.total.devices == 0
    fleet.report(window([1.0]))
    assert fleet.row("a").latency.count == 1


def test_others_topics_are_none_of_ours() -> None:
    fleet = Fleet()
    for topic in ("vedette/1/_announce/all", "homeassistant/x", "vedette/1/site/a+b/status", "vedette/1"):
        fleet.figures.take(Message(topic, b"{}", "", retained=False, now_s=0.0, utc_s=0.0))
    assert fleet.total.messages == 0


def test_memory_is_bounded_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 44: devices, windows, keys, models, cameras."""
    monkeypatch.setattr(fleet_figures, "MAX_DEVICES", 50)
    monkeypatch.setattr(fleet_figures, "MAX_MODELS", 20)
    fleet = Fleet(horizon_s=1e6)
    for number in range(80):
        fleet.report(window([1.0], device=f"d{number}", model=ReportedModel("m", str(number))))
    for seq in range(MAX_KEYS + 100):
        fleet.report(window([1.0], device="d0", seq=seq + 2))
    device = fleet.figures._devices["site/d0"]
    assert len(device._windows) == MAX_WINDOWS
    assert len(device._keys) == MAX_KEYS
    view = fleet.figures.view(fleet.now_s)
    assert len(view.devices) == 50
    assert view.total.too_many == 30
    assert len(view.models) == 21
    assert sum(model.latency.count for model in view.models) == view.total.latency.count


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_any_order_and_any_repetition_give_the_same_total(rng: random.Random) -> None:
    reports = [
        window([float(seq + 1)] * 5, seq=seq, device=device, total=5 * seq)
        for device in ("a", "b")
        for seq in (1, 2, 3)
    ]
    shuffled = [*reports, *rng.sample(reports, 3)]
    rng.shuffle(shuffled)
    fleet = Fleet(horizon_s=1e6)
    for report in shuffled:
        fleet.report(report)
    assert fleet.total.latency.count == 30
    assert fleet.total.throughput.ok == 30
    assert fleet.total.latency.p50_ms == pytest.approx(3.0, rel=0.01)


# What a person sees --------------------------------------------------------------------------------------


def shown(fleet: Fleet, width: int = 160, height: int = 50, remark: str = "") -> str:
    from rich.console import Console

    console = Console(width=width, height=height)
    with console.capture() as captured:
        console.print(render(fleet.figures.view(fleet.now_s), width=width, height=height, remark=remark))
    return captured.get()


def troubled_fleet(devices: int = 4) -> Fleet:
    fleet = Fleet()
    for number in range(devices):
        fleet.report(window([10.0] * 60, device=f"gate-{number:02d}"))
    fleet.status("gate-03", online=False)
    hot = BoxFigures(
        engine=EngineFigures(runtime="onnxruntime", effective="cpu", degraded=True),
        board=BoardFigures(temperatures_c={"cpu": 91.0}, throttled=True),
    )
    slow = msgspec.structs.replace(window([900.0] * 60, device="gate-02", seq=2, dropped=6), box=hot)
    fleet.report(slow)
    return fleet


def test_devices_in_trouble_come_first_and_the_last_line_is_all_of_them() -> None:
    lines = shown(troubled_fleet()).splitlines()
    devices = [line for line in lines if "site/gate" in line]
    assert ["gate-03" in devices[0], "gate-02" in devices[1]] == [True, True]
    assert "offline" in devices[0]
    assert "cpu (fallback), 91 °C, throttled" in devices[1]
    assert " 10.1 " in devices[1], "the middle of the bin that 10 is in"
    assert " 907 " in devices[1]
    total = next(line for line in lines if "all 4" in line)
    assert "3 online" in total
    assert "2.0 %" in total


@pytest.mark.parametrize("width", [80, 100, 130])
def test_a_narrow_terminal_still_shows_state_and_latency(width: int) -> None:
    text = shown(troubled_fleet(), width=width)
    assert max(map(len, text.splitlines())) <= width
    slow = next(line for line in text.splitlines() if "gate-02" in line)
    for part in ("online", " 10.1 ", " 907 "):
        assert part in slow


def test_more_devices_than_lines_are_counted() -> None:
    text = shown(troubled_fleet(60), height=24, remark="not connected (refused); next try in 4 s")
    assert len(text.splitlines()) <= 24
    assert "more; a taller window shows them" in text
    assert "not connected (refused)" in text
    assert "gate-03" in text


def test_coarse_percentiles_are_admitted() -> None:
    fleet = Fleet()
    coarse = sketch_of([10.0, 20.0]).histogram().coarsened(2)
    report = report_with(
        head(), [(CameraFigures("front"), [Series("front", MODEL, stages_of(*(coarse,) * 6))])]
    )
    fleet.report(report)
    assert "good to 4%" in shown(fleet)
