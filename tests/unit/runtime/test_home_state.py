"""What the home's dashboard is told of a window."""

from __future__ import annotations

from tests.unit.telemetry.recorded import MODEL, head, sketch_of, stages_of

from vedette.runtime.reporting_duties import home_state
from vedette.wire.telemetry import CameraFigures, Series, report_with


def test_frames_above_the_configured_rate_are_not_shown_as_dropped() -> None:
    """An automation that warns of dropped frames must not warn of what its owner asked for."""
    empty = sketch_of([]).histogram()
    stages = stages_of(empty, empty, empty, empty, empty, sketch_of([5.0] * 60).histogram())
    camera = CameraFigures("front", (125, 1250), (60, 600), {"rate": (61, 610), "stale": (4, 40)})
    state = home_state([report_with(head(1), [(camera, [Series("front", MODEL, stages)])])])
    assert (state.drops, state.cameras["front"].drops) == (40, 40)
