"""What `run` and `pipe` share: run a plan in the foreground, show how it goes, sum up at the end."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from vedette.clock import SystemClock
from vedette.errors import InternalError, UnavailableError, UsageError
from vedette.runtime.compose import build_agent
from vedette.runtime.daemon import Stopping
from vedette.runtime.escalation_status import describe_escalation
from vedette.runtime.events import Happening
from vedette.runtime.reload import Reloader
from vedette.runtime.sd_notify import ServiceManager
from vedette.runtime.service import Service
from vedette.runtime.sinks import SinkClosedError
from vedette.telemetry.live import LiveStatus
from vedette.telemetry.summary import summarise, to_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.cli.terminal import Terminal
    from vedette.errors import VedetteError
    from vedette.runtime.compose import Agent
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.plan import RunPlan
    from vedette.telemetry.summary import RunSummary

STATUS_EVERY_S = 0.5
SEPARATOR = " · "


def serve(
    plan: RunPlan,
    terminal: Terminal,
    *,
    summary_to: Path | None = None,
    reader_may_leave: bool = False,
    reread: Callable[[], RunPlan] | None = None,
) -> None:
    """Run until the inputs end or a signal comes.

    Args:
        plan: What to run.
        terminal: Where remarks and the summary go.
        summary_to: Where the summary goes as JSON.
        reread: Reads the configuration anew, on SIGHUP; without it the signal ends the process.
        reader_may_leave: A consumer that closes its pipe has seen enough; else that is an error.

    Raises:
        UsageError: Standard output is closed and results should go there, or the summary has no place.
        VedetteError: Why a camera or the model could not be served, or results were lost; the summary is
            shown before.
    """
    if plan.results_to is None and sys.stdout is None:
        raise UsageError(
            "standard output is closed, results are written there",
            cure="redirect it: `> results.jsonl`, or name a file in `results.to`",
        )
    check_summary_path(summary_to)
    stopping = Stopping()
    stopping.on_signals()
    looker = _Looker(terminal, plan, stopping, reread)
    try:
        daemon = build_agent(plan, stopping, say=terminal.say, on_tick=looker.tick).daemon
    except UnavailableError:
        if not stopping.event.is_set():
            raise
        terminal.say(f"stopped: {stopping.reason}")
        return
    daemon.companions.insert(0, looker.service)  # the first to be told of the end
    error = _outcome(daemon, daemon.run(), terminal, reader_may_leave=reader_may_leave)
    _sum_up(daemon, error, terminal, stopping.reason, summary_to)


def _sum_up(
    daemon: Daemon, error: VedetteError | None, terminal: Terminal, reason: str, summary_to: Path | None
) -> None:
    """Show how it went.

    Raises:
        VedetteError: `error`, or frames that are not accounted for.
    """
    summary = summary_of(daemon, time.monotonic_ns())
    if reason:
        terminal.say(f"stopped: {reason}")
    # Tables of nothing would only stand before the error that says why there was nothing.
    if any(camera.frames_in for camera in summary.cameras) or (error is None and summary.engine is not None):
        terminal.summary(summary)
    if summary_to is not None:
        _write_summary(summary_to, summary)
    if error is not None:
        raise error
    if summary.imbalance:
        raise InternalError(f"frames are not accounted for: {summary.imbalance}")


def _outcome(
    daemon: Daemon, error: VedetteError | None, terminal: Terminal, *, reader_may_leave: bool
) -> VedetteError | None:
    """What the exit code tells: a loss of results says how many, and a reader may have left on purpose."""
    lost = daemon.results.sink_error
    if lost is None or error is not lost:
        return error
    count = daemon.results.undelivered
    words = f"{count:,} answer{' was' if count == 1 else 's were'} not delivered"
    if isinstance(lost, SinkClosedError) and reader_may_leave:
        terminal.say(f"{lost.cause}; {words}")
        return None
    return UnavailableError(f"{lost.cause}; {words}", cure=lost.cure)


def check_summary_path(path: Path | None) -> None:
    """Refuse a place where no summary could be written, before anything runs.

    Raises:
        UsageError: Its folder is missing or may not be written to, or it is a folder.
    """
    if path is None:
        return
    if path.is_dir():
        fault = "it is a folder"
    elif not path.parent.is_dir():
        fault = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        fault = "no right to write there"
    else:
        return
    raise UsageError(f"cannot write the summary to {path}: {fault}", cure="give another --summary-json")


class _Looker:
    """What is done at each tick: the service manager is told, the status line drawn, a reload carried on."""

    def __init__(
        self,
        terminal: Terminal,
        plan: RunPlan,
        stopping: Stopping,
        reread: Callable[[], RunPlan] | None,
    ) -> None:
        self._terminal = terminal
        self._line = _StatusLine(terminal)
        self.service = Service(ServiceManager(os.environ), SystemClock())
        self._told: list[str] = []
        self._reloader: Reloader | None = None
        if reread is not None and not os.isatty(0):  # on a terminal SIGHUP says that it is gone
            begins, ended = self.service.reloads, self._told.append
            reloader = Reloader(plan, reread, begins=begins, ended=ended, wake=stopping.poke)
            self._reloader = reloader

            def hung_up(_number: int, _frame: object) -> None:
                reloader.ask()
                stopping.poke()

            signal.signal(signal.SIGHUP, hung_up)

    def tick(self, agent: Agent) -> None:
        """Look at everything; on the supervisor's thread."""
        self.service.tick(agent.daemon)
        self._line.tick(agent)
        if self._reloader is not None:
            self._reloader.tick(agent.daemon, interval=partial(_report_every, agent))
        while self._told:
            self._reloaded(agent, self._told.pop(0))

    def _reloaded(self, agent: Agent, words: str) -> None:
        self._terminal.say(words)
        self.service.reloaded(words.splitlines()[0])
        if agent.linked is not None:
            agent.linked.observer.happened(Happening("reload", "", {"said": words[:1000]}))


