"""What runs in the HTTP door's process, put together: one event loop, and a few threads for slow work."""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import msgspec

from vedette.api.admission import Admission
from vedette.api.burst_reader import BurstReader
from vedette.api.camera_views import CameraViews
from vedette.api.control import ask
from vedette.api.door_messages import Answers, Seen, Unview, View
from vedette.api.frame_desk import FrameDesk
from vedette.api.guard import Guard
from vedette.api.health import HealthService
from vedette.api.inference import InferenceService
from vedette.api.inquiry import Inquiry
from vedette.api.listening import host_names, open_listener
from vedette.api.messages import (
    AgentStatus,
    DescribeRequest,
    MetricsRequest,
    ModelDescription,
    StatusRequest,
)
from vedette.api.preview import PreviewService
from vedette.api.quick_inference import QuickInference, QuickParts
from vedette.api.request_head import HeadReader
from vedette.api.starlette_app import build_app
from vedette.api.traffic import Traffic
from vedette.api.uvicorn_server import DoorServer, build_server, serve
from vedette.clock import SystemClock
from vedette.errors import ConfigError, UnavailableError, VedetteError
from vedette.frame.channel import PeerGoneError
from vedette.frame.ring import Ring, RingHandles
from vedette.source.messages import Ended, Opened, RefuseRing, SourceFailed, StopSource, UseRing
from vedette.source.port import SourceInfo
from vedette.telemetry.metrics import MetricsSnapshot
from vedette.telemetry.prometheus import render
from vedette.wire.pixels import PixelFormat, describe

if TYPE_CHECKING:
    import socket

    from vedette.api.door_messages import DoorSpec, ToDoor
    from vedette.frame.channel import Channel

PULSE_EVERY_S = 0.5
# Less than the patience of whoever probes: a daemon that hangs is told of before the probe gives up.
ASK_TIMEOUT_S = 1.5
# Status, description and figures: one that is waited for holds up no other.
ASKING_THREADS = 3
# A model's description is used while a newer one is fetched: no request waits for it.
DESCRIBED_FRESH_S, DESCRIBED_KEEP_S = 0.5, 5.0
STATUS_FRESH_S = 0.5
FIGURES_FRESH_S = 1.0
# A request's body in, its answer out, and the reading of both.
WHOLE_REQUEST_TIMES = 3
BODIES_IN_MEMORY = 4
DRAWING_NICE = 10


