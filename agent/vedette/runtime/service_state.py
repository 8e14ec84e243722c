"""What a service manager is told as the daemon goes along. Pure.

It is READY once a model answers (loaded, golden inputs and warm-up passed), or once it is clear that none
will for now and the agent goes on without one: a declared degraded start. Until then every real step of
loading buys time, and a silence buys none. WATCHDOG is sent only while both loops really turn.
"""

from __future__ import annotations

from typing import NamedTuple

LOADING_USEC = 120 * 1_000_000
STATUS_EVERY_NS = 10_000_000_000
# The results thread looks up at least every quarter of a second, unless the reader of the results is slow.
STUCK_NS = 10_000_000_000


class Look(NamedTuple):
    """The daemon at one moment.

    `loading` is the step of loading, `serving` what answers frames (empty: nothing), `given_up` why no model
    will for now. `results_age_ns` is how long ago the results thread looked up, None while it waits for its
    reader.
    """

    loading: str
    serving: str
    given_up: str
    cameras_up: int
    cameras: int
    results_age_ns: int | None


class ServiceState:
    """Turns looks into lines for sd_notify(3); times are monotonic nanoseconds."""

    def __init__(self, *, watchdog_ns: int) -> None:
        self._watchdog_every_ns = watchdog_ns // 3
        self._ready = False
        self._step = ""
        self._status = ""
        self._model: tuple[str, str, str] | None = None
        self._status_ns = 0
        self._fed_ns: int | None = None

    @property
    def ready(self) -> bool:
        """Whether READY was said."""
        return self._ready

    def lines(self, look: Look, now_ns: int) -> list[str]:
        """What is to be told now."""
        told = self._start(look) if not self._ready else []
        told += self._status_lines(look, now_ns)
        if self._watchdog_every_ns and self._turns(look):
            fed_ns = self._fed_ns
            if fed_ns is None or now_ns - fed_ns >= self._watchdog_every_ns:
                self._fed_ns = now_ns
                told.append("WATCHDOG=1")
        return told

    def _start(self, look: Look) -> list[str]:
        if look.serving or look.given_up:
            self._ready = True
            return ["READY=1"]
        if look.loading == self._step:
            return []
        self._step = look.loading
        return [f"EXTEND_TIMEOUT_USEC={LOADING_USEC}"]

    def _status_lines(self, look: Look, now_ns: int) -> list[str]:
        status, model = _status(look), (look.serving, look.given_up, look.loading)
        if status == self._status or (model == self._model and now_ns - self._status_ns < STATUS_EVERY_NS):
            return []
        self._status, self._status_ns, self._model = status, now_ns, model
        return [f"STATUS={status}"]

    @staticmethod
    def _turns(look: Look) -> bool:
        return look.results_age_ns is None or look.results_age_ns < STUCK_NS


def _status(look: Look) -> str:
    cameras = f"{look.cameras_up} of {look.cameras} cameras up"
    if look.serving:
        return f"{look.serving} answers; {cameras}"
    if look.given_up:
        return f"degraded: {look.given_up}; {cameras}"
    return f"loading: {look.loading}" if look.loading else "starting"
