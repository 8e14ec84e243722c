"""What is known of one device from its messages, whatever the order they come in. Pure.

Times named `…_s` without more are the reader's own monotonic clock. Devices' clocks are not comparable, so
each start of an agent has an offset: the smallest delay between the end of a window and its arrival. A
report that waited in an outbox is old by that offset, whatever anybody's wall clock says (casebook 46).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple

from vedette.telemetry.sketch import Sketch
from vedette.wire.causes import AS_CONFIGURED
from vedette.wire.telemetry import STAGES, pieces_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.wire.plane import DeviceStatus, Reported
    from vedette.wire.telemetry import (
        BoxFigures,
        CameraFigures,
        EscalationFigures,
        ReportedModel,
        ReportKey,
        TelemetryReport,
    )

MAX_WINDOWS = 256
MAX_KEYS = 1024
MAX_CAMERAS = 512
MAX_OLD_STARTS = 16


class Start(NamedTuple):
    """A start of the agent in a boot of the box."""

    boot_id: str
    started_s: float  # monotonic of the box


class Window(NamedTuple):
    """Increments and sketches of one report; frames above a camera's configured rate do not stand in them."""

    start: Start
    seq: int
    begin_s: float  # monotonic of the box, as `end_s`
    end_s: float
    frames_in: int
    ok: int
    dropped: int
    failed: int
    sketches: dict[ReportedModel, Sketch]
    escalation: EscalationFigures | None = None

    @property
    def length_s(self) -> float:
        """How long it was."""
        return self.end_s - self.begin_s


