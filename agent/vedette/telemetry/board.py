"""What the files of a board's kernel say of heat, power and throttling. Pure.

Everything here is somebody else's text: what is no number, or no sensible one, is absent, never an error.
Paths are relative to the root of the file system, as `board_files` reads them.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import msgspec

from vedette.wire.telemetry import BoardFigures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_SENSORS = 8
_COLDEST_C, _HOTTEST_C = -60.0, 200.0
_MOST_W = 10_000.0
_WORD_LENGTH = 64

# Bits of the Raspberry Pi's firmware word: now, and 16 higher, since the board's start.
_PI_BITS = {0: "under_voltage", 1: "frequency_capped", 2: "throttled", 3: "soft_temperature_limit"}
# Cooling devices that slow something down; fans and backlights cool, too, and slow nothing.
_SLOWING = re.compile(r"throttle|^Processor$|cpufreq|devfreq|cpu-idle|hot-surface", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9]{1,18}")


class BoardMarks(msgspec.Struct, frozen=True):
    """Running counters at one moment of the monotonic clock; power is what they grew by."""

    now_ns: int
    energy_uj: dict[str, int] = {}
    throttle_counts: dict[str, int] = {}


def board_figures(
    files: Mapping[str, str], now_ns: int, before: BoardMarks | None
) -> tuple[BoardFigures, BoardMarks]:
    """Figures, and the counters that the next look begins from.

    Args:
        files: Text by path; those that could not be read are absent.
        now_ns: Monotonic clock, when they were read.
        before: The counters of the last look.
    """
    marks = BoardMarks(now_ns, _energies(files), _throttle_counts(files))
    causes = tuple(dict.fromkeys(_throttle(files, marks, before)))
    share = _cpu_share(files)
    tells = (
        causes or share is not None or any("cooling_device" in path or "throttled" in path for path in files)
    )
    figures = BoardFigures(
        name=_name(files),
        temperatures_c=dict(_temperatures(files)),
        power_w=dict(sorted((dict(_rails(files)) | _rapl(files, marks, before)).items())[:MAX_SENSORS]),
        throttled=any(not cause.startswith("was_") for cause in causes) if tells else None,
        throttle=causes,
        cpu_share=share,
    )
    return figures, marks


def _name(files: Mapping[str, str]) -> str:
    for path in ("proc/device-tree/model", "sys/class/dmi/id/product_name"):
        name = _word(files.get(path, ""))
        if name:
            return name
    return ""


def _temperatures(files: Mapping[str, str]) -> list[tuple[str, float]]:
    """The hottest sensors, by name; hwmon's copies of thermal zones are left out."""
    found: dict[str, float] = {}
    for folder in _folders(files, "sys/class/thermal/thermal_zone"):
        _add_temperature(found, files.get(f"{folder}/type", ""), files.get(f"{folder}/temp"))
    zones = {_plain(name) for name in found}
    for folder in _folders(files, "sys/class/hwmon/hwmon"):
        chip = _word(files.get(f"{folder}/name", ""))
        if _plain(chip) in zones:
            continue
        for channel in _channels(files, folder, "temp", "_input"):
            label = files.get(f"{folder}/temp{channel}_label", "")
            _add_temperature(found, f"{chip} {label}", files.get(f"{folder}/temp{channel}_input"))
    hottest = sorted(found.items(), key=lambda entry: -entry[1])[:MAX_SENSORS]
    return sorted(hottest)


def _add_temperature(found: dict[str, float], name: str, text: str | None) -> None:
    milli_c = _number(text)
    name = _word(name)
    if name and milli_c is not None and _COLDEST_C <= milli_c / 1e3 <= _HOTTEST_C:
        found[name] = max(round(milli_c / 1e3, 1), found.get(name, -math.inf))


