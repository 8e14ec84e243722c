"""Makes the messages of each window, and puts back what could not be kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from vedette.errors import StorageError
from vedette.telemetry.escalation_window import since
from vedette.telemetry.ledger import CameraCounts, LedgerSnapshot
from vedette.telemetry.sketch import Sketch
from vedette.telemetry.window import ClosedWindow, SeriesKey
from vedette.wire.plane import MSGPACK_TYPE
from vedette.wire.report_split import split_pieces
from vedette.wire.sketch_bits import encode_histograms
from vedette.wire.telemetry import (
    NO_PROCESS,
    NOTHING,
    BoxFigures,
    CameraFigures,
    Count,
    EscalationFigures,
    Piece,
    ProcessFigures,
    ReportedModel,
    Series,
    TelemetryReport,
    pieces_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.telemetry.window import StageSketches, WindowRecorder
    from vedette.wire.messages import ModelRef

    Keep = Callable[[bytes, str], None]

DIGEST_LENGTH = 12
_TEXT_LENGTH = 64
_NEVER = (0, 0, 0)


class Moment(msgspec.Struct, frozen=True):
    """When a window ended: monotonic, and what the wall clock said, if it is to be believed."""

    now_ns: int
    utc_s: float
    clock_trusted: bool


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What others know at the window's end; all but `ledger` and `box` are by camera."""

    ledger: LedgerSnapshot
    box: BoxFigures
    in_flight: Mapping[str, int] = {}
    source_restarts: Mapping[str, int] = {}
    sources: Mapping[str, ProcessFigures] = {}
    reuse: Mapping[str, tuple[int, int, int]] = {}


class Reporter:
    """Makes a report of each window; what could not be kept is in the next one. One thread."""

    def __init__(
        self,
        window: WindowRecorder,
        *,
        device: str,
        boot_id: str,
        started_ns: int,
        max_bytes: int,
        content_type: str = MSGPACK_TYPE,
    ) -> None:
        self._window = window
        self._device, self._boot_id = device, boot_id
        self._started_ns = started_ns
        self._max_bytes = max_bytes
        self._type = content_type
        self._seq = 0
        self._reported: dict[str, CameraCounts] = {}
        self._rejected = self._overflow = 0
        self._escalation: EscalationFigures | None = None
        self._reused: dict[str, tuple[int, int, int]] = {}

    def report(self, moment: Moment, gathered: Gathered, keep: Keep) -> int:
        """Close the window and hand its messages to `keep`, such as `Link.telemetry`.

        Returns:
            How many messages it took.

        Raises:
            StorageError: `keep` could not keep all of them; what it did not is in the next report.
        """
        window = self._window.take(moment.now_ns)
        self._seq += 1
        head = self._head(window, moment, gathered)
        cameras = [
            camera_figures(name, counts, self._reported.get(name, CameraCounts()), gathered, self._reused)
            for name, counts in gathered.ledger.cameras.items()
        ]
        messages = split_pieces(head, _pieces(cameras, window), self._max_bytes, self._type)
        for index, message in enumerate(messages):
            try:
                keep(message.payload, self._type)
            except StorageError:
                self._put_back(window, [rest.report for rest in messages[index:]])
                raise
            self._was_kept(message.report, gathered)
        return len(messages)

    def _head(self, window: ClosedWindow, moment: Moment, gathered: Gathered) -> TelemetryReport:
        self._rejected += window.rejected
        self._overflow += window.overflow
        box = _box(
            gathered,
            window,
            self._escalation,
            (window.rejected, self._rejected),
            (window.overflow, self._overflow),
        )
        return TelemetryReport(
            device=self._device,
            boot_id=self._boot_id,
            started_s=_seconds(self._started_ns),
            seq=self._seq,
            start_s=_seconds(window.start_ns),
            end_s=_seconds(window.end_ns),
            utc_s=round(moment.utc_s, 3),
            clock_trusted=moment.clock_trusted,
            box=box,
        )

    def _was_kept(self, report: TelemetryReport, gathered: Gathered) -> None:
        """The next increments of these cameras, and of the box, begin here."""
        ledger = gathered.ledger
        if report.box is not None and report.box.escalation is not None:
            self._escalation = gathered.box.escalation
        for camera in report.cameras.rows():
            if camera.frames_in != NOTHING and camera.name in ledger.cameras:
                self._reported[camera.name] = ledger.cameras[camera.name]
                self._reused[camera.name] = gathered.reuse.get(camera.name, _NEVER)

    def _put_back(self, window: ClosedWindow, reports: list[TelemetryReport]) -> None:
        """The sketches of these reports return to the window under way, each under its full name."""
        full = {reported_model(model): model for _, model in window.series}
        series: dict[SeriesKey, StageSketches] = {}
        box = None
        for report in reports:
            box = report.box or box
            for _, own in pieces_of(report):
                for entry in own:
                    series[entry.camera, full[entry.model]] = tuple(map(Sketch.of, entry.stages))
        if box is None:
            rest = ClosedWindow(window.start_ns, window.end_ns, series, Sketch())
        else:
            self._rejected -= window.rejected
            self._overflow -= window.overflow
            rest = msgspec.structs.replace(window, series=series)
        self._window.put_back(rest)


