"""What people and machines are told about a run."""

from __future__ import annotations

import io
import subprocess
import sys

import msgspec
import pytest
from rich.console import Console

from vedette.telemetry.ledger import Ledger
from vedette.telemetry.live import LiveCamera, LiveStatus, status_line
from vedette.telemetry.meter import STAGES, Meter
from vedette.telemetry.summary import RunSummary, duration_text, ms_text, render, summarise, to_json
from vedette.wire.causes import DropCause, FailCause
from vedette.wire.messages import AcceleratorReport, LatencyMs, ModelRef, Skipped

MODEL = ModelRef("person", "3", "ab" * 32)
LATENCY = LatencyMs(transport=0.1, queue=0.4, preprocess=0.2, infer=4.6, postprocess=0.3, total=5.6)


def report(*, degraded: bool = False) -> AcceleratorReport:
    reason = "CUDAExecutionProvider is not in this build [install onnxruntime-gpu]"
    return AcceleratorReport(
        runtime="onnxruntime 1.32",
        asked=("cuda", "cpu") if degraded else ("cpu",),
        effective="cpu",
        nodes={"cpu": 96},
        skipped=(Skipped("cuda", reason),) if degraded else (),
        evidence="graph assignment",
        threads=2,
        check_ms=4.2,
        load_ms=830.0,
        degraded=degraded,
    )


def finished_run() -> tuple[Ledger, Meter]:
    """Two cameras: `front` answered 300 of 307 frames, `back` answered none."""
    ledger, meter = Ledger(["front", "back"]), Meter(["front", "back"])
    ledger.observe_ring("front", 304, {DropCause.DAMAGED: 3})
    for _ in range(300):
        ledger.ok("front")
        meter.record("front", LATENCY, 0.05)
    ledger.dropped("front", DropCause.SUPERSEDED, 3)
    ledger.failed("front", FailCause.DECODE)
    return ledger, meter


def summary_of_run(
    *,
    engine: AcceleratorReport | None = None,
    worker_restarts: int = 0,
    source_restarts: dict[str, int] | None = None,
) -> RunSummary:
    ledger, meter = finished_run()
    return summarise(
        ledger.snapshot(),
        meter,
        duration_s=10.0,
        model=MODEL,
        engine=engine or report(),
        worker_restarts=worker_restarts,
        source_restarts=source_restarts,
    )


def on_screen(summary: RunSummary, width: int = 100) -> str:
    screen = io.StringIO()
    render(summary, Console(file=screen, width=width, color_system=None))
    return screen.getvalue()


def test_the_json_report_holds_every_figure() -> None:
    report_json = msgspec.json.decode(
        to_json(summary_of_run(source_restarts={"front": 2}, worker_restarts=1))
    )
    front, back = report_json["cameras"]
    assert (front["frames_in"], front["ok"], front["in_flight"], front["fps"]) == (307, 300, 0, 30.0)
    assert front["dropped"] == {"superseded": 3, "damaged": 3}
    assert front["failed"] == {"decode": 1}
    assert (front["source_restarts"], back["source_restarts"]) == (2, 0)
    assert list(report_json["latency"]) == list(STAGES)
    assert report_json["latency"]["infer"]["p50_ms"] == pytest.approx(4.6, rel=0.01)
    assert back["latency"]["total"] == {
        "count": 0,
        "mean_ms": None,
        "p50_ms": None,
        "p95_ms": None,
        "p99_ms": None,
    }
    assert report_json["engine"]["effective"] == "cpu"
    assert (report_json["v"], report_json["worker_restarts"], report_json["imbalance"]) == (1, 1, {})
    assert msgspec.json.decode(to_json(summary_of_run()), type=RunSummary) == summary_of_run()


def test_a_person_reads_counts_causes_and_latencies() -> None:
    screen = on_screen(summary_of_run())
    assert "300 answers from 2 cameras in 10.0 s, 30.0 a second" in screen
    assert "person 3" in screen
    assert "onnxruntime 1.32 on cpu, 2 threads, loaded in 830 ms" in screen
    for words in (
        ("front", "307", "300", "3 superseded", "1 decode", "30.0", "5.6"),
        ("infer", "the engine", "4.6"),
    ):
        assert any(all(word in line for word in words) for line in screen.splitlines()), words
    assert "!" not in screen


def test_a_fallback_is_said_with_its_reason() -> None:
    """Case 1: the screen shows what runs, what was asked for, and why they differ; brackets are no markup."""
    screen = on_screen(summary_of_run(engine=report(degraded=True)))
    assert "! asked for cuda, cpu and got cpu" in screen
    assert "cuda: CUDAExecutionProvider is not in this build [install onnxruntime-gpu]" in screen


