"""What the thread `report` looks after: windows of figures, what happened, updates, and the link itself."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from vedette.errors import StorageError, UnavailableError
from vedette.link.home_assistant import CameraState, HomeState
from vedette.runtime.log import Level, LogLine
from vedette.telemetry.report import Moment, Reporter
from vedette.telemetry.sketch import Sketch
from vedette.wire.causes import AS_CONFIGURED
from vedette.wire.telemetry import STAGES, TelemetryReport, decode_report, pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.link.entries import Moment as LinkMoment
    from vedette.link.port import Link, LinkStatus
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.events_observer import Observer
    from vedette.runtime.events_updates import Custody, ReportedState
    from vedette.runtime.figures import Figures, Seen
    from vedette.telemetry.report import Gathered

_TOTAL = STAGES.index("total")


class TelemetryDuty:
    """A report of each window. What cannot be kept is in the next one."""

    def __init__(
        self,
        reporter: Reporter,
        figures: Figures,
        link: Link,
        *,
        interval_s: float,
        first_s: float,
        now: Callable[[], LinkMoment],
        doubt: Callable[[], str],
        say: Callable[[str], None],
        home: Callable[[HomeState], object] | None = None,
    ) -> None:
        """Prepare to report.

        Args:
            reporter: Makes the messages.
            figures: Reads everything that is no latency.
            link: Where they go.
            interval_s: Between two reports.
            first_s: Until the first; boxes that started together must not report together for ever.
            now: Both clocks.
            doubt: Why the wall clock is not to be believed, as signed metadata shows; empty when it is.
            say: For people.
            home: Shows the figures in Home Assistant, where that is wanted.
        """
        self._reporter = reporter
        self._figures = figures
        self._link = link
        self._interval_ns = round(interval_s * 1e9)
        self._first_ns = round(first_s * 1e9)
        self._due_ns: int | None = None
        self._now = now
        self._doubt = doubt
        self._say = say
        self._home = home
        self._last: Seen | None = None
        self._fault = ""

    def report_every(self, interval_s: float) -> None:
        """Another interval, from the next report on; any thread."""
        self._interval_ns = round(interval_s * 1e9)

    def turn(self, now_ns: int) -> None:
        """Report when it is time to; one interval after the other, without catching up."""
        if self._due_ns is None:
            self._due_ns = now_ns + self._first_ns
        if now_ns < self._due_ns:
            return
        late = (now_ns - self._due_ns) // self._interval_ns
        self._due_ns += (late + 1) * self._interval_ns
        try:
            gathered = self._figures.gather()
        except UnavailableError as error:  # the supervisor is busy; the window goes on
            self._failed(error.cause)
            return
        self._report(gathered, now_ns)

    def last_look(self, daemon: Daemon, now_ns: int) -> None:
        """See Duty."""
        self._last = self._figures.look(daemon, now_ns)

    def finish(self, now_ns: int) -> None:
        """What is left of the window; the next start of the agent sends it."""
        if self._last is not None:
            self._report(self._figures.gathered(self._last), now_ns)

    def _report(self, gathered: Gathered, now_ns: int) -> None:
        moment = self._now()
        trusted = moment.utc_trusted and not self._doubt()
        kept: list[tuple[bytes, str]] = []

        def keep(payload: bytes, content_type: str) -> None:
            self._link.telemetry(payload, content_type)
            kept.append((payload, content_type))

        try:
            count = self._reporter.report(Moment(now_ns, moment.utc_s, trusted), gathered, keep)
        except StorageError as error:
            self._failed(error.cause)
            return
        self._fault = ""
        self._say(
            LogLine(Level.DEBUG, f"telemetry: {count} messages, {sum(len(own) for own, _ in kept)} bytes")
        )
        if self._home is not None:
            reports = [decode_report(payload, content_type) for payload, content_type in kept]
            self._home(home_state(reports))

    def _failed(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            self._say(LogLine(Level.WARNING, f"telemetry waits: {fault}"))


def home_state(reports: Sequence[TelemetryReport]) -> HomeState:
    """The figures of one window for a dashboard."""
    totals = Sketch()
    cameras: dict[str, CameraState] = {}
    temperatures: list[float] = []
    for report in reports:
        window_s = report.end_s - report.start_s
        for camera, series in pieces_of(report):
            own = Sketch.merged(Sketch.of(entry.stages[_TOTAL]) for entry in series)
            totals.merge(own)
            if camera.frames_in[1] or camera.name not in cameras:
                fps = camera.ok[0] / window_s if window_s > 0 else 0.0
                drops = sum(count[1] for cause, count in camera.dropped.items() if cause not in AS_CONFIGURED)
                p95_ms = own.quantile(0.95)
                cameras[camera.name] = CameraState(camera.frames_in[0] > 0, fps, p95_ms, drops)
        if report.box is not None and report.box.board is not None:
            temperatures += report.box.board.temperatures_c.values()
    return HomeState(
        fps=sum(camera.fps for camera in cameras.values()),
        drops=sum(camera.drops for camera in cameras.values()),
        latency_p95_ms=totals.quantile(0.95),
        temperature_c=max(temperatures, default=None),
        cameras=cameras,
    )


class EventsDuty:
    """What happened to the data plane, and to updates."""

    def __init__(self, observer: Observer, custody: Custody | None, state: ReportedState, link: Link) -> None:
        self._observer = observer
        self._custody = custody
        self._state = state
        self._link = link

    def turn(self, now_ns: int) -> None:
        """See Duty."""
        self._observer.tell(now_ns)
        if self._custody is not None:
            self._custody.turn(now_ns)
        self._state.turn(self._link, now_ns)

    def last_look(self, daemon: Daemon, now_ns: int) -> None:
        """See Duty."""
        del now_ns
        self._observer.look(daemon)

    def finish(self, now_ns: int) -> None:
        """See Duty."""
        self._observer.finish(now_ns)
        if self._custody is not None:
            with contextlib.suppress(StorageError):  # it waits on the disk for the next start
                self._custody.hand_over()


class LinkWords:
    """Says when the broker comes and goes; follows `LinkStatus`. Pure."""

    def __init__(self) -> None:
        self._connects = 0
        self._connected = False
        self._loss = ""
        self._old_protocol = False

    def follow(self, status: LinkStatus) -> list[str]:
        """The lines that are due; a cause that comes again and again is said once."""
        lines: list[str] = []
        if status.connected and (not self._connected or status.connects != self._connects):
            version = "5" if status.protocol >= 5 else "3.1.1"
            lines.append(f"mqtt: connected to {status.broker}, MQTT {version}")
            if status.protocol < 5 and not self._old_protocol:
                self._old_protocol = True
                text = (
                    f"mqtt: {status.broker} speaks MQTT 3.1.1 only: old messages do not expire there, it "
                    "gives no reason for what it refuses, and answers to commands go to our own topics"
                )
                lines.append(LogLine(Level.WARNING, text))
            self._loss = ""
        elif not status.connected and status.last_loss and _kind(status.last_loss) != _kind(self._loss):
            self._loss = status.last_loss
            lines.append(
                LogLine(Level.WARNING, f"mqtt: no connection to {status.broker}: {status.last_loss}")
            )
        self._connected, self._connects = status.connected, status.connects
        return lines


def _kind(loss: str) -> str:
    return loss.partition(":")[0]


class LinkDuty:
    """What people are told of the link."""

    def __init__(self, link: Link, say: Callable[[str], None]) -> None:
        self._link = link
        self._say = say
        self._words = LinkWords()

    def turn(self, now_ns: int) -> None:
        """See Duty."""
        del now_ns
        for line in self._words.follow(self._link.status()):
            self._say(line)

    def last_look(self, daemon: Daemon, now_ns: int) -> None:
        """See Duty."""

    def finish(self, now_ns: int) -> None:
        """See Duty."""