def _pieces(cameras: list[CameraFigures], window: ClosedWindow) -> list[Piece]:
    """The cameras with their sketches; sketches of others stand under a camera of their own."""
    series: dict[str, list[Series]] = {camera.name: [] for camera in cameras}
    for (name, model), sketches in window.series.items():
        stages = tuple(sketch.histogram() for sketch in sketches)
        camera = name[:_TEXT_LENGTH]
        series.setdefault(camera, []).append(Series(camera, reported_model(model), stages))
    known = {camera.name: camera for camera in cameras}
    return [(known.get(name, CameraFigures(name)), own) for name, own in series.items()]


def _box(
    gathered: Gathered,
    window: ClosedWindow,
    before: EscalationFigures | None,
    rejected: Count,
    overflow: Count,
) -> BoxFigures:
    escalation = gathered.box.escalation
    # The constant itself, where there is nothing to say: it is left out of the message.
    return msgspec.structs.replace(
        gathered.box,
        escalation=None if escalation is None else since(escalation, before),
        rejected=rejected if any(rejected) else NOTHING,
        overflow=overflow if any(overflow) else NOTHING,
        deliver=encode_histograms([[window.deliver.histogram()]]) if window.deliver.count else b"",
    )


def camera_figures(
    name: str,
    counts: CameraCounts,
    before: CameraCounts,
    gathered: Gathered,
    reused_before: Mapping[str, tuple[int, int, int]],
) -> CameraFigures:
    """A camera's counts, those in the window since `before`."""
    reused, checks, wrong = (
        (now - then, now) if now else NOTHING
        for now, then in zip(gathered.reuse.get(name, _NEVER), reused_before.get(name, _NEVER), strict=True)
    )
    return CameraFigures(
        name=name,
        frames_in=(counts.frames_in - before.frames_in, counts.frames_in),
        ok=(counts.ok - before.ok, counts.ok),
        dropped=_grown(counts.dropped, before.dropped),
        failed=_grown(counts.failed, before.failed),
        in_flight=max(0, gathered.in_flight.get(name, counts.in_flight)),
        reused=reused,
        checks=checks,
        checks_wrong=wrong,
        source_restarts=gathered.source_restarts.get(name, 0),
        source=gathered.sources.get(name, NO_PROCESS),
    )


def _grown(counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, Count]:
    return {cause: (total - before.get(cause, 0), total) for cause, total in counts.items()}


def reported_model(model: ModelRef) -> ReportedModel:
    """A model as reports name it."""
    return ReportedModel(
        model.name[:_TEXT_LENGTH], model.version[:_TEXT_LENGTH], model.sha256[:DIGEST_LENGTH]
    )


def _seconds(time_ns: int) -> float:
    return round(time_ns / 1e9, 3)
