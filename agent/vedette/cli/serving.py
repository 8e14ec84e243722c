"""What `run` and `pipe` share: run a plan in the foreground, show how it goes, sum up at the end."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from vedette.clock import SystemClock
from vedette.errors import InternalError, UnavailableError, UsageError
from vedette.runtime.compose import build_agent
from vedette.runtime.daemon import Stopping
from vedette.telemetry.live import LiveStatus
from vedette.telemetry.summary import summarise, to_json

if TYPE_CHECKING:
    from pathlib import Path

    from vedette.cli.terminal import Terminal
    from vedette.runtime.compose import Agent
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.plan import RunPlan
    from vedette.telemetry.summary import RunSummary

STATUS_EVERY_S = 0.5
SEPARATOR = " · "


def serve(plan: RunPlan, terminal: Terminal, *, summary_to: Path | None = None) -> None:
    """Run until the inputs end or a signal comes.

    Raises:
        UsageError: Standard output is closed and results should go there.
        VedetteError: Why a camera or the model could not be served; the summary is shown before.
    """
    if plan.results_to is None and sys.stdout is None:
        raise UsageError(
            "standard output is closed, results are written there",
            cure="redirect it: `> results.jsonl`, or name a file in `results.to`",
        )
    clock = SystemClock()
    stopping = Stopping()
    stopping.on_signals()
    line = _StatusLine(terminal)
    daemon = build_agent(plan, stopping, say=terminal.say, on_tick=line.tick).daemon
    error = daemon.run()
    summary = summary_of(daemon, (clock.monotonic_ns() - daemon.started_ns) / 1e9)
    if stopping.reason:
        terminal.say(f"stopped: {stopping.reason}")
    terminal.summary(summary)
    if summary_to is not None:
        _write_summary(summary_to, summary)
    if error is not None:
        raise error
    if summary.imbalance:
        raise InternalError(f"frames are not accounted for: {summary.imbalance}")


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
        raise UnavailableError(f"cannot write the summary to {path}: {error.strerror}") from error


def summary_of(daemon: Daemon, duration_s: float) -> RunSummary:
    """The figures of a daemon that has ended."""
    ready = daemon.generation.ready
    return summarise(
        daemon.ledger.snapshot(),
        daemon.meter,
        duration_s=duration_s,
        model=None if ready is None else ready.model,
        engine=None if ready is None else ready.accelerator,
        worker_restarts=daemon.generation.restarts.total,
        source_restarts={camera.name: camera.restarts.total for camera in daemon.cameras},
        models=daemon.results.models.values(),
    )
