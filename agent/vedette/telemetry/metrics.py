"""Everything since the start, small enough to be asked for every few seconds. Pure.

Scrapers cannot read sketches, so each is counted out into buckets with fixed bounds, which any two boxes
share and whose counts add up (casebook 43). A bound is good to the sketch's 1 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from vedette.telemetry.ledger import CameraCounts
from vedette.telemetry.report import camera_figures, reported_model
from vedette.wire.telemetry import STAGES, BoxFigures, CameraColumns, ReportedModel

if TYPE_CHECKING:
    from vedette.telemetry.report import Gathered
    from vedette.telemetry.sketch import Sketch
    from vedette.telemetry.window import ClosedWindow

BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_BOUNDS_MS = tuple(bound_s * 1e3 for bound_s in BOUNDS_S)


class StageBuckets(msgspec.Struct, frozen=True, array_like=True):
    """Values up to each of BOUNDS_S, cumulative; then all of them, and their sum."""

    stage: str
    up_to: tuple[int, ...]
    count: int
    sum_s: float


class SeriesBuckets(msgspec.Struct, frozen=True):
    """The stages of one camera and model that have values."""

    camera: str
    model: ReportedModel
    stages: tuple[StageBuckets, ...]


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a scrape gets; travels as JSON over the control socket. Counts are since the agent's start."""

    uptime_s: float
    cameras: CameraColumns
    series: tuple[SeriesBuckets, ...]
    deliver: StageBuckets | None
    box: BoxFigures


def metrics_snapshot(window: ClosedWindow, gathered: Gathered) -> MetricsSnapshot:
    """Put a snapshot together.

    Args:
        window: `WindowRecorder.since_start`.
        gathered: As for a report.
    """
    cameras = [
        camera_figures(name, counts, CameraCounts(), gathered, {})
        for name, counts in gathered.ledger.cameras.items()
    ]
    counts = {"rejected": (window.rejected,) * 2, "overflow": (window.overflow,) * 2}
    return MetricsSnapshot(
        uptime_s=(window.end_ns - window.start_ns) / 1e9,
        cameras=CameraColumns.of(cameras),
        series=tuple(
            SeriesBuckets(
                camera,
                reported_model(model),
                tuple(
                    _buckets(stage, sketch)
                    for stage, sketch in zip(STAGES, sketches, strict=True)
                    if sketch.count
                ),
            )
            for (camera, model), sketches in window.series.items()
        ),
        deliver=_buckets("deliver", window.deliver) if window.deliver.count else None,
        box=msgspec.structs.replace(gathered.box, **counts),
    )


def _buckets(stage: str, sketch: Sketch) -> StageBuckets:
    return StageBuckets(stage, tuple(sketch.counts_up_to(_BOUNDS_MS)), sketch.count, sketch.sum / 1e3)