def _report_every(agent: Agent, interval_s: float) -> None:
    if agent.linked is not None:
        agent.linked.telemetry.report_every(interval_s)


class _StatusLine:
    """Keeps one line on the terminal up to date while somebody looks."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live: LiveStatus | None = None
        self._shown_ns = 0

    def tick(self, agent: Agent) -> None:
        """Show how it goes, now and then."""
        now_ns = time.monotonic_ns()
        if not self._terminal.interactive or now_ns - self._shown_ns < STATUS_EVERY_S * 1e9:
            return
        self._shown_ns = now_ns
        if self._live is None:
            self._live = LiveStatus(agent.daemon.meter, now_ns)
            return
        agent.daemon.observe_rings()
        update = "" if agent.updates is None else agent.updates.short_text()
        room = self._terminal.columns - (len(update) + len(SEPARATOR) if update else 0)
        line = self._live.line(now_ns, agent.daemon.ledger.snapshot(), room)
        self._terminal.status(f"{line}{SEPARATOR}{update}" if update else line)


def _write_summary(path: Path, summary: RunSummary) -> None:
    try:
        path.write_bytes(to_json(summary) + b"\n")
    except OSError as error:
        raise UnavailableError(
            f"cannot write the summary to {path}: {error.strerror}",
            cure="make room, or give another --summary-json; the results themselves are out",
        ) from error


def summary_of(daemon: Daemon, now_ns: int) -> RunSummary:
    """The figures of a daemon that has ended."""
    ready = daemon.generation.ready
    asked = describe_escalation(daemon)
    return summarise(
        daemon.ledger.snapshot(),
        daemon.meter,
        duration_s=(now_ns - daemon.started_ns) / 1e9,
        model=None if ready is None else ready.model,
        engine=None if ready is None else ready.accelerator,
        worker_restarts=daemon.generation.restarts.total,
        source_restarts={camera.name: camera.restarts.total for camera in daemon.cameras},
        models=daemon.results.models.values(),
        active_s={camera.name: daemon.active_s(camera, now_ns) for camera in daemon.cameras},
        escalation=None if asked is None else asked.figures,
    )
