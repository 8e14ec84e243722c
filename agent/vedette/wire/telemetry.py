"""The report of one window of a device's telemetry, in MessagePack or JSON. Pure.

Three kinds of figures stand in it, and each is merged in its own way:

- Sketches hold the window only. Merge them over windows, cameras and devices; take a report that comes twice
  (same `key`) once. A report that was lost is missing from percentiles, and only from them.
- A `Count` is [in the window, since the agent's start]. For rates add up the first over reports taken once;
  for totals keep the largest second of each start (`boot_id`, `started_s`), which neither a repeated nor a
  lost report can spoil.
- The rest is of the window's end: the newest takes the place of the one before.

Times are monotonic seconds of the device's boot, `utc_s` is for people, and only as good as `clock_trusted`
says. What does not fit in one message is several with the same `seq` (`wire.report_split`): `part` of
`parts`, each of them a report of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from vedette.errors import BadInputError
from vedette.wire.plane import JSON_TYPE, MSGPACK_TYPE
from vedette.wire.sketch_bits import (
    MAX_ROWS,
    RELATIVE_ACCURACY,
    Histogram,
    accuracy,
    decode_histograms,
    encode_histograms,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_REPORT_BYTES = 1024
MAX_REPORT_BYTES = 256 << 10
# In this order in each row of sketches; new ones are appended, and a reader leaves those it does not know.
STAGES = ("transport", "queue", "preprocess", "infer", "postprocess", "total", "escalation")
OTHER = "other"  # the camera, model or cause of what found no place of its own (casebook 44)

_Natural = Annotated[int, Meta(ge=0, le=(1 << 62))]
_Text = Annotated[str, Meta(max_length=256)]
_Word = Annotated[str, Meta(max_length=64)]
Count = tuple[_Natural, _Natural]
_Counts = Annotated[dict[_Word, Count], Meta(max_length=64)]
_T = TypeVar("_T")
_Column = Annotated[tuple[_T, ...], Meta(max_length=MAX_ROWS)]
_CauseColumns = Annotated[dict[_Word, _Column[Count]], Meta(max_length=64)]
NOTHING: Count = (0, 0)


class ReportedModel(msgspec.Struct, frozen=True):
    """A model that answered in the window; `digest` is the beginning of its bundle's sha256."""

    name: _Word
    version: _Word
    digest: _Word = ""


class ProcessFigures(msgspec.Struct, frozen=True, array_like=True):
    """A process: CPU time in the window, memory at its end; `pss_kib` 0 where the kernel does not tell.

    `threads` is the CPU time in the window of its threads by name, those without any left out.
    """

    cpu_ms: _Natural
    rss_kib: _Natural
    pss_kib: _Natural = 0
    threads: Annotated[dict[_Word, _Natural], Meta(max_length=64)] = {}


NO_PROCESS = ProcessFigures(0, 0)


class CameraFigures(NamedTuple):
    """One camera: in = ok + dropped + failed + in_flight, by the totals.

    `models` names the rows of sketches that are this camera's, by their place in the report's `models`. Their
    quantiles are good to `accuracy`. `reused` answers were given again, `checks` of them were answered anew,
    and `checks_wrong` of those differed. `source` is the process that reads the camera.
    """

    name: str
    frames_in: Count = NOTHING
    ok: Count = NOTHING
    dropped: Mapping[str, Count] = MappingProxyType({})
    failed: Mapping[str, Count] = MappingProxyType({})
    in_flight: int = 0
    reused: Count = NOTHING
    checks: Count = NOTHING
    checks_wrong: Count = NOTHING
    source_restarts: int = 0
    source: ProcessFigures = NO_PROCESS
    models: tuple[int, ...] = (0,)
    accuracy: float = RELATIVE_ACCURACY


class CameraColumns(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"frames_in": "in"}
):
    """Cameras as they travel: each field holds one value a camera, in the order of `names`.

    A field that is left out holds for every camera what `CameraFigures` says, a cause nothing.
    """

    names: _Column[_Word] = ()
    frames_in: _Column[Count] = ()
    ok: _Column[Count] = ()
    dropped: _CauseColumns = {}
    failed: _CauseColumns = {}
    in_flight: _Column[_Natural] = ()
    reused: _Column[Count] = ()
    checks: _Column[Count] = ()
    checks_wrong: _Column[Count] = ()
    source_restarts: _Column[_Natural] = ()
    source: _Column[ProcessFigures] = ()
    models: _Column[_Column[_Natural]] = ()
    accuracy: _Column[float] = ()

    @classmethod
    def of(cls, cameras: Sequence[CameraFigures]) -> CameraColumns:
        """The columns of these rows."""
        return cls(
            names=tuple(camera.name for camera in cameras),
            dropped=_cause_columns([camera.dropped for camera in cameras]),
            failed=_cause_columns([camera.failed for camera in cameras]),
            **{name: _column(name, cameras) for name in _PLAIN},
        )

    def rows(self) -> list[CameraFigures]:
        """The cameras.

        Raises:
            BadInputError: The columns differ in length.
        """
        count = len(self.names)
        columns = {name: column for name in _PLAIN if (column := getattr(self, name))}
        causes = (*self.dropped.values(), *self.failed.values())
        if any(len(column) != count for column in (*columns.values(), *causes)):
            raise BadInputError("a report whose columns of cameras differ in length")
        return [
            CameraFigures(
                name,
                dropped={
                    cause: column[row] for cause, column in self.dropped.items() if column[row] != NOTHING
                },
                failed={
                    cause: column[row] for cause, column in self.failed.items() if column[row] != NOTHING
                },
                **{field: column[row] for field, column in columns.items()},
            )
            for row, name in enumerate(self.names)
        ]


