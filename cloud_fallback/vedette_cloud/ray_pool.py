"""Replicas of the model on Ray Serve; the only file that names Ray.

Ray keeps as many replicas as there is work for, on as many machines as its cluster has, and forms their
batches. The HTTP side stays here: bounds of heads and bodies, tokens and budgets hold for all replicas
together, so Ray's own HTTP proxy is not started.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import msgspec

from vedette.api.messages import ModelDescription
from vedette.api.refusal import RequestRefusedError, not_now
from vedette.errors import EngineUnavailableError, UnavailableError, rebuild_error
from vedette_cloud.messages import Answer, Loaded, Question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vedette.api.request_frames import RequestFrame
    from vedette_cloud.metrics import PoolMeter
    from vedette_cloud.settings import ServerSettings

APPLICATION = "vedette-cloud"
START_TIMEOUT_S = 300.0
CLOSE_TIMEOUT_S = 15.0


class Replica:
    """What Ray runs in each of its actors; questions come as MessagePack, frames as bytes."""

    def __init__(self, packed_spec: bytes) -> None:
        from vedette.errors import VedetteError  # noqa: PLC0415 - imported in Ray's process
        from vedette_cloud.batch_model import load_batch_model  # noqa: PLC0415 - as above
        from vedette_cloud.messages import ChildSpec  # noqa: PLC0415 - as above

        spec = msgspec.msgpack.decode(packed_spec, type=ChildSpec)
        self._fault: tuple[int, str, str | None] | None = None
        self._turn = asyncio.Lock()
        try:
            self._model = load_batch_model(spec, lambda _: None)
        except VedetteError as error:  # told to whoever asks: Ray would try the same again for ever
            self._fault = (error.exit_code, error.cause, error.cure)

    def loaded(self) -> tuple[tuple[int, str, str | None] | None, bytes]:
        """What went wrong, or `Loaded` in MessagePack."""
        if self._fault is not None:
            return self._fault, b""
        model = self._model
        return None, msgspec.msgpack.encode(Loaded(model.description(), model.sizes, model.one_by_one))

    async def answer(self, asked: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
        """Answer one batch; one thread at a time, and the actor's event loop stays free."""
        from vedette_cloud.batch_model import Asked  # noqa: PLC0415 - imported in Ray's process

        questions = [msgspec.msgpack.decode(packed, type=Question) for packed, _ in asked]
        batch = [
            Asked(question, memoryview(frame)) for question, (_, frame) in zip(questions, asked, strict=True)
        ]
        async with self._turn:
            started_ns = time.monotonic_ns()
            answers = await asyncio.get_running_loop().run_in_executor(None, self._model.answer, batch)
            run_ns = time.monotonic_ns() - started_ns
        return [msgspec.msgpack.encode((answer, len(batch), run_ns)) for answer in answers]