def test_restarts_and_lost_frames_are_said() -> None:
    ledger, meter = finished_run()
    ledger.observe_ring("back", 2, {})
    summary = summarise(
        ledger.snapshot(),
        meter,
        duration_s=10.0,
        model=MODEL,
        engine=report(),
        worker_restarts=2,
        source_restarts={"back": 1},
    )
    screen = on_screen(summary)
    assert "engine worker was started again 2 times" in screen
    assert "source of camera back was started again 1 time" in screen
    assert "camera back: 2 frames vanished" in screen


def test_frames_that_are_known_to_be_on_the_way_are_no_loss() -> None:
    ledger, meter = finished_run()
    ledger.observe_ring("back", 2, {})
    summary = summarise(
        ledger.snapshot(), meter, duration_s=1.0, model=MODEL, engine=report(), in_flight={"back": 2}
    )
    assert summary.imbalance == {}
    assert "camera back: 2 frames still on the way" in on_screen(summary)


def test_a_clock_fault_is_said() -> None:
    """Case 46."""
    ledger, meter = finished_run()
    meter.record("front", LATENCY, -1.0)
    summary = summarise(ledger.snapshot(), meter, duration_s=1.0, model=MODEL, engine=report())
    assert "1 latency made no sense" in on_screen(summary)


def test_causes_read_as_words_on_the_screen_and_as_keys_in_json() -> None:
    ledger, meter = finished_run()
    ledger.observe_ring("back", 1, {})
    ledger.failed("back", FailCause.OUT_OF_MEMORY)
    summary = summarise(ledger.snapshot(), meter, duration_s=1.0, model=MODEL, engine=report())
    assert "1 out of memory" in on_screen(summary)
    assert summary.cameras[1].failed == {"out_of_memory": 1}


def test_a_run_that_never_started_is_no_division_by_zero() -> None:
    summary = summarise(Ledger(["a"]).snapshot(), Meter(["a"]), duration_s=0.0, model=None, engine=None)
    screen = on_screen(summary)
    assert "0 answers from 1 camera" in screen
    assert "no model was loaded" in screen
    assert "where the time went" not in screen


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_tables_fit_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in on_screen(summary_of_run(), width).splitlines())


def test_rich_is_loaded_only_to_render() -> None:
    """A daemon without a terminal does not pay for it."""
    code = "import sys, vedette.telemetry.summary, vedette.telemetry.live; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [
        (None, "-"),
        (0.0, "0.00"),
        (0.042, "0.04"),
        (0.996, "1.0"),
        (5.14, "5.1"),
        (99.96, "100"),
        (12345.6, "12,346"),
    ],
)
def test_milliseconds_show_the_digits_that_matter(value_ms: float | None, text: str) -> None:
    assert ms_text(value_ms) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (360_000, "100 h 00 min"),
    ],
)
def test_durations_never_read_sixty_seconds(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


FRONT = LiveCamera("front", 29.94, 5.13, 3, 0)
BACK = LiveCamera("back", 0.0, None, 0, 1204)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (100, "front 29.9 fps  p50 5.1 ms  dropped 3 · back 0.0 fps  failed 1,204"),
        (60, "front 29.9 fps  dropped 3 · back 0.0 fps  failed 1,204"),
        (50, "front 30 · back 0"),
        (17, "front 30 · back 0"),
        (16, "2 cameras 29.9 f"),
        (0, ""),
    ],
)
def test_the_status_line_says_as_much_as_fits(width: int, line: str) -> None:
    assert status_line([FRONT, BACK], width) == line


def test_many_cameras_are_summed_up() -> None:
    cameras = [LiveCamera(f"camera-{i}", 10.0, 5.0, 1, 1) for i in range(20)]
    assert status_line(cameras, 80) == "20 cameras 200.0 fps  lost 40"


def test_live_rates_are_of_the_time_since_the_last_line() -> None:
    """A camera that has gone mute reads 0 at once, not a slowly falling average."""
    ledger, meter = Ledger(["front"]), Meter(["front"])
    live = LiveStatus(meter, now_ns=5_000_000_000)
    for _ in range(30):
        ledger.ok("front")
        meter.record("front", LATENCY, 0.0)
    assert live.line(6_000_000_000, ledger.snapshot(), 80) == "front 30.0 fps  p50 5.6 ms"
    assert live.line(7_000_000_000, ledger.snapshot(), 80) == "front 0.0 fps"
    assert live.line(7_000_000_000, ledger.snapshot(), 80) == "front 0.0 fps"


def test_a_camera_that_ended_early_has_the_rate_of_its_own_time() -> None:
    """300 answers in 10 s are 30 a second, also where the run went on for a minute."""
    ledger, meter = Ledger(["front"]), Meter(["front"])
    ledger.observe_ring("front", 300, {})
    for _ in range(300):
        ledger.ok("front")
    snapshot = ledger.snapshot()
    report = summarise(snapshot, meter, duration_s=60.0, model=None, engine=None, active_s={"front": 10.0})
    assert report.cameras[0].fps == 30.0
    assert report.fps == 5.0