_PLAIN = (
    *("frames_in", "ok", "in_flight", "reused", "checks", "checks_wrong"),
    *("source_restarts", "source", "models", "accuracy"),
)


def _column(name: str, cameras: Sequence[CameraFigures]) -> tuple[Any, ...]:
    """One value a camera, or nothing where each has the usual one."""
    column = tuple(getattr(camera, name) for camera in cameras)
    usual = CameraFigures._field_defaults[name]
    return () if all(value == usual for value in column) else column


def _cause_columns(counts: Sequence[Mapping[str, Count]]) -> dict[str, tuple[Count, ...]]:
    causes = dict.fromkeys(cause for one in counts for cause in one)
    return {cause: tuple(one.get(cause, NOTHING) for one in counts) for cause in causes}


class EngineFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the serving model really runs on; `degraded`: it is not what was asked for."""

    runtime: _Word
    effective: _Word
    degraded: bool = False
    threads: _Natural = 0
    load_ms: float = 0.0


class BoardFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the board tells of itself; what it does not tell is absent.

    `throttled` says whether it is slowed down now, `throttle` why, and what happened since the board's start
    (`was_…`). `cpu_share` is the clock the CPU may reach now as a share of the highest it could.
    """

    name: _Text = ""
    temperatures_c: Annotated[dict[_Word, float], Meta(max_length=64)] = {}
    power_w: Annotated[dict[_Word, float], Meta(max_length=64)] = {}
    throttled: bool | None = None
    throttle: Annotated[tuple[_Word, ...], Meta(max_length=32)] = ()
    cpu_share: float | None = None


class UpdateFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an update stands; in full it is `plane.Reported`."""

    phase: _Word
    rollout: _Word = ""
    bytes_fetched: _Natural = 0
    bytes_needed: _Natural = 0


class EscalationFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked of a larger model, what became of it, what that cost, and what is promised.

    `outcomes` by the words of `messages.Escalation`, with `_` and the cause where there is one. `escalated`
    frames were handed over because they were unsure, `audits` at random; `calls` were made. `waiting` have no
    outcome yet, `backlog` lie on the disk. `epsilon` is what was promised and `held_epsilon` what holds, in
    the `mode` that the threshold came about. `agreement` of what was answered, corrections included, with the
    large model, and `local_agreement` of the local answers alone, rest on audits; each with its interval.
    `rtt_ms` is the median and the 90th percentile of answers.
    """

    outcomes: _Counts = {}
    escalated: Count = NOTHING
    calls: Count = NOTHING
    audits: Count = NOTHING
    sent_bytes: Count = NOTHING
    cache_hits: Count = NOTHING
    cache_misses: Count = NOTHING
    waiting: _Natural = 0
    backlog: _Natural = 0
    mode: _Word = ""
    epsilon: float = 0.0
    held_epsilon: float = 0.0
    agreement: tuple[float, float, float] | None = None
    local_agreement: tuple[float, float, float] | None = None
    calls_day: _Natural = 0
    money_day: float = 0.0
    rtt_ms: tuple[float, float] = (0.0, 0.0)
    breaker: _Word = "closed"
    fault: _Text = ""


class LinkFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The link; counts are since the start, but what waits is of now."""

    connects: _Natural = 0
    waiting_events: _Natural = 0
    waiting_reports: _Natural = 0
    dropped_reports: _Natural = 0
    dropped_results: _Natural = 0
    bad_messages: _Natural = 0


class BoxFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is the whole box's and not one camera's.

    `rejected` values were no durations; `overflow` frames found no place for their camera and model and stand
    under OTHER. `processes` are those that are no camera's. `deliver` is a blob of one sketch, of the time
    from an answer to its line being written, which is the box's doing and no camera's.
    """

    agent: _Word = ""
    engine: EngineFigures | None = None
    worker_restarts: _Natural = 0
    processes: Annotated[dict[_Word, ProcessFigures], Meta(max_length=256)] = {}
    board: BoardFigures | None = None
    update: UpdateFigures | None = None
    link: LinkFigures | None = None
    escalation: EscalationFigures | None = None
    rejected: Count = NOTHING
    overflow: Count = NOTHING
    deliver: bytes = b""


class ReportKey(NamedTuple):
    """Two reports with one key are one report that came twice."""

    device: str
    boot_id: str
    started_s: float
    seq: int
    part: int


class TelemetryReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One window, or a part of it. `left_out` names figures that did not fit."""

    v: int = 1
    device: _Word
    boot_id: _Word
    started_s: float
    seq: _Natural
    part: _Natural = 0
    parts: _Natural = 1
    start_s: float
    end_s: float
    utc_s: float = 0.0
    clock_trusted: bool = True
    models: Annotated[tuple[ReportedModel, ...], Meta(max_length=MAX_ROWS)] = ()
    cameras: CameraColumns = CameraColumns()
    sketches: bytes = b""
    box: BoxFigures | None = None
    left_out: Annotated[tuple[_Word, ...], Meta(max_length=16)] = ()

    @property
    def key(self) -> ReportKey:
        """What makes it this report and no other."""
        return ReportKey(self.device, self.boot_id, self.started_s, self.seq, self.part)


class Series(NamedTuple):
    """The sketches of one camera and model; stages beyond the last are empty."""

    camera: str
    model: ReportedModel
    stages: tuple[Histogram, ...]


def pieces_of(report: TelemetryReport) -> list[Piece]:
    """The cameras of a report, each with its sketches.

    Raises:
        BadInputError: They are damaged, or not those that the cameras name.
    """
    rows = decode_histograms(report.sketches) if report.sketches else []
    cameras = (
        report.cameras.rows()
        if report.sketches
        else [camera._replace(models=()) for camera in report.cameras.rows()]
    )
    named = [index for camera in cameras for index in camera.models]
    if len(rows) != len(named) or any(index >= len(report.models) for index in named):
        raise BadInputError(f"a report with {len(rows)} rows of sketches where its cameras name {len(named)}")
    padding = (Histogram(),) * len(STAGES)
    left = iter(rows)
    return [
        (
            camera,
            [
                Series(camera.name, report.models[index], (*next(left), *padding)[: len(STAGES)])
                for index in camera.models
            ],
        )
        for camera in cameras
    ]


def deliver_of(box: BoxFigures) -> Histogram:
    """The sketch in `BoxFigures.deliver`.

    Raises:
        BadInputError: It is damaged.
    """
    rows = decode_histograms(box.deliver) if box.deliver else []
    return rows[0][0] if rows and rows[0] else Histogram()


def encode_report(report: TelemetryReport, content_type: str = MSGPACK_TYPE) -> bytes:
    """One message, whatever its size."""
    encode = msgspec.json.encode if content_type == JSON_TYPE else msgspec.msgpack.encode
    return encode(report)


def decode_report(payload: bytes, content_type: str = "") -> TelemetryReport:
    """Read a report; without a content type (MQTT 3.1.1) the first byte tells.

    Raises:
        BadInputError: It is none, or holds what cannot be.
    """
    if len(payload) > MAX_REPORT_BYTES:
        raise BadInputError(f"a report of {len(payload)} bytes; {MAX_REPORT_BYTES} is the most")
    is_json = content_type == JSON_TYPE or (content_type != MSGPACK_TYPE and payload[:1] == b"{")
    decode = msgspec.json.decode if is_json else msgspec.msgpack.decode
    try:
        report = decode(payload, type=TelemetryReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"not a telemetry report: {error}") from error
    if not all(math.isfinite(value) for value in _floats(report)):
        raise BadInputError(f"a report of {report.device} with a figure that is no number")
    if report.start_s > report.end_s or report.part >= report.parts:
        raise BadInputError(f"a report of {report.device} whose window or part cannot be")
    return report


def _floats(report: TelemetryReport) -> Iterator[float]:
    yield from (report.started_s, report.start_s, report.end_s, report.utc_s)
    yield from report.cameras.accuracy
    box = report.box
    if box is None:
        return
    if box.engine is not None:
        yield box.engine.load_ms
    if box.board is not None:
        yield from box.board.temperatures_c.values()
        yield from box.board.power_w.values()
        yield box.board.cpu_share or 0.0


Piece = tuple[CameraFigures, Sequence[Series]]


def report_with(head: TelemetryReport, pieces: Sequence[Piece]) -> TelemetryReport:
    """A report of these cameras, each with its sketches.

    Args:
        head: Everything but `models`, `cameras` and `sketches`.
        pieces: The cameras' `models` and `accuracy` are filled in.

    Raises:
        ValueError: More than fits in any report.
    """
    models = list(dict.fromkeys(entry.model for _, own in pieces for entry in own))
    place = {model: index for index, model in enumerate(models)}
    rows = [entry.stages for _, own in pieces for entry in own]
    cameras = CameraColumns.of(
        [
            camera._replace(models=tuple(place[entry.model] for entry in own), accuracy=_accuracy_of(own))
            for camera, own in pieces
        ]
    )
    sketches = encode_histograms(rows) if rows else b""
    return msgspec.structs.replace(head, models=tuple(models), cameras=cameras, sketches=sketches)


def _accuracy_of(series: Sequence[Series]) -> float:
    scale = max((stage.scale for entry in series for stage in entry.stages), default=0)
    return round(accuracy(scale), 4) if scale else RELATIVE_ACCURACY
