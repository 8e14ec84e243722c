"""Everything that is counted and measured on this box, gathered for whoever reports it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from vedette.errors import UnavailableError
from vedette.telemetry.board_files import BoardReader
from vedette.telemetry.ledger import CameraCounts, LedgerSnapshot
from vedette.telemetry.metrics import MetricsSnapshot, metrics_snapshot
from vedette.telemetry.processes import ProcessReader
from vedette.telemetry.report import Gathered
from vedette.wire.telemetry import BoxFigures, EngineFigures, LinkFigures, ProcessFigures, UpdateFigures

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.messages import AgentStatus, CameraStatus
    from vedette.clock import Clock
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.status import StatusDesk
    from vedette.wire.messages import AcceleratorReport

    Pids = dict[str, int]

# What a report has room for.
WORD_LENGTH = 64
# A scrape waits no longer for a sensor that hangs; the rest of the figures does not depend on it.
BOARD_WITHIN_S = 0.5
_SOURCE = "source "


class Seen(NamedTuple):
    """One look: how everything stands, and the processes."""

    status: AgentStatus
    pids: Pids


class Figures:
    """One reader of them; whoever wants rates of its own has an own one. One thread at a time."""

    def __init__(
        self,
        clock: Clock,
        daemon: Daemon,
        desk: StatusDesk,
        complete: Callable[[AgentStatus], AgentStatus],
    ) -> None:
        """Prepare to read.

        Args:
            clock: The monotonic one.
            daemon: Whose figures.
            desk: Where the supervisor is asked.
            complete: Adds what others than the daemon know to its status.
        """
        self._clock = clock
        self._daemon = daemon
        self._desk = desk
        self._complete = complete
        self._processes = ProcessReader()
        self._board = BoardReader(clock)

    def gather(self) -> Gathered:
        """Everything but latencies.

        Raises:
            UnavailableError: The supervisor did not answer in time.
        """
        return self.gathered(self._desk.look(self._daemon, self.look))

    def look(self, daemon: Daemon, now_ns: int) -> Seen:
        """What the supervisor knows; on its thread."""
        return Seen(self._desk.describe(daemon, now_ns), process_ids(daemon))

    def gathered(self, seen: Seen) -> Gathered:
        """All that is to be known at a look."""
        status = self._complete(seen.status)
        found = self._processes.read(seen.pids)
        cut = len(_SOURCE)
        return Gathered(
            ledger=LedgerSnapshot({camera.camera: _counts(camera) for camera in status.cameras}),
            box=self._box(status, {role: own for role, own in found.items() if not role.startswith(_SOURCE)}),
            in_flight={camera.camera: camera.in_flight for camera in status.cameras},
            source_restarts={camera.camera: camera.source_restarts for camera in status.cameras},
            reuse={
                camera.camera: (camera.reused, camera.checks, camera.checks_wrong)
                for camera in status.cameras
            },
            sources={role[cut:]: own for role, own in found.items() if role.startswith(_SOURCE)},
        )

    def snapshot(self) -> MetricsSnapshot:
        """Everything since the start.

        Raises:
            UnavailableError: The supervisor did not answer in time, or nobody records latencies.
        """
        if self._daemon.window is None:
            raise UnavailableError(
                "this agent records no figures", cure="add an `http` or `mqtt` section to its configuration"
            )
        gathered = self.gather()
        return metrics_snapshot(self._daemon.window.since_start(self._clock.monotonic_ns()), gathered)

    def _box(self, status: AgentStatus, processes: dict[str, ProcessFigures]) -> BoxFigures:
        return BoxFigures(
            agent=status.agent[:WORD_LENGTH],
            engine=None if status.engine is None else _engine(status.engine),
            worker_restarts=status.worker_restarts,
            processes=processes,
            board=self._board.read(BOARD_WITHIN_S),
            update=_update(status),
            link=_link(status),
            escalation=None if status.escalation is None else status.escalation.figures,
        )


def process_ids(daemon: Daemon) -> Pids:
    """Every process of this agent by its role; sources are `source CAMERA`. On the supervisor's thread."""
    pids = {"daemon": os.getpid()}
    if daemon.generation.worker is not None:
        pids["worker"] = daemon.generation.worker.child.pid
    for number, worker in enumerate(daemon.swap.others, 2):
        pids[f"worker {number}"] = worker.child.pid
    if daemon.escalator is not None and daemon.escalator.child is not None:
        pids["escalation"] = daemon.escalator.child.pid
    for camera in daemon.cameras:
        if camera.child is not None:
            pids[_SOURCE + camera.name] = camera.child.pid
    return pids


def _counts(camera: CameraStatus) -> CameraCounts:
    return CameraCounts(camera.frames_in, camera.ok, camera.dropped, camera.failed)


def _engine(report: AcceleratorReport) -> EngineFigures:
    return EngineFigures(
        runtime=report.runtime[:WORD_LENGTH],
        effective=report.effective[:WORD_LENGTH],
        degraded=report.degraded,
        threads=report.threads,
        load_ms=report.load_ms,
    )


def _update(status: AgentStatus) -> UpdateFigures | None:
    update = status.update
    if update is None:
        return None
    return UpdateFigures(
        phase=update.phase.value,
        rollout="" if update.candidate is None else update.candidate.rollout[:WORD_LENGTH],
        bytes_fetched=update.bytes_fetched,
        bytes_needed=update.bytes_needed,
    )


def _link(status: AgentStatus) -> LinkFigures | None:
    link = status.link
    if link is None:
        return None
    return LinkFigures(
        connects=link.connects,
        waiting_events=link.waiting_events,
        waiting_reports=link.waiting_reports,
        dropped_reports=link.dropped_reports,
        dropped_results=link.dropped_results,
        bad_messages=sum(link.bad_messages.values()),
    )