class RayPool:
    """Implements `port.ModelPool` with a Ray Serve deployment."""

    def __init__(self, settings: ServerSettings, meter: PoolMeter, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._meter = meter
        self._say = say
        self._ray: Any = None
        self._serve: Any = None
        self._handle: Any = None
        self._description = ModelDescription(ready=False, reason="Ray starts the model's replicas")
        self._in_flight = 0
        self._in_flight_bytes = 0

    async def start(self) -> Loaded:
        """See `server.StartedPool`."""
        loop = asyncio.get_running_loop()
        fault, packed = await asyncio.wait_for(loop.run_in_executor(None, self._start), START_TIMEOUT_S)
        if fault is not None:
            raise rebuild_error(*fault)
        loaded = msgspec.msgpack.decode(packed, type=Loaded)
        self._description = loaded.description
        return loaded

    async def close(self) -> None:
        """See `server.StartedPool`."""
        if self._ray is None:
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(
                asyncio.get_running_loop().run_in_executor(None, self._close), CLOSE_TIMEOUT_S
            )

    def description(self) -> ModelDescription:
        """See `port.ModelPool`."""
        return self._description

    async def ask(
        self, frame: RequestFrame, *, captured_ns: int, deadline_ns: int, ranking: bool = False
    ) -> Answer:
        """See `port.ModelPool`."""
        now_ns = time.monotonic_ns()
        size_bytes = frame.format.frame_bytes
        if self._in_flight_bytes + size_bytes > self._settings.batch.capacity_bytes:
            raise not_now(f"the queue is full: {self._in_flight} requests wait already")
        question = msgspec.msgpack.encode(Question(frame.format, captured_ns, now_ns, ranking))
        self._count(1, size_bytes)
        try:
            packed = await asyncio.wait_for(
                self._handle.ask.remote((question, b"".join(frame.pieces))), (deadline_ns - now_ns) / 1e9
            )
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise RequestRefusedError(504, "the model gave no answer in time", retry_after_s=1.0) from error
        except asyncio.CancelledError:
            raise
        except Exception as error:  # Ray wraps a replica's death in many types
            raise not_now(f"the request was lost: {type(error).__name__}: {str(error)[:200]}") from error
        finally:
            self._count(-1, -size_bytes)
        answer, batch, run_ns = msgspec.msgpack.decode(packed, type=tuple[Answer, int, int])
        self._meter.ran(batch, run_ns)
        return answer

    def _count(self, requests: int, size_bytes: int) -> None:
        self._in_flight += requests
        self._in_flight_bytes += size_bytes
        self._meter.waiting(self._in_flight)

    def _start(self) -> tuple[tuple[int, str, str | None] | None, bytes]:
        """Start or find Ray, and deploy; in another thread, for it takes seconds.

        Raises:
            UnavailableError: Ray is not installed, or does not come up.
        """
        try:
            import ray  # noqa: PLC0415 - a package of the extra [ray]
            from ray import serve  # noqa: PLC0415 - as above
        except ModuleNotFoundError as error:
            raise EngineUnavailableError(
                f"--engine ray needs the Python package {error.name}", cure="pip install 'vedette[ray]'"
            ) from error
        settings = self._settings
        try:
            ray.init(
                address=settings.ray_address,
                log_to_driver=False,
                include_dashboard=False,
                configure_logging=False,
                ignore_reinit_error=True,
            )
            self._ray, self._serve = ray, serve
            serve.start(http_options={"location": "NoServer"})
            application = _deployment(serve, settings).bind(msgspec.msgpack.encode(settings.spec))
            self._say("Ray is up; its first replica loads the model")
            self._handle = serve.run(application, name=APPLICATION, route_prefix=None)
            loaded: tuple[tuple[int, str, str | None] | None, bytes] = self._handle.loaded.remote().result(
                timeout_s=START_TIMEOUT_S
            )
        except (OSError, RuntimeError, TimeoutError, ConnectionError, ValueError) as error:
            raise UnavailableError(
                f"Ray Serve does not come up: {str(error)[:300]}",
                cure="see `ray status`; --ray-address names a running cluster",
            ) from error
        return loaded

    def _close(self) -> None:
        self._serve.delete(APPLICATION)
        if self._settings.ray_address is None:  # one that we started ourselves
            self._serve.shutdown()
            self._ray.shutdown()


def _deployment(serve: Any, settings: ServerSettings) -> Any:  # noqa: ANN401 - Ray's types are its own
    """The replica with Ray's batching and autoscaling around it."""
    limits = settings.batch

    class Batched(Replica):
        """Ray puts what comes together into one call."""

        def __init__(self, packed_spec: bytes) -> None:
            super().__init__(packed_spec)
            if self._fault is None:  # more would only make the first of them wait
                self.ask.set_max_batch_size(min(limits.max_size, self._model.sizes[-1]))

        @serve.batch(  # type: ignore[untyped-decorator]
            max_batch_size=limits.max_size, batch_wait_timeout_s=limits.max_wait_ns / 1e9
        )
        async def ask(self, asked: list[tuple[bytes, bytes]]) -> list[bytes]:
            """One batch."""
            return await self.answer(asked)

    return serve.deployment(
        name="model",
        max_ongoing_requests=2 * limits.max_size,
        autoscaling_config={
            "min_replicas": settings.least,
            "max_replicas": settings.processes,
            "target_ongoing_requests": limits.max_size,
        },
        ray_actor_options={"num_cpus": settings.spec.worker.threads},
    )(Batched)
