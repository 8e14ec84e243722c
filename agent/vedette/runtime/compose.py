"""The composition root: from a checked configuration, or the `pipe` command's options, to a running daemon.

Reading it tells every process, thread and queue there is:

- this process: the supervisor (main thread) and the results thread; between them a bounded command queue;
- one source child per camera, one engine worker child; between source and worker the camera's frame ring,
  between every child and this process datagram sockets whose kernel buffers are the bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vedette.clock import SystemClock
from vedette.engine.messages import WorkerSpec
from vedette.engine.port import OnFallback
from vedette.engine.threads import read_limits, threads_for, usable_cpus
from vedette.runtime.daemon import Daemon
from vedette.runtime.plan import CameraPlan, RestartPolicy, RunPlan
from vedette.runtime.sinks import LineSink
from vedette.source.port import SourceSpec
from vedette.wire.pixels import ColorMatrix, ColorRange, PixelFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.config.agent import AgentConfig, EngineConfig
    from vedette.config.camera import CameraConfig
    from vedette.runtime.daemon import Stopping

STDOUT_FD = 1


def plan_from_config(config: AgentConfig) -> RunPlan:
    """What a configuration file asks for."""
    engine = config.engine
    return RunPlan(
        worker=worker_spec(engine, Path(config.model.factory), state_dir=config.state_dir),
        cameras=tuple(camera_plan(name, camera) for name, camera in config.cameras.items()),
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
    )


def worker_spec(engine: EngineConfig, bundle: Path, *, state_dir: str | None) -> WorkerSpec:
    """How the engine worker loads the model; engine caches live in the state folder, if there is one."""
    return WorkerSpec(
        bundle=str(bundle),
        accelerators=engine.accelerators,
        on_fallback=OnFallback(engine.on_fallback),
        threads=threads_for(engine.threads, usable_cpus(read_limits())),
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
    )


def build_daemon(
    plan: RunPlan,
    stopping: Stopping,
    *,
    say: Callable[[str], None],
    on_tick: Callable[[Daemon], None] | None = None,
) -> Daemon:
    """A daemon over the real clock, real children and the real sink.

    Raises:
        UnavailableError: The results file cannot be opened.
    """
    if plan.results_to is None:
        sink = LineSink(STDOUT_FD, stopping.event)
        if sink.mends:
            say("the file of the results ends inside a line: they go on after it, on a line of their own")
    else:
        sink = LineSink.to_file(plan.results_to, stopping.event, say=say)
    return Daemon(plan, sink=sink, clock=SystemClock(), stopping=stopping, say=say, on_tick=on_tick)
