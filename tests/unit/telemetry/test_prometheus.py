"""What a scrape reads: names, units, buckets, and bounds on how much there is of it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import msgspec
import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.telemetry.recorded import FIRST, LATENCY, SECOND, S

from vedette.telemetry.ledger import CameraCounts, LedgerSnapshot
from vedette.telemetry.metrics import MetricsSnapshot, metrics_snapshot
from vedette.telemetry.prometheus import MAX_LABEL_SETS, render
from vedette.telemetry.report import Gathered
from vedette.telemetry.window import WindowRecorder
from vedette.wire.messages import LatencyMs, ModelRef
from vedette.wire.telemetry import (
    BoardFigures,
    BoxFigures,
    CameraColumns,
    CameraFigures,
    EngineFigures,
    EscalationFigures,
    LinkFigures,
    ProcessFigures,
    UpdateFigures,
)

ALLOWED_LABELS = {
    "camera",
    "model",
    "version",
    "stage",
    "cause",
    "phase",
    "result",
    "bound",
    "runtime",
    "accelerator",
    "le",
}


def snapshot_of(window: WindowRecorder, box: BoxFigures | None = None) -> MetricsSnapshot:
    """After two minutes; it has crossed the control socket."""
    counts = CameraCounts(frames_in=12, ok=9, dropped={"superseded": 2}, failed={"decode": 1})
    gathered = Gathered(
        ledger=LedgerSnapshot({"front": counts}),
        box=BoxFigures() if box is None else box,
        source_restarts={"front": 3},
        sources={"front": ProcessFigures(10, 64)},
        reuse={"front": (4, 3, 1)},
    )
    snapshot = metrics_snapshot(window.since_start(120 * S), gathered)
    return msgspec.json.decode(msgspec.json.encode(snapshot), type=MetricsSnapshot)


def full_snapshot() -> MetricsSnapshot:
    window = WindowRecorder(0)
    for model in (FIRST, SECOND):
        for _ in range(5):
            window.record("front", model, LATENCY, 0.05)
    window.record("front", FIRST, LatencyMs(0.1, 0.4, 0.2, 900.0, 0.3, -1.0), 0.05)
    return snapshot_of(
        window,
        BoxFigures(
            engine=EngineFigures(runtime="onnxruntime 1.20", effective="cpu", degraded=True, load_ms=250.0),
            worker_restarts=2,
            processes={"daemon": ProcessFigures(1, 1000), "worker person": ProcessFigures(1, 2000)},
            board=BoardFigures(
                temperatures_c={"cpu": 61.5, "gpu": 70.0},
                power_w={"VDD_IN": 9.5},
                throttled=True,
                throttle=("under_voltage", "was_throttled"),
                cpu_share=0.5,
            ),
            update=UpdateFigures(phase="fetch", bytes_fetched=10, bytes_needed=100),
            link=LinkFigures(connects=4, waiting_reports=2),
            escalation=EscalationFigures(outcomes={"answered": (1, 7)}, calls=(1, 9), sent_bytes=(1, 5000)),
        ),
    )


def samples(text: bytes) -> dict[str, float]:
    """Every sample by its name and labels, as Prometheus's own parser sees them."""
    return {
        f"{sample.name}{dict(sorted(sample.labels.items())) or ''}": sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_scrape_has_every_figure_in_base_units() -> None:
    found = samples(render(full_snapshot()))
    series = "{'camera': 'front', 'model': 'person', 'stage': 'infer', 'version': '1'}"
    expected = {
        "vedette_uptime_seconds": 120,
        "vedette_frames_in_total{'camera': 'front'}": 12,
        "vedette_frames_ok_total{'camera': 'front'}": 9,
        "vedette_frames_dropped_total{'camera': 'front', 'cause': 'superseded'}": 2,
        "vedette_frames_failed_total{'camera': 'front', 'cause': 'decode'}": 1,
        "vedette_source_restarts_total{'camera': 'front'}": 3,
        "vedette_frames_reused_total{'camera': 'front'}": 4,
        "vedette_reuse_checks_total{'camera': 'front', 'result': 'other'}": 1,
        "vedette_reuse_checks_total{'camera': 'front', 'result': 'same'}": 2,
        "vedette_escalation_calls_total": 9,
        "vedette_source_resident_memory_bytes{'camera': 'front'}": 65_536,
        f"vedette_stage_duration_seconds_count{series}": 6,
        f"vedette_stage_duration_seconds_sum{series}": pytest.approx(0.923),
        "vedette_deliver_duration_seconds_count": 11,
        "vedette_latencies_rejected_total": 1,
        "vedette_worker_restarts_total": 2,
        "vedette_accelerator_info{'accelerator': 'cpu', 'runtime': 'onnxruntime 1.20'}": 1,
        "vedette_accelerator_degraded": 1,
        "vedette_model_load_seconds": 0.25,
        "vedette_resident_memory_bytes": 3000 * 1024,
        "vedette_board_temperature_celsius": 70,
        "vedette_board_power_watts": 9.5,
        "vedette_board_throttled": 1,
        "vedette_board_throttle_info{'cause': 'was_throttled'}": 1,
        "vedette_update_phase_info{'phase': 'fetch'}": 1,
        "vedette_link_connects_total": 4,
        "vedette_link_reports_waiting": 2,
        "vedette_escalation_outcomes_total{'cause': 'answered'}": 7,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_buckets_are_cumulative_and_end_with_everything() -> None:
    """Case 43: 4.6 ms five times and 900 ms once; any box has the same bounds, so the counts add up."""
    found = samples(render(full_snapshot()))
    counts = {
        bound: found[
            f"vedette_stage_duration_seconds_bucket{{'camera': 'front', 'le': '{bound}', 'model': 'person', "
            "'stage': 'infer', 'version': '1'}"
        ]
        for bound in ("0.0025", "0.005", "0.5", "1.0", "10.0", "+Inf")
    }
    assert list(counts.values()) == [0, 5, 5, 6, 6, 6]


def test_labels_are_a_closed_set() -> None:
    """Case 44: no key that free text could come in by."""
    keys = {
        key
        for family in text_string_to_metric_families(render(full_snapshot()).decode())
        for sample in family.samples
        for key in sample.labels
    }
    assert keys <= ALLOWED_LABELS


def test_ten_thousand_causes_and_models_do_not_make_it_grow() -> None:
    """Case 44: exception texts as causes, track ids as models. A cap, an `other`, and a figure that tells."""
    window = WindowRecorder(0)
    for number in range(10_000):
        window.record("front", ModelRef(f"track {number}", "", ""), LATENCY, 0.0)
    snapshot = snapshot_of(window)
    noisy = CameraFigures("front", failed={f"error at {number:x}": (0, 1) for number in range(10_000)})
    text = render(msgspec.structs.replace(snapshot, cameras=CameraColumns.of([noisy])))
    found = samples(text)
    failed = {name: value for name, value in found.items() if name.startswith("vedette_frames_failed_total")}
    assert len(failed) == MAX_LABEL_SETS
    assert sum(failed.values()) == 10_000
    assert failed["vedette_frames_failed_total{'camera': 'other', 'cause': 'other'}"] == 10_000 - (
        MAX_LABEL_SETS - 1
    )
    assert found["vedette_metrics_folded_label_sets"] == 10_000 - (MAX_LABEL_SETS - 1)
    assert found["vedette_latencies_overflow_total"] > 9000
    assert len(text) < 6_000_000


def test_a_box_that_has_just_started_is_scraped_too() -> None:
    found = samples(render(snapshot_of(WindowRecorder(0))))
    assert found["vedette_model_ready"] == 0
    assert not any(name.startswith("vedette_board") for name in found)


def test_free_text_cannot_break_out_of_a_label() -> None:
    window = WindowRecorder(0)
    window.record('a"\n\\b', ModelRef('x"} 1\n', "1", ""), LATENCY, 0.0)
    found = samples(render(snapshot_of(window)))
    assert any("'model': 'x\"} 1\\n'" in name for name in found)


def test_nothing_is_registered_globally() -> None:
    before = len(list(REGISTRY.collect()))
    render(full_snapshot())
    render(full_snapshot())
    assert len(list(REGISTRY.collect())) == before


def test_promtool_finds_nothing_to_object_to() -> None:
    """Prometheus's own linter on a full and on an empty scrape."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it comes with Debian's package `prometheus`")
    for snapshot in (full_snapshot(), snapshot_of(WindowRecorder(0))):
        ran = subprocess.run(
            [promtool, "check", "metrics"],
            input=render(snapshot),
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert (ran.returncode, ran.stdout + ran.stderr) == (0, b"")


def test_a_box_without_the_package_is_told_what_to_install() -> None:
    """The module can be imported there; asking for the text says what is missing."""
    script = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from vedette.errors import UnavailableError\n"
        "from vedette.telemetry import prometheus\n"
        "try: prometheus.render(None)\n"
        "except UnavailableError as error: print(error.cure)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=30, check=True, text=True
    )
    assert ran.stdout == "pip install 'vedette[http]'\n"
