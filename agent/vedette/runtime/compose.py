"""The composition root: from a checked configuration, or the `pipe` command's options, to a running daemon.

Reading it tells every process, thread and queue there is:

- this process: the supervisor (main thread) and the results thread; between them a bounded command queue;
- where they are configured, the `update` thread with its mailbox (`update.mailbox` bounds it), beside it for
  as long as it takes one look (`update-look`) and one question whether the server answers (`update-reach`);
  and the `control` thread, which answers one client of the control socket at a time;
- with a broker, the `link` thread, which alone sends and receives, `mqtt` below it on the socket,
  `link-commands`, which carries out one command of the fleet at a time, and `report`, which tells the fleet
  what is measured and what happened; what waits is on the disk (`link.outbox` bounds it);
- one source child per camera, of which the HTTP door is one, one engine worker child, during an update a
  second one; between source and worker the camera's frame ring, between every child and this process datagram
  sockets whose kernel buffers are the bound, and for the door's answers `door_sink` with a bound of its own;
- with a large model, the asking child, which takes cases from the worker by a ring of their own;
- during an update, one at a time, a child that makes files or tries a candidate.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from vedette.api.control import ControlServer
from vedette.api.door_messages import DoorSpec
from vedette.clock import SystemClock
from vedette.engine.messages import WorkerSpec
from vedette.engine.port import OnFallback
from vedette.engine.threads import granted_threads
from vedette.errors import ConfigError, UnavailableError
from vedette.gate.reuse_rules import ReuseRules
from vedette.runtime.answers import Answers
from vedette.runtime.daemon import Daemon
from vedette.runtime.linking_surroundings import Surroundings
from vedette.runtime.log import Level, Log, LogLine
from vedette.runtime.plan import (
    CameraPlan,
    EscalationPlan,
    LinkPlan,
    RestartPolicy,
    RunPlan,
    UpdatePlan,
    door_plan,
)
from vedette.runtime.public_config import public_config
from vedette.runtime.sinks import LineSink
from vedette.runtime.status import StatusDesk
from vedette.runtime.ways import BlockWay
from vedette.source.port import SourceSpec
from vedette.wire.pixels import ColorMatrix, ColorRange, PixelFormat
from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.api.messages import AgentStatus
    from vedette.clock import Clock
    from vedette.config.agent import AgentConfig, EngineConfig
    from vedette.config.camera import CameraConfig
    from vedette.runtime.daemon import Stopping
    from vedette.runtime.linking import Linked
    from vedette.runtime.updating import OpenedUpdates, Updates

STDOUT_FD = 1


def plan_from_config(config: AgentConfig) -> RunPlan:
    """What a configuration file asks for."""
    engine = config.engine
    return RunPlan(
        worker=worker_spec(engine, Path(config.model.factory), state_dir=config.state_dir),
        cameras=(
            *(camera_plan(name, camera) for name, camera in config.cameras.items()),
            *_doors(config),
        ),
        restart=RestartPolicy(
            engine.restart.window_s,
            engine.restart.budget,
            engine.restart.backoff_min_s,
            engine.restart.backoff_max_s,
        ),
        ring_memory_bytes=int(config.limits.ring_memory),
        load_timeout_s=engine.load_timeout_s,
        hang_timeout_s=engine.hang_timeout_s,
        results_to=None if config.results.to == "stdout" else Path(config.results.to),
        outlives_model=config.update is not None,
        device=config.device.id,
        # A socket's path may have 107 bytes; a detour over `..` must not cost any.
        control_socket=None if config.control_socket is None else config.control_socket.resolve(),
        update=update_plan(config),
        link=link_plan(config),
        escalation=escalation_plan(config),
        shown=public_config(config),
    )


def link_plan(config: AgentConfig) -> LinkPlan | None:
    """The broker, if there is one; a checked configuration has a state folder beside it."""
    if config.mqtt is None or config.state_dir is None:
        return None
    return LinkPlan(
        mqtt=config.mqtt,
        telemetry=config.telemetry,
        state_dir=Path(config.state_dir).resolve(),
        device=config.device.id,
        site=config.device.site,
        labels=config.device.labels,
    )


def escalation_plan(config: AgentConfig) -> EscalationPlan | None:
    """The large model, if there is one."""
    if config.escalation is None:
        return None
    return EscalationPlan(
        config=config.escalation,
        state_dir="" if config.state_dir is None else str(Path(config.state_dir).resolve()),
        device=config.device.id,
        site=config.device.site or "",
    )


def _doors(config: AgentConfig) -> tuple[CameraPlan, ...]:
    """The HTTP door, if one is configured; a checked configuration has the socket that it asks at."""
    http, control = config.http, config.control_socket
    if http is None or control is None:
        return ()
    spec = DoorSpec(
        listen=http.listen,
        control_socket=str(control.resolve()),
        slot_bytes=http.max_picture,
        slots=http.waiting,
        request_timeout_s=http.request_timeout_s,
    )
    return (door_plan(spec),)


def update_plan(config: AgentConfig) -> UpdatePlan | None:
    """Where models come from, if from anywhere; a checked configuration has all that it takes."""
    update = config.update
    if update is None or config.state_dir is None or config.model.name is None:
        return None
    site = {} if config.device.site is None else {"site": config.device.site}
    return UpdatePlan(
        repository=update.metadata or "",
        via=update.via,
        root=Path(update.root),
        state_dir=Path(config.state_dir),
        model=config.model.name,
        device_id=config.device.id,
        labels={**site, **config.device.labels},
        window=update.window,
        poll_s=update.poll_s,
        reserve_bytes=int(update.reserve),
    )


def worker_spec(engine: EngineConfig, bundle: Path, *, state_dir: str | None) -> WorkerSpec:
    """How the engine worker loads the model; engine caches live in the state folder, if there is one."""
    return WorkerSpec(
        bundle=str(bundle),
        accelerators=engine.accelerators,
        on_fallback=OnFallback(engine.on_fallback),
        threads=granted_threads(engine.threads),
        cache_dir=None if state_dir is None else str(Path(state_dir) / "engine-cache"),
        options=engine.options,
        plugins=engine.plugins,
    )


def camera_plan(name: str, camera: CameraConfig) -> CameraPlan:
    """One camera of the configuration."""
    width, height = (0, 0) if camera.size is None else (camera.size.width, camera.size.height)
    return CameraPlan(
        SourceSpec(
            camera=name,
            input="-" if camera.reads_stdin else camera.input,
            container=camera.format or "",
            width=width,
            height=height,
            pixel=None if camera.pix_fmt is None else PixelFormat(camera.pix_fmt),
            strides=camera.strides,
            padded_height=camera.padded_height or 0,
            matrix=None if camera.matrix is None else ColorMatrix(camera.matrix),
            range=None if camera.range is None else ColorRange(camera.range),
            fps=camera.fps or 0.0,
            live=None if camera.live == "auto" else camera.live,
            loop=camera.loop,
            stall_s=camera.stall_s,
        ),
        priority=camera.priority,
        max_age_ms=camera.max_age_ms,
        slots=camera.slots,
        reuse=None if camera.reuse is None else ReuseRules(camera.reuse.max_age_s, camera.reuse.check_share),
    )


class Agent(NamedTuple):
    """What was put together; `updates` and `linked` are None where none are configured."""

    daemon: Daemon
    updates: Updates | None
    linked: Linked | None


def build_agent(
    plan: RunPlan,
    stopping: Stopping,
    *,
    say: Callable[[str], None],
    on_tick: Callable[[Agent], None] | None = None,
) -> Agent:
    """A daemon over the real clock, children and sink, with updates, a link and a control socket.

    Raises:
        ConfigError: What updates begin with is not there, or a password is not.
        UnavailableError: The results file cannot be opened, another agent uses the same state, or updates
            or the link need packages that are not installed.
    """
    clock = SystemClock()
    log = Log(say, clock)
    say = log.say
    sink = _open_sink(plan, stopping, say)
    blocks = _block_way(plan, clock)
    opening = None if plan.update is None else _open_updates(plan.update, Path(plan.worker.bundle), blocks)
    if opening is not None and opening.first_bundle is not None:
        plan = replace(plan, worker=replace(plan.worker, bundle=str(opening.first_bundle)))
    desk = StatusDesk(clock, device=plan.device)

    def complete(status: AgentStatus) -> AgentStatus:
        if updates is not None:
            status = updates.complete(status)
        return status if linked is None else replace(status, link=linked.link.status())

    def tick(daemon: Daemon) -> None:
        desk.tick(daemon)
        if updates is not None:
            updates.tick(clock.monotonic_ns(), say)
        if linked is not None:
            linked.tick(daemon, clock.monotonic_ns())
        if on_tick is not None:
            on_tick(agent)

    daemon = Daemon(plan, sink=sink, clock=clock, stopping=stopping, say=say, on_tick=tick)
    updates = None if opening is None else opening.join(plan, daemon)
    linked = (
        None
        if plan.link is None
        else _join_link(plan, Surroundings(daemon, desk, updates, complete, clock, log), blocks)
    )
    agent = Agent(daemon, updates, linked)
    if plan.control_socket is not None:
        _open_control(plan.control_socket, daemon, Answers(clock, daemon, desk, updates, complete), say)
    return agent


def _open_control(path: Path, daemon: Daemon, answers: Answers, say: Callable[[str], None]) -> None:
    try:
        server = ControlServer(path, answers.answer)
    except ConfigError as error:  # a disk that only reads must not keep cameras from being answered
        say(LogLine(Level.ERROR, f"nobody can ask this agent: {error.diagnostics()}"))
    else:
        daemon.companions.append(server)


def _open_sink(plan: RunPlan, stopping: Stopping, say: Callable[[str], None]) -> LineSink:
    if plan.results_to is not None:
        return LineSink.to_file(plan.results_to, stopping.event, say=say)
    sink = LineSink(STDOUT_FD, stopping.event)
    if sink.mends:
        say("the file of the results ends inside a line: they go on after it, on a line of their own")
    return sink


def _block_way(plan: RunPlan, clock: Clock) -> BlockWay | None:
    """The way of updates that goes over the link, where the configuration names it."""
    if plan.link is None or plan.update is None or "mqtt" not in plan.update.via:
        return None
    return BlockWay(DeviceTopics.of(plan.link.site, plan.link.device), clock)


def _join_link(plan: RunPlan, around: Surroundings, blocks: BlockWay | None) -> Linked:
    try:
        from vedette.runtime.linking import join_link  # noqa: PLC0415 - of the extra [mqtt]
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"a broker is configured, and the package {error.name} is not installed",
            cure="pip install 'vedette[mqtt]', or leave the `mqtt` section out",
        ) from error
    return join_link(plan, around, blocks)


def _open_updates(plan: UpdatePlan, factory: Path, blocks: BlockWay | None) -> OpenedUpdates:
    try:
        from vedette.runtime.updating import open_updates  # noqa: PLC0415 - tuf and requests start slowly
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"updates are configured, and the package {error.name} is not installed",
            cure="pip install 'vedette[update]', or leave the `update` section out",
        ) from error
    return open_updates(plan, factory, blocks)