class DeviceFigures:
    """One device; bounded whatever it sends."""

    def __init__(self, stage: str) -> None:
        self.status: DeviceStatus | None = None
        self.reported: Reported | None = None
        self.box: BoxFigures | None = None
        self.accuracy = 0.0
        self.heard_s: float | None = None
        self.repeated = self.late = 0
        self.clock_trusted = True
        self.skew_s: float | None = None
        self._stage = STAGES.index(stage)
        self._alive_since_will = False
        self._start: Start | None = None
        self._start_utc_s: float | None = None
        self._old: deque[Start] = deque(maxlen=MAX_OLD_STARTS)
        self._offsets_s: OrderedDict[Start, float] = OrderedDict()
        self._windows: deque[Window] = deque(maxlen=MAX_WINDOWS)
        self._keys: OrderedDict[ReportKey, None] = OrderedDict()
        self._totals: OrderedDict[str, tuple[float, CameraFigures]] = OrderedDict()
        self._box_end_s = 0.0

    @property
    def online(self) -> bool | None:
        """What it said last, None when it never did; a live message after its will means that it lives."""
        if self.status is None:
            return True if self.heard_s is not None else None
        return self.status.online or self._alive_since_will

    def take_status(self, status: DeviceStatus) -> None:
        """A birth, or a will; a will of a connection before the newest means nothing."""
        known = self.status
        if not status.online and known is not None and known.online and known.session != status.session:
            self.late += 1
            return
        self.status = status
        self._alive_since_will = False

    def take_reported(self, reported: Reported) -> None:
        """The state of updates, unless a newer one is known."""
        known = self.reported
        if known is not None and known.boot_id == reported.boot_id and known.seq > reported.seq:
            self.late += 1
            return
        self.reported = reported

    def heard(self, now_s: float) -> None:
        """Something came from it just now."""
        self.heard_s = now_s
        self._alive_since_will = True

    def take_report(self, report: TelemetryReport, now_s: float, utc_s: float, horizon_s: float) -> None:
        """A report, once.

        Args:
            report: As it came.
            now_s: The reader's monotonic clock.
            utc_s: The reader's wall clock.
            horizon_s: What ended longer ago is late.

        Raises:
            BadInputError: Its sketches are damaged; nothing of it is taken.
        """
        if report.key in self._keys:
            self.repeated += 1
            return
        pieces = pieces_of(report)
        self._keys[report.key] = None
        if len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        start = Start(report.boot_id, report.started_s)
        current = self._is_current(start, report)
        self._note_offset(start, now_s - report.end_s)
        if self.age_s(start, report.end_s, now_s) > horizon_s or not current:
            self.late += 1
        if current:
            self._note_clock(report, utc_s)
            self._note_totals(report)
        sketches: dict[ReportedModel, Sketch] = {}
        for _, series in pieces:
            for entry in series:
                sketch = sketches.setdefault(entry.model, Sketch())
                sketch.merge(Sketch.of(entry.stages[self._stage]))
        rows = [camera for camera, _ in pieces]
        unwanted = sum(row.dropped[cause][0] for row in rows for cause in AS_CONFIGURED & row.dropped.keys())
        self._windows.append(
            Window(
                start,
                report.seq,
                report.start_s,
                report.end_s,
                sum(row.frames_in[0] for row in rows) - unwanted,
                sum(row.ok[0] for row in rows),
                sum(count[0] for row in rows for count in row.dropped.values()) - unwanted,
                sum(count[0] for row in rows for count in row.failed.values()),
                sketches,
                None if report.box is None else report.box.escalation,
            )
        )

    def recent(self, now_s: float, horizon_s: float) -> Iterator[Window]:
        """Windows that ended within the horizon."""
        for window in self._windows:
            if self.age_s(window.start, window.end_s, now_s) <= horizon_s:
                yield window

    def age_s(self, start: Start, end_s: float, now_s: float) -> float:
        """How long ago a window ended, by the quickest report of that start."""
        return now_s - end_s - self._offsets_s.get(start, float("-inf"))

    def losses(self) -> dict[str, int]:
        """Frames that were not answered, by cause, since the agent's start."""
        totals: dict[str, int] = {}
        for _, row in self._totals.values():
            for cause, count in (*row.dropped.items(), *row.failed.items()):
                if cause in AS_CONFIGURED:
                    continue
                totals[cause] = totals.get(cause, 0) + count[1]
        return totals

    def _is_current(self, start: Start, report: TelemetryReport) -> bool:
        """Whether a report is of the newest start of the agent; a newer one becomes that."""
        known = self._start
        if known == start:
            return True
        if known is not None and not self._is_newer(start, known, report):
            return False
        if known is not None:
            self._old.append(known)
        self._start, self._box_end_s = start, 0.0
        self._start_utc_s = report.utc_s if report.clock_trusted and report.utc_s else None
        self._totals.clear()
        self.skew_s = None
        return True

    def _is_newer(self, start: Start, known: Start, report: TelemetryReport) -> bool:
        """By the boot's own clock, by what the device said of itself, by trusted clocks; else by arrival."""
        if start in self._old:
            return False
        if start.boot_id == known.boot_id:
            return start.started_s > known.started_s
        boot_id = None if self.status is None else self.status.boot_id
        if boot_id in {start.boot_id, known.boot_id}:
            return boot_id == start.boot_id
        if report.clock_trusted and report.utc_s and self._start_utc_s is not None:
            return report.utc_s > self._start_utc_s
        return True

    def _note_offset(self, start: Start, offset_s: float) -> None:
        known = self._offsets_s.pop(start, None)
        self._offsets_s[start] = offset_s if known is None else min(known, offset_s)
        if len(self._offsets_s) > MAX_OLD_STARTS:
            self._offsets_s.popitem(last=False)

    def _note_clock(self, report: TelemetryReport, utc_s: float) -> None:
        """The quickest report tells most about the device's wall clock."""
        self.clock_trusted = report.clock_trusted
        skew_s = report.utc_s - utc_s
        if report.utc_s and (self.skew_s is None or skew_s > self.skew_s):
            self.skew_s = skew_s

    def _note_totals(self, report: TelemetryReport) -> None:
        """Totals and the box's figures, from the newest window, in whatever order the reports come."""
        for row in report.cameras.rows():
            known = self._totals.get(row.name)
            if row.frames_in[1] and (known is None or known[0] <= report.end_s):
                self._totals[row.name] = report.end_s, row
        while len(self._totals) > MAX_CAMERAS:
            self._totals.popitem(last=False)
        if report.box is not None and report.end_s >= self._box_end_s:
            self.box, self._box_end_s = report.box, report.end_s
