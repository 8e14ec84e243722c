"""A real window, and invented ones, for the tests of reports."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import msgspec

from vedette.telemetry.sketch import Sketch
from vedette.wire.messages import LatencyMs, ModelRef
from vedette.wire.sketch_bits import Histogram, encode_histograms
from vedette.wire.telemetry import (
    STAGES,
    BoardFigures,
    BoxFigures,
    CameraFigures,
    EngineFigures,
    LinkFigures,
    Piece,
    ProcessFigures,
    ReportedModel,
    Series,
    TelemetryReport,
    UpdateFigures,
    report_with,
)

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "telemetry"
FIRST = ModelRef("person", "1", "a" * 64)
SECOND = ModelRef("person", "2", "b" * 64)
LATENCY = LatencyMs(transport=0.1, queue=0.4, preprocess=0.2, infer=4.6, postprocess=0.3, total=5.6)
S = 1_000_000_000
MODEL = ReportedModel("person", "1", "a3b4c5d6e7f8")


def recorded_rows() -> list[list[Histogram]]:
    """The window that was recorded, camera by camera; each row has the six stages of a frame."""
    document = json.loads((VECTORS / "window.json").read_text())
    return [[_histogram(**stage) for stage in row] for row in document["rows"]]


def _histogram(*, zeros: int, bins: str, sum_ns: int, min_ns: int, max_ns: int) -> Histogram:
    pairs = (pair.split(":") for pair in bins.split())
    return Histogram(zeros, {int(key): int(count) for key, count in pairs}, sum_ns, min_ns, max_ns)


def sketch_of(values_ms: list[float]) -> Sketch:
    """A sketch of these values."""
    sketch = Sketch()
    for value_ms in values_ms:
        sketch.record(value_ms)
    return sketch


def lognormal(rng: random.Random, median_ms: float, sigma: float, count: int = 1800) -> Histogram:
    """A stage of one window, in whole nanoseconds as clocks give them."""
    mu = math.log(median_ms)
    return sketch_of([round(rng.lognormvariate(mu, sigma), 6) for _ in range(count)]).histogram()


def stages_of(*histograms: Histogram) -> tuple[Histogram, ...]:
    """All stages of a series, the later ones empty."""
    return (*histograms, *(Histogram() for _ in STAGES[len(histograms) :]))


def piece(number: int, *histograms: Histogram, model: ReportedModel = MODEL) -> Piece:
    """A camera after an hour at 30 frames a second, with the sketches of its last minute."""
    name = f"camera-{number}"
    camera = CameraFigures(
        name,
        (1800, 108_000),
        (1790, 107_100),
        {"superseded": (10, 880), "stale": (0, 20)},
        source=ProcessFigures(3000 + 17 * number, 61_000 + number, 28_000 + number),
    )
    return camera, [Series(name, model, stages_of(*histograms))]


def head(seq: int = 1, *, device: str = "box-0042") -> TelemetryReport:
    """Everything of a report but its cameras."""
    return TelemetryReport(
        device=device,
        boot_id="5f0e4a5c-1b2c-4a55-9f0e-1f6f3d1c2b3a",
        started_s=12.5,
        seq=seq,
        start_s=3600.0,
        end_s=3660.0,
        utc_s=1_780_000_000.123,
        box=BoxFigures(
            agent="0.1.0",
            engine=EngineFigures(runtime="ai-edge-litert 2.3.0", effective="cpu", threads=1, load_ms=31.2),
            processes={
                "daemon": ProcessFigures(
                    2311, 48_211, 33_211, {"results": 900, "link": 210, "MainThread": 800}
                ),
                "worker person": ProcessFigures(25_311, 98_211, 63_211),
            },
            board=BoardFigures(
                name="Raspberry Pi 5 Model B Rev 1.0",
                temperatures_c={"cpu-thermal": 61.7, "rp1_adc": 55.1},
                throttled=False,
                cpu_share=1.0,
            ),
            update=UpdateFigures(phase="idle", rollout="summer"),
            link=LinkFigures(connects=3, waiting_reports=1),
        ),
    )


def recorded_report() -> TelemetryReport:
    """The recorded window of eight cameras as a report."""
    return report_with(
        _head_with_deliver(), [piece(number, *row) for number, row in enumerate(recorded_rows())]
    )


def _head_with_deliver() -> TelemetryReport:
    """With the sketch of writing all lines, which results do not tell and which is invented here."""
    rng = random.Random(9)  # noqa: S311 - reproducible data, no secret
    whole = head()
    assert whole.box is not None
    deliver = encode_histograms([[lognormal(rng, 0.17, 0.8, 14_400)]])
    return msgspec.structs.replace(whole, box=msgspec.structs.replace(whole.box, deliver=deliver))


def lognormal_report(sigma: float, cameras: int = 8) -> TelemetryReport:
    """A report of cameras whose stages are lognormal."""
    rng = random.Random(8)  # noqa: S311 - reproducible data, no secret
    medians_ms = (0.1, 0.4, 0.2, 4.0, 0.3, 6.0)
    return report_with(
        _head_with_deliver(),
        [
            piece(number, *(lognormal(rng, median_ms, sigma) for median_ms in medians_ms))
            for number in range(cameras)
        ],
    )