def _rails(files: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    """Power in watts: the kernel's own, or voltage times current of an INA3221 (Jetson)."""
    for folder in _folders(files, "sys/class/hwmon/hwmon"):
        chip = _word(files.get(f"{folder}/name", ""))
        for kind in ("_input", "_average"):
            for channel in _channels(files, folder, "power", kind):
                micro_w = _number(files.get(f"{folder}/power{channel}{kind}"))
                label = _word(files.get(f"{folder}/power{channel}_label", "")) or f"{chip} {channel}"
                if micro_w is not None and 0 <= micro_w / 1e6 <= _MOST_W:
                    yield label, round(micro_w / 1e6, 3)
        for channel in _channels(files, folder, "curr", "_input"):
            milli_v = _number(files.get(f"{folder}/in{channel}_input"))
            milli_a = _number(files.get(f"{folder}/curr{channel}_input"))
            label = _word(files.get(f"{folder}/in{channel}_label", ""))
            if (
                label
                and milli_v is not None
                and milli_a is not None
                and 0 <= milli_v * milli_a / 1e6 <= _MOST_W
            ):
                yield label, round(milli_v * milli_a / 1e6, 3)


def _energies(files: Mapping[str, str]) -> dict[str, int]:
    """Microjoules by RAPL domain."""
    found = {}
    for folder in _folders(files, "sys/class/powercap/intel-rapl:"):
        energy_uj = _number(files.get(f"{folder}/energy_uj"))
        if energy_uj is not None and energy_uj >= 0:
            found[folder] = energy_uj
    return found


def _rapl(files: Mapping[str, str], marks: BoardMarks, before: BoardMarks | None) -> dict[str, float]:
    if before is None or marks.now_ns <= before.now_ns:
        return {}
    elapsed_s = (marks.now_ns - before.now_ns) / 1e9
    found = {}
    for folder, energy_uj in marks.energy_uj.items():
        if folder not in before.energy_uj:
            continue
        grown_uj = energy_uj - before.energy_uj[folder]
        if grown_uj < 0:  # the counter went round
            grown_uj += _number(files.get(f"{folder}/max_energy_range_uj")) or 0
        power_w = grown_uj / 1e6 / elapsed_s
        name = _word(files.get(f"{folder}/name", ""))
        if name and 0 <= power_w <= _MOST_W:
            found[name] = round(power_w, 3)
    return found


def _throttle(files: Mapping[str, str], marks: BoardMarks, before: BoardMarks | None) -> Iterator[str]:
    """Why the board is slow now, and what happened to it since its start."""
    for path, text in files.items():
        if path.endswith("/get_throttled"):
            yield from _pi_causes(text)
    for folder in _folders(files, "sys/class/hwmon/hwmon"):
        if files.get(f"{folder}/name", "").strip() == "rpi_volt" and _number(
            files.get(f"{folder}/in0_lcrit_alarm")
        ):
            yield "under_voltage"
    for folder in _folders(files, "sys/class/thermal/cooling_device"):
        kind = _word(files.get(f"{folder}/type", ""))
        if _SLOWING.search(kind) and (_number(files.get(f"{folder}/cur_state")) or 0) > 0:
            yield re.sub(r"[^a-z0-9]+", "_", kind.lower()).strip("_")
    for path, count in marks.throttle_counts.items():
        if before is not None and count > before.throttle_counts.get(path, count):
            yield "over_current" if "_event_cnt" in path else "package_throttle"


def _pi_causes(text: str) -> Iterator[str]:
    """The firmware's word, `50005` or `throttled=0x50005`."""
    match = re.fullmatch(r"(?:throttled=)?(?:0x)?([0-9a-fA-F]{1,8})", text.strip())
    if match is None:
        return
    word = int(match[1], 16)
    for bit, cause in _PI_BITS.items():
        if word >> bit & 1:
            yield cause
        elif word >> bit + 16 & 1:
            yield f"was_{cause}"


def _throttle_counts(files: Mapping[str, str]) -> dict[str, int]:
    """Counters of x86's thermal monitor and Jetson's over-current events."""
    found = {}
    for path, text in files.items():
        if path.endswith(("_throttle_count", "_event_cnt")):
            count = _number(text)
            if count is not None:
                found[path] = count
    return found


def _cpu_share(files: Mapping[str, str]) -> float | None:
    """The clock that the CPUs may reach, as a share of what they could; the slowest cluster's."""
    shares = []
    for folder in _folders(files, "sys/devices/system/cpu/cpufreq/policy"):
        allowed = _number(files.get(f"{folder}/scaling_max_freq"))
        highest = _number(files.get(f"{folder}/cpuinfo_max_freq"))
        if allowed is not None and highest is not None and 0 < allowed <= highest:
            shares.append(allowed / highest)
    return round(min(shares), 3) if shares else None


def _folders(files: Mapping[str, str], prefix: str) -> list[str]:
    """Folders that begin so, in the order of their numbers."""
    depth = prefix.count("/") + 1
    found = {"/".join(path.split("/")[:depth]) for path in files if path.startswith(prefix)}
    return sorted(found, key=lambda folder: (len(folder), folder))


def _channels(files: Mapping[str, str], folder: str, kind: str, suffix: str) -> list[int]:
    pattern = re.compile(rf"{re.escape(folder)}/{kind}([0-9]{{1,3}}){suffix}")
    return sorted(int(match[1]) for path in files if (match := pattern.fullmatch(path)))


def _number(text: str | None) -> int | None:
    match = _NUMBER.fullmatch((text or "").strip())
    return int(match[0]) if match else None


def _word(text: str) -> str:
    """Printable text of one line, without what surrounds it."""
    line = text.strip("\0 \n\t").split("\n")[0]
    return " ".join("".join(char for char in line if char.isprintable()).split())[:_WORD_LENGTH]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
