"""The daemon as a service: tells the manager what it looks like, on the supervisor's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vedette.runtime.camera import CameraState
from vedette.runtime.generation import Phase
from vedette.runtime.service_state import Look, ServiceState

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.runtime.daemon import Daemon
    from vedette.runtime.sd_notify import ServiceManager

LOOK_EVERY_NS = 200_000_000
_UP = {CameraState.RUNNING, CameraState.HELD}


class Service:
    """Implements `daemon.Companion` for the end, and is asked at each tick for the rest."""

    name = "service"
    crash: BaseException | None = None

    def __init__(self, manager: ServiceManager, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        self._state = ServiceState(watchdog_ns=manager.watchdog_ns)
        self._looked_ns = 0

    def start(self) -> None:
        """See Companion."""

    def tick(self, daemon: Daemon) -> None:
        """Look now and then, and tell what is new."""
        now_ns = self._clock.monotonic_ns()
        if self._manager.listens and now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._looked_ns = now_ns
            self._manager.tell(self._state.lines(look_at(daemon, now_ns), now_ns))

    def reloads(self) -> None:
        """The configuration is read anew."""
        usec = self._clock.monotonic_ns() // 1000
        self._manager.tell(["RELOADING=1", f"MONOTONIC_USEC={usec}", "STATUS=reading the configuration anew"])

    def reloaded(self, said: str) -> None:
        """It was, or was not, taken over."""
        self._manager.tell(["READY=1", f"STATUS={said}"])

    def stop(self) -> None:
        """See Companion: the end begins."""
        self._manager.tell(["STOPPING=1", "STATUS=ending: frames in hand are answered"])
        self._manager.close()


def look_at(daemon: Daemon, now_ns: int) -> Look:
    """The daemon now; on the supervisor's thread."""
    generation = daemon.generation
    ready = generation.ready if generation.serving else None
    serving = ""
    if ready is not None:
        serving = f"{ready.model.name} {ready.model.version} on {ready.accelerator.effective}"
    given_up = ""
    if generation.phase is Phase.FAILED and generation.error is not None:
        given_up = f"no model can be served ({generation.error.cause})"
    loading = generation.waits_for(now_ns)[0].removeprefix("loading: ")
    return Look(
        loading=loading,
        serving=serving,
        given_up=given_up,
        cameras_up=sum(camera.state in _UP for camera in daemon.cameras),
        cameras=len(daemon.cameras),
        results_age_ns=daemon.results.age_ns(now_ns),
    )
