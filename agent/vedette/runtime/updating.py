"""Updates in the daemon: the update thread, put together from a plan, and what is asked of it."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from vedette.clock import SystemClock
from vedette.errors import BadInputError, StorageError, UnavailableError
from vedette.runtime.log import Level, LogLine
from vedette.runtime.narration import Narrator, short_text
from vedette.runtime.queue_watch import QueueWatch
from vedette.runtime.release_names import ReleaseNames
from vedette.runtime.roads import Roads
from vedette.trust.wall_clock import SystemWallClock
from vedette.update.box_facts import read_box
from vedette.update.driver import UpdateDriver
from vedette.update.driver_parts import DriverParts, DriverPorts
from vedette.update.plan import parse_window
from vedette.update.settings import UpdateSettings
from vedette.update.space import DiskSpace
from vedette.update.startup import STATE_NAME, OpenedState, open_state
from vedette.update.store import Store
from vedette.update.update_thread import UpdateThread
from vedette.update.veto import thermal_veto
from vedette.wire.plane import ModelState

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.messages import AgentStatus
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.plan import RunPlan, UpdatePlan
    from vedette.runtime.ways import BlockWay
    from vedette.telemetry.ledger import CameraCounts

FIRST_LOOK_S = 60.0
ANSWER_WITHIN_S = 20.0
METADATA_NAME = "metadata"


class Updates:
    """Updates as the rest of the daemon sees them; without a thread `reason` says why there are none."""

    def __init__(
        self,
        roads: Roads,
        thread: UpdateThread | None,
        names: ReleaseNames | None,
        reason: str,
        watch: QueueWatch | None = None,
    ) -> None:
        self._roads = roads
        self._watch = watch
        self._thread = thread
        self._names = names
        self._reason = reason
        self._narrator = Narrator(lambda sha256: sha256 if names is None else names.of(sha256))
        self._reason_said = False
        self._fault_said = ""

    def tick(self, now_ns: int, say: Callable[[str], None]) -> None:
        """Say what is new; on the supervisor's thread, `now_ns` is monotonic."""
        if self._watch is not None:
            self._watch.tick(now_ns)
        if self._thread is not None:
            update = self._thread.driver.snapshot()
            if self._names is not None:
                self._names.learn(update)
            for line in self._narrator.follow(update, now_ns):
                say(line)
            fault = self._roads.log.fault
            if fault and fault != self._fault_said:
                say(LogLine(Level.WARNING, f"update: the look for updates failed: {fault}"))
            self._fault_said = fault
        elif not self._reason_said:
            self._reason_said = True
            say(LogLine(Level.ERROR, f"update: none can be had: {self._reason}"))

    def short_text(self) -> str:
        """For the status line; empty while nothing goes on."""
        return "" if self._thread is None else short_text(self._thread.driver.snapshot())

    def complete(self, status: AgentStatus) -> AgentStatus:
        """The agent's status with what is known of updates."""
        if self._thread is None or self._names is None:
            return replace(status, no_update=self._reason)
        update = self._thread.driver.snapshot()
        return replace(
            status,
            update=update,
            releases=self._names.of_all(update),
            look_fault=self._roads.log.fault,
            clock_doubt=self._roads.log.clock_doubt,
        )

    @property
    def driver(self) -> UpdateDriver | None:
        """Who does it; None when there can be none."""
        return None if self._thread is None else self._thread.driver

    def model(self, sha256: str) -> ModelState:
        """A bundle with its name and version, as far as they are known here."""
        return ModelState("", "", sha256) if self._names is None else self._names.model(sha256)

    @property
    def look_fault(self) -> str:
        """Why the last look failed, or why there can be no updates at all."""
        return self._reason or self._roads.log.fault

    @property
    def clock_doubt(self) -> str:
        """Why the last look did not believe the clock."""
        return self._roads.log.clock_doubt

    def check(self) -> str:
        """Look for updates now; what became of what was found.

        Raises:
            BadInputError: What was found was refused.
            UnavailableError: There can be none, or the repository is away.
        """
        try:
            return self._driver().check().result(ANSWER_WITHIN_S)
        except FutureTimeoutError:
            return f"no answer within {ANSWER_WITHIN_S:.0f} s; it goes on, watch `vedette-agent status`"

    def abort(self) -> str:
        """Stop the update under way; the machine's word for it.

        Raises:
            UnavailableError: There can be none, or it is too busy to say.
        """
        try:
            return self._driver().abort().result(ANSWER_WITHIN_S)
        except FutureTimeoutError as error:
            raise UnavailableError(
                f"no answer within {ANSWER_WITHIN_S:.0f} s; it is taken up when the step under way allows",
                cure="watch `vedette-agent status`",
            ) from error

    def import_folder(self, folder: str) -> str:
        """Look in a folder, once; what was found there.

        Raises:
            BadInputError: It holds no repository, or what it holds was refused.
            UnavailableError: There can be no updates, or the folder cannot be read.
        """
        path = Path(folder)
        if not (path / METADATA_NAME).is_dir():
            raise BadInputError(
                f"{folder} holds no update repository",
                cure=f"give the folder that has {METADATA_NAME}/, targets/ and blobs/ in it",
            )
        try:
            return self._driver().import_from(self._roads.folder(path)).result(ANSWER_WITHIN_S)
        except FutureTimeoutError:
            return (
                f"no answer within {ANSWER_WITHIN_S:.0f} s: a look or a step of an update goes first; watch "
                "`vedette-agent status`"
            )

    def _driver(self) -> UpdateDriver:
        if self._thread is None:
            raise UnavailableError(
                f"no updates: {self._reason}", cure="repair that, then start the agent anew"
            )
        return self._thread.driver


