"""What may speak against an update at this moment: heat, load, the hour. Reads the box's thermometers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vedette.update.plan import Conditions

if TYPE_CHECKING:
    from collections.abc import Callable

    from vedette.trust.wall_clock import WallClock
    from vedette.update.plan import ClockWindow

THERMAL_ROOT = Path("/sys/class/thermal")
HOT_CELSIUS = 85.0


class Objections(NamedTuple):
    """Why not now."""

    too_hot: bool = False
    queue_full: bool = False


def no_objection() -> Objections:
    """The veto of nobody."""
    return Objections()


def thermal_veto(limit_celsius: float = HOT_CELSIUS, root: Path = THERMAL_ROOT) -> Callable[[], Objections]:
    """A veto while any thermometer of the kernel is at the limit; without thermometers there is none."""

    def veto() -> Objections:
        return Objections(too_hot=any(celsius >= limit_celsius for celsius in _temperatures(root)))

    return veto


class Moment:
    """Puts together what a plan must know of this moment."""

    def __init__(
        self, wall: WallClock, *, window: ClockWindow | None, veto: Callable[[], Objections] = no_objection
    ) -> None:
        self._wall = wall
        self._window = window
        self._veto = veto

    def conditions(self, *, waited_s: float) -> Conditions:
        """Of now; `waited_s` is monotonic time since somebody first had to wait."""
        objections = self._veto()
        return Conditions(
            minute=self._minute(),
            window=self._window,
            too_hot=objections.too_hot,
            queue_full=objections.queue_full,
            waited_s=waited_s,
        )

    def early_s(self, not_before_utc_s: int) -> float:
        """Seconds until a time of the wall clock, 0 when it has come; a clock in doubt says 0 as well."""
        if self._wall.synchronised() is False:
            return 0.0
        return max(0.0, not_before_utc_s - self._wall.utc_s())

    def _minute(self) -> int | None:
        """Local time in minutes since midnight; None while the clock is in doubt."""
        if self._wall.synchronised() is False:
            return None
        local = time.localtime(self._wall.utc_s())
        return local.tm_hour * 60 + local.tm_min


def _temperatures(root: Path) -> list[float]:
    found = (_celsius(path) for path in sorted(root.glob("thermal_zone*/temp")))
    return [celsius for celsius in found if celsius is not None]


def _celsius(path: Path) -> float | None:
    try:
        return int(path.read_text(encoding="ascii")) / 1000
    except (OSError, ValueError):  # a zone without a working sensor
        return None
