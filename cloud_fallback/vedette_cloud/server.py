"""Puts the server together and runs it: the listener, the pool, the paths, and an end that loses nobody.

Threads: the event loop's own, and a few that decode pictures. Queues: request bodies (`Admission`), frames
that wait for the model (`Batcher`), both bounded in bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

from vedette.api.admission import Admission
from vedette.api.guard import Guard
from vedette.api.uvicorn_server import build_server, serve
from vedette.clock import SystemClock
from vedette_cloud.chat_service import ChatService
from vedette_cloud.device_budgets import DeviceBudgets
from vedette_cloud.entrance import Entrance
from vedette_cloud.inference_service import InferenceService, Means
from vedette_cloud.listening import check_certificate, open_listener
from vedette_cloud.local_pool import LocalPool
from vedette_cloud.metrics import Metrics
from vedette_cloud.port import ModelPool
from vedette_cloud.starlette_app import build_app

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from vedette.api.uvicorn_server import DoorServer
    from vedette.clock import Clock
    from vedette_cloud.messages import Loaded
    from vedette_cloud.settings import ServerSettings

HEAD_TIMEOUT_S = 10.0
# Beside the model's answer: the body's coming, and the answer's going to a slow client.
SLOW_CLIENT_S = 30.0
BODIES_FACTOR = 8
MAX_DECODERS = 4


class StartedPool(ModelPool, Protocol):
    """A pool that the server starts and ends."""

    async def start(self) -> Loaded:
        """Load the model.

        Raises:
            VedetteError: It cannot be served.
        """
        ...

    async def close(self) -> None:
        """End it; who waits is told."""
        ...


class Serving(NamedTuple):
    """What is up: for the line that says so."""

    address: str
    loaded: Loaded


def run_server(
    settings: ServerSettings,
    *,
    say: Callable[[str], None],
    ready: Callable[[Serving], None],
) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        VedetteError: It cannot be served, and why.
    """
    if settings.certificate is not None:
        check_certificate(settings.certificate)
    listener, address = open_listener(settings.address, tls=settings.certificate is not None)
    with listener:
        asyncio.run(_serve(settings, listener, address, say, ready))


async def _serve(
    settings: ServerSettings,
    listener: socket.socket,
    address: str,
    say: Callable[[str], None],
    ready: Callable[[Serving], None],
) -> None:
    clock, metrics = SystemClock(), Metrics()
    pool = _pool(settings, clock, metrics, say)
    with ThreadPoolExecutor(min(MAX_DECODERS, os.cpu_count() or 1), "decode") as decoding:
        server = _door(settings, pool, decoding, clock, metrics)
        _stop_on_signals(server)
        serving = asyncio.create_task(serve(server, listener))
        starting = asyncio.create_task(pool.start())
        try:
            await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                loaded = starting.result()
                _stop_on_signals(server)  # Ray put a handler of its own in their place
                model = loaded.description.model
                if model is not None:
                    metrics.serves(model, loaded.description.engine)
                ready(Serving(address, loaded))
            await serving
        finally:
            starting.cancel()
            server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            await asyncio.gather(starting, return_exceptions=True)
            await pool.close()


def _pool(
    settings: ServerSettings, clock: Clock, metrics: Metrics, say: Callable[[str], None]
) -> StartedPool:
    if settings.with_ray:
        from vedette_cloud.ray_pool import RayPool  # noqa: PLC0415 - a package of the extra [ray]

        return RayPool(settings, metrics, say)
    return LocalPool(
        settings.spec,
        settings.batch,
        processes=settings.processes,
        run_timeout_s=settings.request.timeout_s,
        clock=clock,
        meter=metrics,
        say=say,
    )


def _door(
    settings: ServerSettings,
    pool: ModelPool,
    decoding: ThreadPoolExecutor,
    clock: Clock,
    metrics: Metrics,
) -> DoorServer:
    budgets = DeviceBudgets(per_minute=settings.per_minute, per_day=settings.per_day)
    means = Means(
        pool,
        Entrance(settings.tokens, budgets, clock, metrics),
        Admission(BODIES_FACTOR * settings.request.max_body_bytes),
        decoding,
        settings.request,
        clock,
        metrics,
    )
    app = build_app(means, InferenceService(means), ChatService(means))
    # A name in DNS, a proxy, a service of a cluster: the server cannot know what it is called.
    guarded = Guard(app, hosts=None, limit_s=2 * settings.request.timeout_s + SLOW_CLIENT_S)
    server = build_server(guarded, head_timeout_s=HEAD_TIMEOUT_S)
    if settings.certificate is not None:
        server.config.ssl_certfile = str(settings.certificate.chain)
        server.config.ssl_keyfile = str(settings.certificate.key)
    return server


def _stop_on_signals(server: DoorServer) -> None:
    """The first signal ends it in peace, the second at once."""

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
