"""The link to the broker, put together from a plan: its connection, what waits on the disk, who reports."""

from __future__ import annotations

import random
import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import vedette
from vedette.api.door_messages import DOOR
from vedette.errors import ConfigError
from vedette.link.device_link import DeviceLink
from vedette.link.home_assistant import HomeAssistant
from vedette.link.link_thread import LinkThread
from vedette.link.outbox import Outbox
from vedette.link.parts import LinkIdentity, LinkParts, MomentClock
from vedette.link.reply_memory import ReplyMemory
from vedette.link.sqlite_file import SqliteFile
from vedette.mqtt.paho_connection import PahoConnection
from vedette.mqtt.port import BrokerOptions, TlsOptions
from vedette.runtime.commands import AgentCommands
from vedette.runtime.commands_diagnosis import Diagnosis
from vedette.runtime.commands_snapshot import Snapshots
from vedette.runtime.events import Happening
from vedette.runtime.events_observer import Observer
from vedette.runtime.events_updates import Custody, ReportedState, step_of
from vedette.runtime.figures import Figures
from vedette.runtime.paused_cameras import PausedCameras
from vedette.runtime.reporting import ReportThread
from vedette.runtime.reporting_duties import EventsDuty, LinkDuty, TelemetryDuty
from vedette.telemetry.report import Reporter
from vedette.trust.wall_clock import SystemWallClock
from vedette.update.box_facts import boot_id
from vedette.wire.plane import JSON_TYPE, MSGPACK_TYPE, ModelState
from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from vedette.config.link import MqttConfig
    from vedette.escalate.messages import EscalatorEvent
    from vedette.link.entries import Moment
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.linking_surroundings import Surroundings
    from vedette.runtime.plan import LinkPlan, RunPlan
    from vedette.runtime.ways import BlockWay
    from vedette.update.record import UpdateRecord
    from vedette.wire.messages import Result

FOLDER_NAME = "link"
MAX_PASSWORD_BYTES = 4096
# Of a broker's packet, what a reply needs beside its body: topic, properties, correlation, the reply's frame.
REPLY_OVERHEAD_BYTES = 2048
MAX_REPLY_BYTES = 1 << 20
_UNKNOWN_BOOT = "unknown"


class Linked(NamedTuple):
    """The link as the rest of the daemon sees it."""

    link: DeviceLink
    observer: Observer
    telemetry: TelemetryDuty

    def tick(self, daemon: Daemon, now_ns: int) -> None:
        """See what happened; on the supervisor's thread."""
        self.observer.tick(daemon, now_ns)


def topics_of(plan: LinkPlan) -> DeviceTopics:
    """The branch of this device.

    Raises:
        BadInputError: A name cannot be a level of a topic; a checked configuration has none such.
    """
    return DeviceTopics.of(plan.site, plan.device)


def join_link(plan: RunPlan, around: Surroundings, blocks: BlockWay | None) -> Linked:
    """Give the daemon its link, and the thread that reports over it.

    Args:
        plan: With a `link`.
        around: The daemon and what belongs to it.
        blocks: The way of updates that goes over this link, if one does.

    Raises:
        ConfigError: The password cannot be read.
    """
    mine = plan.link
    if mine is None:
        raise ConfigError("a link is wanted, and there is no `mqtt` section")
    return _Joining(plan, mine, around, blocks).joined()


def broker_options(mqtt: MqttConfig, device: str) -> BrokerOptions:
    """How to reach the broker, with the password that stands in its file.

    Raises:
        ConfigError: The file cannot be read.
    """
    tls = mqtt.tls
    return BrokerOptions(
        host=mqtt.host.strip("[]"),
        port=mqtt.effective_port,
        client_id=mqtt.client_id or device,
        username=mqtt.username or "",
        password=_password(mqtt),
        tls=None if tls is None else TlsOptions(tls.ca, tls.cert, tls.key, tls.server_name),
        keepalive_s=mqtt.keepalive_s,
    )


