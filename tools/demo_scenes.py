"""What the demo promises to show of an update, in its order; each that does not come in time is an error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from vedette.errors import UnavailableError
from vedette.telemetry.summary import ms_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from demo_children import Child
    from demo_fleet import Offer
    from demo_watch import OperatorView
    from vedette_fleet.fleet_figures import Latency

START_WITHIN_S = 90.0
TELEMETRY_WITHIN_S = 60.0
ANNOUNCED_WITHIN_S = 60.0
FETCHED_WITHIN_S = 90.0
TRIAL_WITHIN_S = 120.0
CONFIRMED_WITHIN_S = 180.0
GOODBYE_WITHIN_S = 30.0
# Blocks that are late are asked for again.
MOST_REPETITION = 2
_T = TypeVar("_T")


class Scenes:
    """What is to be seen, one after the other; each says what it saw and after how many seconds.

    `patience` is a factor on how long each is waited for.
    """

    def __init__(
        self,
        view: OperatorView,
        bundle: str,
        children: Sequence[Child],
        say: Callable[[str], None],
        *,
        patience: float = 1.0,
    ) -> None:
        self._view = view
        self._bundle = bundle
        self._children = children
        self._say = say
        self._patience = patience
        self._began_s = time.monotonic()

    def birth(self) -> None:
        """The box is online."""
        view = self._view
        status = self._until(
            "birth", lambda: view.status if view.status and view.status.online else None, START_WITHIN_S
        )
        self._tell("birth", f"{status.device} is online, agent {status.agent}")

    def telemetry(self, version: str) -> Latency:
        """Figures of frames that a version answered."""
        view = self._view
        row = self._until(
            f"telemetry of {self._bundle} {version}",
            lambda: next((row for row in view.models() if row.version == version), None),
            TELEMETRY_WITHIN_S,
        )
        self._tell("telemetry", f"{self._bundle} {version}: {latency_text(row.latency)}")
        return row.latency

    def announcement(self) -> None:
        """The hint that metadata changed, with the new rollout in it."""
        view = self._view

        def newer() -> int | None:
            announced = view.announced
            return announced.rollouts_version if announced and announced.rollouts_version > 1 else None

        version = self._until("announcement of the rollout", newer, ANNOUNCED_WITHIN_S)
        self._tell("announced", f"rollouts version {version}, to all boxes at once")

    def delta(self, offer: Offer) -> None:
        """The release, as its delta and not in full."""
        view = self._view
        fetched_bytes = self._until(
            "delta",
            lambda: count if (count := view.bytes_of("blobs")) >= offer.delta_bytes else None,
            FETCHED_WITHIN_S,
        )
        if fetched_bytes > MOST_REPETITION * offer.delta_bytes:
            raise UnavailableError(
                f"{fetched_bytes:,} bytes came where the delta has {offer.delta_bytes:,}",
                cure="see serve-blocks.log and agent.log",
            )
        share = fetched_bytes / offer.full_bytes
        self._tell("fetched", f"the delta: {fetched_bytes:,} of {offer.full_bytes:,} bytes ({share:.1%})")

    def trial(self) -> None:
        """The new model answers, and the old one is kept ready."""
        view = self._view
        self._until("trial", lambda: True if "trial" in view.phases else None, TRIAL_WITHIN_S)
        self._tell("trial", f"{self._bundle} 2 answers; {self._bundle} 1 stays ready beside it")

    def confirmation(self) -> None:
        """The update's good end, in the box's own words."""
        view = self._view

        def ended() -> str | None:
            reported = view.reported
            return reported.result or None if reported is not None else None

        result = self._until("result of the update", ended, CONFIRMED_WITHIN_S)
        reported = view.reported
        if result != "success" or reported is None:
            cause = "" if reported is None else f"{reported.cause} {reported.detail}".strip()
            raise UnavailableError(f"the update ended as `{result}`: {cause}")
        self._tell("confirmed", f"{self._bundle} 2 is as good as {self._bundle} 1 was on this box")

    def goodbye(self) -> None:
        """The box leaves by itself."""
        view = self._view
        view.until(
            "goodbye", lambda: view.status if view.status and view.status.clean else None, GOODBYE_WITHIN_S
        )
        self._tell("goodbye", f"{view.device.device} is offline, and said so itself")

    def _until(self, what: str, found: Callable[[], _T | None], within_s: float) -> _T:
        return self._view.until(what, found, within_s * self._patience, alive=self._check)

    def _check(self) -> None:
        for child in self._children:
            child.check_alive()

    def _tell(self, word: str, text: str) -> None:
        self._say(f"{time.monotonic() - self._began_s:5.1f} s  {word:<9}  {text}")


def latency_text(latency: Latency) -> str:
    """Percentiles of merged sketches."""
    return f"{latency.count} answers, p50 {ms_text(latency.p50_ms)} ms, p95 {ms_text(latency.p95_ms)} ms"