class Door:
    """The services of one process, and its ear for the daemon."""

    def __init__(self, control: Channel[ToDoor], spec: DoorSpec) -> None:
        clock = SystemClock()
        self._control = control
        self._spec = spec
        self.error: VedetteError | None = None
        self._asking = ThreadPoolExecutor(ASKING_THREADS, "asking")
        self._decoding = ThreadPoolExecutor(2, "decoding")
        self._drawing = ThreadPoolExecutor(1, "drawing", initializer=_yield_to_frames)
        self.desk = FrameDesk(clock)
        self.views = CameraViews(clock, self._drawing)
        admission = Admission(BODIES_IN_MEMORY * spec.max_body_bytes)
        traffic = Traffic(self.desk, admission, clock.monotonic_ns())
        status = Inquiry(self._status, pool=self._asking, clock=clock, fresh_s=STATUS_FRESH_S)
        description = Inquiry(
            self._describe,
            pool=self._asking,
            clock=clock,
            fresh_s=DESCRIBED_FRESH_S,
            keep_s=DESCRIBED_KEEP_S,
        )
        figures = Inquiry(self._figures, pool=self._asking, clock=clock, fresh_s=FIGURES_FRESH_S)
        inference = InferenceService(
            spec,
            desk=self.desk,
            description=description,
            admission=admission,
            decoding=self._decoding,
            clock=clock,
        )
        health = HealthService(status=status, inference=inference, figures=figures)
        preview = PreviewService(
            status=status, description=description, views=self.views, traffic=traffic, clock=clock
        )
        guard = Guard(
            build_app(inference, health, preview, traffic),
            hosts=host_names(spec.listen),
            limit_s=WHOLE_REQUEST_TIMES * spec.request_timeout_s,
        )
        parts = QuickParts(
            inference,
            self.desk,
            admission,
            guard,
            traffic,
            BurstReader(clock, usable_cpus=len(os.sched_getaffinity(0))),
            clock,
            request_timeout_s=spec.request_timeout_s,
            body_pause_s=spec.body_pause_s,
            max_body_bytes=spec.max_body_bytes,
        )
        heads = HeadReader.installed()
        quick = None if heads is None else QuickInference(parts, heads, asyncio.get_running_loop())
        self.server: DoorServer = build_server(guard, head_timeout_s=spec.head_timeout_s, quick=quick)

    async def run(self, listener: socket.socket) -> None:
        """Serve until the daemon says stop or is gone."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._control.fileno(), self._listen)
        pulse = loop.create_task(self._pulse())
        try:
            await serve(self.server, listener)
        finally:
            pulse.cancel()
            loop.remove_reader(self._control.fileno())
            self.desk.close("the agent is ending")
            for pool in (self._asking, self._decoding, self._drawing):
                pool.shutdown(wait=False, cancel_futures=True)

    async def _pulse(self) -> None:
        while True:
            self.desk.pulse()
            self.views.tidy()
            await asyncio.sleep(PULSE_EVERY_S)

    def _listen(self) -> None:
        """Everything that the daemon has said."""
        try:
            while (received := self._control.receive()) is not None:
                self._hear(*received)
        except PeerGoneError:
            self._end()
        except VedetteError as error:  # a daemon of another version, or a ring that is none
            self.error = error
            self._end()

    def _end(self) -> None:
        """Whoever would hear of requests under way is gone: they are not waited for."""
        self.server.should_exit = self.server.force_exit = True
        asyncio.get_running_loop().remove_reader(self._control.fileno())

    def _hear(self, message: ToDoor, fds: list[int]) -> None:
        if isinstance(message, Answers):
            self.desk.answered(message.results)
        elif isinstance(message, Seen):
            self.views.seen(message.results)
        elif isinstance(message, UseRing):
            self.desk.adopt(Ring(RingHandles(fds)))
        elif isinstance(message, View):
            self.views.show(message.camera, Ring(RingHandles(fds)))
        elif isinstance(message, Unview):
            self.views.hide(message.camera)
        elif isinstance(message, StopSource):
            self.desk.close("the agent is ending")
            self.server.should_exit = True
        elif isinstance(message, RefuseRing):
            self.desk.refuse(message.reason)

    # On the asking threads ---------------------------------------------------------------------------------

    def _status(self) -> AgentStatus:
        return msgspec.json.decode(self._ask(StatusRequest()), type=AgentStatus)

    def _describe(self) -> ModelDescription:
        return msgspec.json.decode(self._ask(DescribeRequest()), type=ModelDescription)

    def _figures(self) -> bytes:
        return render(msgspec.json.decode(self._ask(MetricsRequest()), type=MetricsSnapshot))

    def _ask(self, request: StatusRequest | DescribeRequest | MetricsRequest) -> bytes:
        try:
            return ask(Path(self._spec.control_socket), request, timeout_s=ASK_TIMEOUT_S)
        except UnavailableError as error:  # its cure is for whoever types commands, not for a client of HTTP
            raise UnavailableError(error.cause, retry_after_s=error.retry_after_s) from error


def _yield_to_frames() -> None:
    """Pictures for the page are made in what time is left."""
    os.setpriority(os.PRIO_PROCESS, 0, DRAWING_NICE)


def run(control: Channel[ToDoor], spec: DoorSpec) -> int:
    """Listen, say so, serve until the end."""
    cv2.setNumThreads(1)
    try:
        listener, address = open_listener(spec.listen)
    except VedetteError as error:
        retry = not isinstance(error, ConfigError)
        control.send(SourceFailed(error.exit_code, error.cause, error.cure, retry=retry))
        return error.exit_code
    picture = describe(spec.slot_bytes // 3, 1, PixelFormat.RGB24)
    info = SourceInfo(format=picture, live=False, fps=0.0, description=f"HTTP on {address}")
    control.send(Opened(info, spec.slot_bytes))
    failure = asyncio.run(_serve(control, spec, listener))
    if failure is not None:
        control.send(SourceFailed(failure.exit_code, failure.cause, failure.cure, retry=True))
        return failure.exit_code
    control.send(Ended())
    return 0


async def _serve(control: Channel[ToDoor], spec: DoorSpec, listener: socket.socket) -> VedetteError | None:
    """The event loop's part; what ended it, if it was no wish of the daemon's."""
    door = Door(control, spec)
    gc.collect()
    gc.freeze()
    await door.run(listener)
    return door.error