def _password(mqtt: MqttConfig) -> str:
    if mqtt.password_file is None:
        return mqtt.password or ""
    try:
        with Path(mqtt.password_file).open("rb") as file:
            content = file.read(MAX_PASSWORD_BYTES + 1)
        password = content.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"`mqtt.password_file`: {mqtt.password_file}: {reason}",
            cure="put the password into that file, readable by the agent alone",
        ) from error
    if not password or len(content) > MAX_PASSWORD_BYTES or "\n" in password:
        raise ConfigError(
            f"`mqtt.password_file`: {mqtt.password_file} does not hold one line with a password",
            cure="put the password into that file, and nothing else",
        )
    return password


def _tell_escalation(observer: Observer, event: EscalatorEvent) -> None:
    data = {"word": event.word, "detail": event.detail}
    observer.happened(Happening("escalation", event.word, data))


class _ResultTap:
    """Implements `results.Watcher`: offers answers to the link."""

    def __init__(self, link: DeviceLink) -> None:
        self._link = link

    def add(self, result: Result) -> None:
        """See Watcher. What somebody asked at the HTTP door is his affair."""
        if result.camera != DOOR:
            self._link.result(result)


class _Joining:
    """Puts everything together, once."""

    def __init__(self, plan: RunPlan, mine: LinkPlan, around: Surroundings, blocks: BlockWay | None) -> None:
        self._plan = plan
        self._mine = mine
        self._around = around
        self._blocks = blocks
        self._boot_id = boot_id() or _UNKNOWN_BOOT
        self._moments = MomentClock(self._boot_id, around.clock, SystemWallClock())
        self._draw = random.Random()  # noqa: S311 - jitter, not secrets
        self._topics = topics_of(mine)
        self._options = broker_options(mine.mqtt, mine.device)

    def joined(self) -> Linked:
        around = self._around
        paused = self._paused()
        state = ReportedState(
            around.updates, serving=self._serving, labels=self._mine.labels, now=self._now, clock=around.clock
        )
        link = self._link(state, paused)
        telemetry = self._telemetry(link)
        observer = Observer(link, wake=lambda: thread.wake(), say=around.log.say)  # noqa: PLW0108 - made below
        custody = self._follow_updates(link, observer)
        thread = ReportThread(
            [
                EventsDuty(observer, custody, state, link),
                telemetry,
                LinkDuty(link, around.log.say),
            ],
            daemon=around.daemon,
            desk=around.desk,
            clock=around.clock,
            ended=around.daemon.wake,
        )
        # In this order they end: what is told last must still find the link.
        around.daemon.companions += [thread, LinkThread(link, ended=around.daemon.wake)]
        if self._mine.mqtt.results.publish != "none":
            results = around.daemon.results
            results.outlets = (*results.outlets, _ResultTap(link))
        if around.daemon.escalator is not None:
            around.daemon.escalator.on_event = partial(_tell_escalation, observer)
        if self._blocks is not None:
            self._blocks.link = link
        return Linked(link, observer, telemetry)

    def _link(self, state: ReportedState, paused: PausedCameras) -> DeviceLink:
        mqtt, around = self._mine.mqtt, self._around
        file = SqliteFile(self._mine.state_dir / FOLDER_NAME, max_bytes=mqtt.outbox)
        options = self._options
        holder: list[DeviceLink] = []
        commands = AgentCommands(
            around.daemon,
            around.desk,
            clock=around.clock,
            log=around.log,
            complete=around.complete,
            room_bytes=lambda: _room_bytes(holder[0]),
            snapshots=Snapshots(around.daemon, around.desk, around.clock),
            diagnosis=Diagnosis(
                around.daemon,
                around.desk,
                log=around.log,
                config=self._plan.shown,
                complete=around.complete,
            ),
            paused=paused,
            updates=around.updates,
        )
        link = DeviceLink(
            LinkIdentity(
                topics=self._topics, agent=vedette.__version__, broker=f"{options.host}:{options.port}"
            ),
            LinkParts(
                connect=lambda subscriptions, will: PahoConnection(options, subscriptions, will),
                file=file,
                outbox=Outbox(file, max_bytes=mqtt.outbox, now=self._now),
                memory=ReplyMemory(file, now=self._now),
                state=state,
                commands=commands,
                announced=lambda _announcement: self._announced(),
                clock=around.clock,
                now=self._now,
                uniform=self._draw.uniform,
                new_session=lambda: secrets.token_hex(8),
                results=mqtt.results,
                home=self._home(),
                blocks=None if self._blocks is None else self._blocks.inbox,
            ),
        )
        holder.append(link)
        return link

    def _telemetry(self, link: DeviceLink) -> TelemetryDuty:
        around, settings = self._around, self._mine.telemetry
        window = around.daemon.window
        if window is None:
            raise ConfigError("telemetry is wanted, and nobody records latencies")
        updates = around.updates
        return TelemetryDuty(
            Reporter(
                window,
                device=self._mine.device,
                boot_id=self._boot_id,
                started_ns=around.daemon.started_ns,
                max_bytes=settings.max_report,
                content_type=JSON_TYPE if settings.format == "json" else MSGPACK_TYPE,
            ),
            Figures(around.clock, around.daemon, around.desk, around.complete),
            link,
            interval_s=settings.interval_s,
            first_s=self._draw.uniform(0.0, settings.interval_s),
            now=self._now,
            doubt=lambda: "" if updates is None else updates.clock_doubt,
            say=around.log.say,
            home=link.home_state if self._mine.mqtt.home_assistant else None,
        )

    def _follow_updates(self, link: DeviceLink, observer: Observer) -> Custody | None:
        updates = self._around.updates
        driver = None if updates is None else updates.driver
        if updates is None or driver is None:
            return None

        def moved(before: UpdateRecord, after: UpdateRecord) -> None:
            step = step_of(before, after)
            if step is not None:
                observer.happened(step)

        driver.moved = moved
        return Custody(
            driver.outbox,
            link,
            model=updates.model,
            uniform=self._draw.uniform,
            say=self._around.log.say,
        )

    def _home(self) -> HomeAssistant | None:
        if not self._mine.mqtt.home_assistant:
            return None
        cameras = [camera.name for camera in self._plan.cameras if camera.door is None]
        home = HomeAssistant(self._topics, agent=vedette.__version__, cameras=cameras)
        if self._topics.device not in home.discovery_topic.split("/"):  # access lists go by the device's name
            self._around.log.say(f"home assistant: this box is described on {home.discovery_topic}")
        return home

    def _paused(self) -> PausedCameras:
        """Cameras that somebody paused before this start stay so."""
        paused = PausedCameras(self._mine.state_dir / FOLDER_NAME)
        paused.read()
        if paused.fault:
            self._around.log.say(paused.fault)
        for camera in self._around.daemon.cameras:
            if camera.name in paused.names and camera.pausable:
                camera.pause()
                self._around.log.say(f"{camera.name}: paused, as the fleet asked before this start")
        return paused

    def _announced(self) -> None:
        driver = None if self._around.updates is None else self._around.updates.driver
        if driver is not None:
            driver.announce()

    def _serving(self) -> ModelState | None:
        generation = self._around.daemon.generation
        ready = generation.ready
        if ready is None:
            return None
        return ModelState(ready.model.name, ready.model.version, ready.model.sha256)

    def _now(self) -> Moment:
        return self._moments.now()


def _room_bytes(link: DeviceLink) -> int:
    """How large the body of a reply may be."""
    limits = link.limits
    packet_bytes = MAX_REPLY_BYTES if limits is None else min(MAX_REPLY_BYTES, limits.max_packet_bytes)
    return max(0, packet_bytes - REPLY_OVERHEAD_BYTES)
