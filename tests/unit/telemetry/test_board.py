"""What boards tell of heat, power and throttling; and boards that tell nothing, or nonsense."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vedette.clock import ManualClock
from vedette.telemetry.board import MAX_SENSORS, board_figures
from vedette.telemetry.board_files import PATTERNS, BoardReader
from vedette.wire.telemetry import BoardFigures

BOARDS = Path(__file__).resolve().parents[2] / "vectors" / "boards"


def built(board: str, root: Path) -> Path:
    """A tree of files as the board has them; `!E…` stands for a file that cannot be read."""
    for line in (BOARDS / f"{board}.txt").read_text().splitlines():
        name, text = line.split(" = ")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("!"):
            path.mkdir()  # reading fails, also for root
        else:
            path.write_text(text.replace("\\0", "\0") + "\n")
    return root


def look(root: Path, clock: ManualClock | None = None) -> BoardFigures:
    figures = BoardReader(clock or ManualClock(), root).read()
    assert figures is not None
    return figures


def test_a_jetson_tells_rails_zones_and_throttle_alerts(tmp_path: Path) -> None:
    """A zone that says EAGAIN, as powered-down ones do, is absent; a fan at work is no throttling."""
    figures = look(built("jetson-orin-nano", tmp_path))
    assert figures.name == "NVIDIA Jetson Orin Nano Developer Kit"
    assert figures.temperatures_c == {
        "cpu-thermal": 51.7,
        "gpu-thermal": 52.9,
        "soc0-thermal": 50.1,
        "tj-thermal": 52.9,
    }
    assert figures.power_w == {"VDD_IN": 5.905, "VDD_CPU_GPU_CV": 1.737, "VDD_SOC": 1.456}
    assert figures.throttle == ("gpu_throttle_alert",)
    assert figures.throttled is True
    assert figures.cpu_share == 0.75


def test_a_jetson_that_met_its_current_limit_since_the_last_look_says_so(tmp_path: Path) -> None:
    root = built("jetson-orin-nano", tmp_path)
    (root / "sys/class/thermal/cooling_device2/cur_state").write_text("0\n")
    reader = BoardReader(ManualClock(), root)
    first = reader.read()
    (root / "sys/class/hwmon/hwmon3/oc3_event_cnt").write_text("5\n")
    second, third = reader.read(), reader.read()
    assert first is not None
    assert second is not None
    assert third is not None
    assert [figures.throttle for figures in (first, second, third)] == [(), ("over_current",), ()]
    assert [figures.throttled for figures in (first, second, third)] == [False, True, False]


def test_a_raspberry_pi_tells_why_it_is_slow_and_why_it_was(tmp_path: Path) -> None:
    """Word e0008: the soft limit now, capped and throttled before; and the alarm of the supply."""
    figures = look(built("raspberry-pi-5", tmp_path))
    assert figures.name == "Raspberry Pi 5 Model B Rev 1.0"
    assert figures.temperatures_c == {"cpu-thermal": 82.4, "rp1_adc": 57.6}
    assert set(figures.throttle) == {
        "was_frequency_capped",
        "was_throttled",
        "soft_temperature_limit",
        "under_voltage",
    }
    assert figures.throttled is True
    assert figures.power_w == {}


@pytest.mark.parametrize(
    ("word", "causes", "now"),
    [
        ("0", (), False),
        ("50000", ("was_under_voltage", "was_throttled"), False),
        ("throttled=0x50005", ("under_voltage", "throttled"), True),
        ("-1", (), False),
        ("lots", (), False),
    ],
)
def test_the_firmwares_word_is_read_in_both_spellings(word: str, causes: tuple[str, ...], now: bool) -> None:  # noqa: FBT001 - a row of the table
    path = "sys/devices/platform/soc/soc:firmware/get_throttled"
    figures, _ = board_figures({path: word}, 0, None)
    assert figures.throttle == causes
    assert figures.throttled is now


def test_a_pc_tells_its_package_power_from_two_looks(tmp_path: Path) -> None:
    """RAPL counts microjoules and goes round; the first look has nothing to subtract."""
    root, clock = built("generic-x86", tmp_path), ManualClock()
    reader = BoardReader(clock, root)
    first = reader.read()
    clock.advance_s(10)
    (root / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("99671150\n")
    (root / "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count").write_text("18\n")
    second = reader.read()
    assert first is not None
    assert second is not None
    assert first.power_w == {"PPT": 6.012}
    assert second.power_w == {"PPT": 6.012, "package-0": 10.0}
    assert first.throttled is False
    assert second.throttle == ("package_throttle",)
    assert first.name == "NUC11TNHi5"
    assert first.temperatures_c == {
        "acpitz": 27.8,
        "coretemp Core 0": 61.0,
        "coretemp Package id 0": 63.0,
        "nvme Composite": 44.9,
        "x86_pkg_temp": 63.0,
    }
    assert first.cpu_share == 1.0


def test_a_board_that_tells_nothing_has_no_figures(tmp_path: Path) -> None:
    """As in a container: nothing known is not the same as all being well."""
    assert look(tmp_path) == BoardFigures()
    assert look(tmp_path).throttled is None


def test_nonsense_is_absent_not_an_error(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_bytes(b"\xff\xfe\x00\x1b[31mhot")
    for text in ("", "warm", "9" * 300, "-300000", "1e6", "0x10", "51 000"):
        (zone / "temp").write_text(text)
        assert look(tmp_path).temperatures_c == {}
    (zone / "temp").write_text("51000")
    ((name, celsius),) = look(tmp_path).temperatures_c.items()
    assert celsius == 51.0
    assert name.isprintable()


def test_a_hundred_sensors_are_the_eight_hottest() -> None:
    """A report has bounds; the hottest are what matters."""
    files = {}
    for core in range(100):
        files[f"sys/class/hwmon/hwmon0/temp{core}_label"] = f"Core {core}"
        files[f"sys/class/hwmon/hwmon0/temp{core}_input"] = str(40_000 + core * 100)
    figures, _ = board_figures({"sys/class/hwmon/hwmon0/name": "coretemp", **files}, 0, None)
    assert len(figures.temperatures_c) == MAX_SENSORS
    assert min(figures.temperatures_c.values()) == 49.2


def test_a_sensor_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """A bus that does not answer, played by a folder that is slow to list; there is one look at a time."""
    root = built("raspberry-pi-5", tmp_path)
    release = threading.Event()

    class SlowPath(type(root)):  # type: ignore[misc] # the platform's own class of paths
        def glob(self, pattern: str) -> list[Path]:
            release.wait(10)
            return list(Path(self).glob(pattern))

    reader = BoardReader(ManualClock(), SlowPath(root))
    try:
        assert reader.read(within_s=0.01) is None
        assert reader.read(within_s=0.01) is None
        assert reader.stuck
        assert sum(thread.name == "board" for thread in threading.enumerate()) == 1
    finally:
        release.set()
    figures = reader.read(within_s=10)
    assert figures is not None
    assert figures.throttled
    assert not reader.stuck


def test_a_pipe_in_place_of_a_file_does_not_hang_the_look(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    os.mkfifo(zone / "temp")
    (zone / "type").write_text("cpu")
    assert look(tmp_path).temperatures_c == {}


texts = st.text(max_size=20) | st.integers().map(str) | st.sampled_from(["VDD_IN", "Processor", "rpi_volt"])
paths = st.sampled_from(PATTERNS).map(lambda pattern: pattern.replace("*", "1").replace("?", "0"))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(paths, texts), st.dictionaries(paths, texts))
def test_no_text_of_a_kernel_is_an_error(first: dict[str, str], second: dict[str, str]) -> None:
    _, marks = board_figures(first, 0, None)
    figures, _ = board_figures(second, 1_000_000, marks)
    assert all(-60 <= celsius <= 200 for celsius in figures.temperatures_c.values())
    assert all(0 <= watts <= 10_000 for watts in figures.power_w.values())
