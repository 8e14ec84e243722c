"""Reports as the fleet reads them: both forms, sizes, splitting, and what strangers send."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.telemetry.recorded import (
    MODEL,
    head,
    lognormal,
    lognormal_report,
    piece,
    recorded_report,
    recorded_rows,
    sketch_of,
    stages_of,
)

from vedette.errors import BadInputError, InternalError
from vedette.telemetry.sketch import Sketch
from vedette.wire.plane import JSON_TYPE, MSGPACK_TYPE
from vedette.wire.report_split import split_report
from vedette.wire.sketch_bits import accuracy
from vedette.wire.telemetry import (
    MAX_REPORT_BYTES,
    BoardFigures,
    BoxFigures,
    CameraColumns,
    CameraFigures,
    ProcessFigures,
    ReportedModel,
    Series,
    TelemetryReport,
    decode_report,
    deliver_of,
    encode_report,
    pieces_of,
    report_with,
)

BAR_BYTES = 4096
TYPES = (MSGPACK_TYPE, JSON_TYPE)


@pytest.mark.parametrize("content_type", TYPES)
def test_a_report_is_read_as_it_was_written(content_type: str) -> None:
    """With the content type, and without one (MQTT 3.1.1 carries none)."""
    report = recorded_report()
    payload = encode_report(report, content_type)
    for known_type in (content_type, ""):
        assert decode_report(payload, known_type) == report
    cameras = pieces_of(report)
    assert [camera.name for camera, _ in cameras] == [f"camera-{number}" for number in range(8)]
    assert [list(own[0].stages[:6]) for _, own in cameras] == recorded_rows()
    assert cameras[3][0].dropped == {"superseded": (10, 880), "stale": (0, 20)}
    assert cameras[3][0].source == ProcessFigures(3051, 61_003, 28_003)


def test_eight_real_cameras_fit_below_the_bar() -> None:
    """The bar: a recorded minute of eight cameras at 30 fps, with all other figures, in one message."""
    (payload,) = split_report(recorded_report(), BAR_BYTES)
    assert len(payload) < BAR_BYTES
    (payload,) = split_report(lognormal_report(0.3), BAR_BYTES)
    assert len(payload) < BAR_BYTES


@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize("max_bytes", [1024, 1500, 2048, 4096])
def test_what_does_not_fit_is_split_and_nothing_is_lost(max_bytes: int, content_type: str) -> None:
    """Every message within the limit; together they say what the report said, but for what they admit."""
    report = recorded_report()
    parts = [decode_report(part, content_type) for part in _split(report, max_bytes, content_type)]
    assert [(part.part, part.parts) for part in parts] == [
        (number, len(parts)) for number in range(len(parts))
    ]
    assert {part.seq for part in parts} == {report.seq}
    assert [part.box is not None for part in parts] == [True] + [False] * (len(parts) - 1)
    assert [camera for part in parts for camera, _ in _plain(part)] == [
        camera for camera, _ in _plain(report)
    ]
    assert _stages(parts) == _stages([report])


def test_a_camera_with_many_models_is_cut_between_them_and_counts_once() -> None:
    rng = random.Random(2)  # noqa: S311 - reproducible data, no secret
    camera, _ = piece(0)
    series = [
        Series(camera.name, ReportedModel("person", str(version)), stages_of(*(lognormal(rng, 5, 0.5),) * 6))
        for version in range(6)
    ]
    report = report_with(msgspec.structs.replace(head(), box=None), [(camera, series)])
    parts = [decode_report(part) for part in _split(report, 1500)]
    assert len(parts) > 1
    assert sum(row.frames_in[0] for part in parts for row in part.cameras.rows()) == 1800
    assert max(row.frames_in[1] for part in parts for row in part.cameras.rows()) == 108_000
    assert [own for part in parts for _, pieces in pieces_of(part) for own in pieces] == series
    assert all(row.accuracy == 0.01 for part in parts for row in part.cameras.rows())


def test_one_camera_that_is_too_large_is_made_coarser_and_says_so() -> None:
    """Whole days in one window, every latency there is: halves of the accuracy until it fits."""
    rng = random.Random(3)  # noqa: S311 - reproducible data, no secret
    values = [10 ** rng.uniform(-6, 9) for _ in range(20_000)]
    huge = sketch_of(values).histogram()
    report = report_with(head(), [piece(0, *(huge,) * 6)])
    parts = [decode_report(part) for part in _split(report, 1024)]
    ((camera, (series,)),) = pieces_of(parts[-1])
    assert camera.accuracy == pytest.approx(accuracy(series.stages[0].scale), abs=1e-4)
    assert 0.01 < camera.accuracy < 0.2
    sketch = Sketch.of(series.stages[0])
    assert sketch.count == 20_000
    assert (sketch.sum, sketch.max) == (huge.sum_ns / 1e6, huge.max_ns / 1e6)
    values.sort()
    for q in (0.01, 0.5, 0.99):
        assert sketch.quantile(q) == pytest.approx(values[int(q * 19_999)], rel=camera.accuracy + 1e-4)


@pytest.mark.parametrize("content_type", TYPES)
def test_the_largest_box_there_can_be_fits_in_the_smallest_report(content_type: str) -> None:
    """Long names, many threads, many sensors: details go in a fixed order and are named."""
    word = "x" * 60
    box = BoxFigures(
        agent=word,
        processes={
            f"{word}{n}": ProcessFigures(n, n, n, {f"{word}{t}": t for t in range(9)}) for n in range(9)
        },
        board=BoardFigures(name=word, temperatures_c={f"{word}{n}": 50.0 for n in range(9)}),
    )
    report = msgspec.structs.replace(recorded_report(), box=box, device="d" * 63)
    first = decode_report(_split(report, 1024, content_type)[0])
    assert first.left_out == ("threads", "processes", "board")
    assert first.box is not None
    assert first.box.agent == word


def test_a_limit_that_nothing_fits_in_is_our_own_mistake() -> None:
    with pytest.raises(InternalError, match="1024 is the least"):
        split_report(recorded_report(), 1000)


def test_a_fleet_of_parts_and_reports_merges_into_true_percentiles() -> None:
    """Case 43: A answers 1,000 frames in 10 to 12 ms, B 100, half of them in 900; in parts of reports."""
    fast = sketch_of([10.0] * 990 + [12.0] * 10).histogram()
    slow = sketch_of([10.0] * 50 + [900.0] * 50).histogram()
    fleet = Sketch()
    for device, histogram in (("a", fast), ("b", slow)):
        report = report_with(head(device=device), [piece(0, *(histogram,) * 6)])
        for payload in split_report(report, 1024):
            for _, own in pieces_of(decode_report(payload)):
                fleet = Sketch.merged([fleet, *(Sketch.of(entry.stages[5]) for entry in own)])
    assert fleet.quantile(0.95) == pytest.approx(12.0, rel=0.01)
    assert fleet.quantile(0.99) == pytest.approx(900.0, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.builds(
            CameraFigures,
            name=st.text(max_size=20),
            frames_in=st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
            dropped=st.dictionaries(
                st.sampled_from(["stale", "rate"]), st.tuples(st.integers(1, 9), st.integers(1, 1 << 40))
            ),
            ok=st.just((0, 0)) | st.just((1, 2)),
            failed=st.just({}),
            in_flight=st.integers(0, 9),
            reused=st.just((0, 0)) | st.just((7, 70)),
            checks=st.just((0, 0)) | st.just((1, 3)),
            checks_wrong=st.just((0, 0)) | st.just((0, 1)),
            source_restarts=st.integers(0, 1),
            source=st.just(ProcessFigures(0, 0)) | st.just(ProcessFigures(1, 2, 3)),
            models=st.just((0,)) | st.just(()),
            accuracy=st.just(0.01) | st.just(0.02),
        ),
        max_size=6,
    )
)
def test_cameras_travel_in_columns_and_come_back_as_rows(cameras: list[CameraFigures]) -> None:
    columns = CameraColumns.of(cameras)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(columns), type=CameraColumns).rows() == cameras


def test_deliver_is_the_boxs_own_sketch() -> None:
    assert deliver_of(BoxFigures()).count == 0
    with pytest.raises(BadInputError):
        deliver_of(BoxFigures(deliver=b"nonsense"))


# What strangers send -------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([*TYPES, "", "text/plain"]))
def test_any_bytes_are_a_report_or_bad_input(payload: bytes, content_type: str) -> None:
    with pytest.raises(BadInputError):
        decode_report(payload, content_type)


def test_a_payload_beyond_all_bounds_is_refused_unread() -> None:
    """The kind of case 31: 10 MB where 4 KiB are usual."""
    with pytest.raises(BadInputError, match="is the most"):
        decode_report(b"{" * (MAX_REPORT_BYTES + 1))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(BadInputError):
        decode_report(b'{"device":' + b"[" * 50_000, JSON_TYPE)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seq": -1}, "seq"),
        ({"seq": 1 << 63}, "seq"),
        ({"start_s": 9e9}, "window or part"),
        ({"part": 3}, "window or part"),
        ({"end_s": float("nan")}, "no number"),
        ({"end_s": float("inf")}, "no number"),
        ({"device": "d" * 500}, "device"),
        ({"box": {"board": {"temperatures_c": {"cpu": float("nan")}}}}, "no number"),
        ({"box": {"processes": {"daemon": [-5, 1]}}}, "processes"),
        ({"cameras": {"names": ["a"], "in": [[1, -1]]}}, "in"),
    ],
)
def test_figures_that_cannot_be_are_refused(change: dict[str, Any], why: str) -> None:
    """The kind of case 31: huge and negative numbers, and those that are none."""
    document = msgspec.msgpack.decode(encode_report(recorded_report()))
    with pytest.raises(BadInputError, match=why):
        decode_report(msgspec.msgpack.encode({**document, **change}))


@pytest.mark.parametrize(
    "change",
    [
        {"models": []},
        {"cameras": {"names": ["a"]}},
        {"cameras": {"names": ["a"], "models": [[0] * 8, []]}},
        {"cameras": {"names": ["a"], "dropped": {"stale": []}}},
        {"cameras": {"names": ["a"], "models": [[7] * 8]}},
        {"sketches": b"nonsense"},
        {"sketches": b""},
    ],
)
def test_sketches_that_are_not_the_cameras_are_refused(change: dict[str, Any]) -> None:
    document = msgspec.msgpack.decode(encode_report(recorded_report()))
    try:
        report = decode_report(msgspec.msgpack.encode({**document, **change}))
        cameras = pieces_of(report)
    except BadInputError:
        return
    assert not any(own for _, own in cameras), "cameras without sketches are just that"


def test_a_newer_device_may_say_more() -> None:
    """Unknown fields and stages of a later agent are left aside."""
    document = msgspec.msgpack.decode(encode_report(recorded_report()))
    later = decode_report(msgspec.msgpack.encode({**document, "mood": "good"}))
    assert later.device == "box-0042"
    many = report_with(head(), [piece(0)])
    long_row = (*stages_of(*recorded_rows()[0]), sketch_of([1.0]).histogram())
    camera, _ = piece(0)
    many = report_with(head(), [(camera, [Series(camera.name, MODEL, long_row)])])
    ((_, (series,)),) = pieces_of(many)
    assert series.stages == long_row[:-1]


def _split(report: TelemetryReport, max_bytes: int, content_type: str = MSGPACK_TYPE) -> list[bytes]:
    parts = split_report(report, max_bytes, content_type)
    assert max(map(len, parts)) <= max_bytes
    return parts


def _plain(report: TelemetryReport) -> list[tuple[CameraFigures, list[Series]]]:
    """The cameras, without what depends on the part they are in."""
    return [(camera._replace(models=(), accuracy=0.01), list(own)) for camera, own in pieces_of(report)]


def _stages(parts: list[TelemetryReport]) -> list[Any]:
    """Sketches at the scale that the parts admit to."""
    scale = max(
        stage.scale for part in parts for _, own in pieces_of(part) for entry in own for stage in entry.stages
    )
    return [
        stage.coarsened(scale)
        for part in parts
        for _, own in pieces_of(part)
        for entry in own
        for stage in entry.stages
    ]
