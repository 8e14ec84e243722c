"""Reads the files in which a board's kernel tells of heat, power and throttling."""

from __future__ import annotations

import os
import threading
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from vedette.telemetry.board import BoardMarks, board_figures

if TYPE_CHECKING:
    from vedette.clock import Clock
    from vedette.wire.telemetry import BoardFigures

READ_WITHIN_S = 2.0
MAX_FILE_BYTES = 256
MAX_FILES = 64  # for each of the patterns below

PATTERNS = (
    "proc/device-tree/model",
    "sys/class/dmi/id/product_name",
    "sys/class/thermal/thermal_zone*/type",
    "sys/class/thermal/thermal_zone*/temp",
    "sys/class/thermal/cooling_device*/type",
    "sys/class/thermal/cooling_device*/cur_state",
    "sys/class/hwmon/hwmon*/name",
    "sys/class/hwmon/hwmon*/temp*_input",
    "sys/class/hwmon/hwmon*/temp*_label",
    "sys/class/hwmon/hwmon*/power*_input",
    "sys/class/hwmon/hwmon*/power*_average",
    "sys/class/hwmon/hwmon*/power*_label",
    "sys/class/hwmon/hwmon*/in*_input",
    "sys/class/hwmon/hwmon*/in*_label",
    "sys/class/hwmon/hwmon*/curr*_input",
    "sys/class/hwmon/hwmon*/in0_lcrit_alarm",
    "sys/class/hwmon/hwmon*/oc*_event_cnt",
    "sys/devices/platform/soc*/*firmware/get_throttled",
    "sys/class/powercap/intel-rapl:?/name",
    "sys/class/powercap/intel-rapl:?/energy_uj",
    "sys/class/powercap/intel-rapl:?/max_energy_range_uj",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq",
    "sys/devices/system/cpu/cpufreq/policy*/cpuinfo_max_freq",
    "sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count",
)


class BoardReader:
    """Looks at the board in a thread of its own: a sensor whose bus hangs must not stop anybody else.

    One thread at a time; `read` and `stuck` belong to one caller.
    """

    def __init__(self, clock: Clock, root: Path = Path("/")) -> None:
        self._clock = clock
        self._root = root
        self._marks: BoardMarks | None = None
        self._look: _Look | None = None

    @property
    def stuck(self) -> bool:
        """A sensor did not answer the last look in time, and still does not."""
        return self._look is not None and self._look.is_alive()

    def read(self, within_s: float = READ_WITHIN_S) -> BoardFigures | None:
        """What the board tells; None when a sensor holds up the look, which then goes on by itself."""
        if self._look is None:
            self._look = _Look(self._root)
            self._look.start()
        self._look.join(within_s)
        if self._look.is_alive():
            return None
        files, self._look = self._look.files, None
        figures, self._marks = board_figures(files, self._clock.monotonic_ns(), self._marks)
        return figures


class _Look(threading.Thread):
    """Reads everything once."""

    def __init__(self, root: Path) -> None:
        super().__init__(name="board", daemon=True)
        self.files: dict[str, str] = {}
        self._root = root

    def run(self) -> None:
        for pattern in PATTERNS:
            for path in islice(self._found(pattern), MAX_FILES):
                text = _text(path)
                if text is not None:
                    self.files[path.relative_to(self._root).as_posix()] = text

    def _found(self, pattern: str) -> list[Path]:
        try:
            return sorted(self._root.glob(pattern), key=lambda path: (len(path.parts[-2]), path))
        except OSError:
            return []


def _text(path: Path) -> str | None:
    """The beginning of a file; None when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, MAX_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(fd)