class OpenedUpdates(NamedTuple):
    """What was found on the disk; without `opened` there can be no updates, for `reason`."""

    plan: UpdatePlan
    roads: Roads
    first_bundle: Path | None
    opened: OpenedState | None
    reason: str = ""

    def join(self, plan: RunPlan, daemon: Daemon) -> Updates:
        """Give the daemon its update thread."""
        if self.opened is None:
            return Updates(self.roads, None, None, self.reason)
        watch = _watch_queues(daemon)
        driver = _build_driver(plan, self.plan, self.opened, self.roads, daemon, watch)
        thread = UpdateThread(driver, ended=daemon.wake)
        daemon.companions.append(thread)
        return Updates(self.roads, thread, ReleaseNames(self.opened), "", watch)


def open_updates(plan: UpdatePlan, factory: Path, blocks: BlockWay | None = None) -> OpenedUpdates:
    """Read what the disk knows; a disk that fails does not keep the box from serving what it has.

    `blocks` is the way by MQTT, where there is one.

    Raises:
        ConfigError: The repository's URL is none.
        UnavailableError: Another agent uses the state folder.
    """
    # Files of bundles are opened below real paths only, so that no link leads out of one.
    factory = factory.resolve()
    plan = replace(plan, state_dir=plan.state_dir.resolve())
    roads = Roads(plan, plan.state_dir / STATE_NAME, blocks)
    try:
        plan.state_dir.mkdir(parents=True, exist_ok=True)
        opened = open_state(plan.state_dir, plan.model, factory=factory)
    except StorageError as error:
        reason = error.cause
    except OSError as error:
        reason = f"{plan.state_dir}: {error.strerror}"
    else:
        return OpenedUpdates(plan, roads, opened.first_bundle, opened)
    return OpenedUpdates(plan, roads, _best_proven(plan, factory), None, reason)


def _best_proven(plan: UpdatePlan, factory: Path) -> Path:
    try:
        return next(Store(plan.state_dir, factory=factory).fallbacks(plan.model), factory)
    except StorageError:
        return factory


def _watch_queues(daemon: Daemon) -> QueueWatch:
    def counts_of_live() -> dict[str, CameraCounts]:
        counts = daemon.ledger.snapshot().cameras
        return {camera.name: counts[camera.name] for camera in daemon.cameras if camera.live}

    return QueueWatch(counts_of_live)


def _build_driver(  # noqa: PLR0917 - what a daemon brings along
    plan: RunPlan,
    update: UpdatePlan,
    opened: OpenedState,
    roads: Roads,
    daemon: Daemon,
    watch: QueueWatch,
) -> UpdateDriver:
    """The driver over the real world and the daemon's live model."""
    hot = thermal_veto()

    def production() -> str | None:
        ready = daemon.generation.ready
        return None if ready is None else ready.accelerator.effective

    ports = DriverPorts(
        road=roads.usual(),
        live=daemon.live,
        worker=plan.worker,
        box=read_box(accelerators=plan.worker.accelerators, plugins=plan.worker.plugins),
        clock=SystemClock(),
        wall=SystemWallClock(),
        settings=UpdateSettings(
            poll_s=update.poll_s,
            first_look_s=min(update.poll_s, FIRST_LOOK_S),
            window=None if update.window is None else parse_window(update.window),
            load_timeout_s=plan.load_timeout_s,
        ),
        veto=lambda: hot()._replace(queue_full=watch.overloaded()),
        production=production,
        reach=roads.reaches_server,
        space=DiskSpace(update.state_dir, reserve_bytes=update.reserve_bytes),
        interruption=roads.interruption,
        linked=plan.link is not None,
    )
    return UpdateDriver(DriverParts(opened, ports))
