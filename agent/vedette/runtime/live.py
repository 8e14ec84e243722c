"""The data plane as the update sees it: wishes go in, figures come out, nothing blocks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from vedette.runtime.health import ModelHealth, ShadowHealth, SlidingHealth

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vedette.clock import Clock
    from vedette.update.ports import WindowStats


class SwitchWish(NamedTuple):
    """Serve this bundle; `health` is what will be said of it."""

    bundle: Path
    trial: bool
    health: ModelHealth


class ShadowWish(NamedTuple):
    """Compare this bundle, or nothing any more."""

    bundle: Path | None
    health: ShadowHealth | None


class Wishes(NamedTuple):
    """What was asked since the last look; a newer wish of a kind takes the older one's place."""

    shadow: ShadowWish | None
    switch: SwitchWish | None
    confirm: bool


class LiveModel:
    """Implements `vedette.update.ports.Live`. Any thread may call; the supervisor carries wishes out.

    There is room for one wish of each kind. They are carried out in the order confirm, switch, shadow: a
    switch ends the shadow, and a shadow that is asked for after a switch is kept.
    """

    def __init__(self, clock: Clock, wake: Callable[[], None], *, baseline_s: float) -> None:
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._shadow: ShadowWish | None = None
        self._switch: SwitchWish | None = None
        self._confirm = False
        self._health = ModelHealth(clock)
        self.first_health = self._health
        self.sliding = SlidingHealth(clock, baseline_s)
        self.bundle: Path | None = None

    # Live -------------------------------------------------------------------------------------------------

    def start_shadow(self, bundle: Path) -> None:
        """See Live."""
        health = ShadowHealth(self._clock)
        with self._lock:
            self._shadow, self._health = ShadowWish(bundle, health), health
        self._wake()

    def stop_shadow(self) -> None:
        """See Live."""
        with self._lock:
            self._shadow = ShadowWish(None, None)
        self._wake()

    def switch(self, bundle: Path, *, trial: bool = False) -> None:
        """See Live."""
        health = ModelHealth(self._clock)
        with self._lock:
            self._switch, self._health = SwitchWish(bundle, trial, health), health
            self._shadow, self._confirm = None, False
        self._wake()

    def confirm(self) -> None:
        """See Live."""
        with self._lock:
            self._confirm = True
        self._wake()

    def serving(self) -> Path | None:
        """See Live."""
        return self.bundle

    def stats(self) -> WindowStats:
        """See Live."""
        return self._health.stats()

    def baseline(self) -> WindowStats:
        """See Live."""
        return self.sliding.stats()

    # The supervisor ---------------------------------------------------------------------------------------

    def take_wishes(self, *, may_switch: bool) -> Wishes:
        """What is to be done now; without `may_switch` a wish to switch, and what came after it, stays."""
        with self._lock:
            if self._switch is not None and not may_switch:
                return Wishes(None, None, confirm=False)
            wishes = Wishes(self._shadow, self._switch, self._confirm)
            self._shadow, self._switch, self._confirm = None, None, False
        return wishes
