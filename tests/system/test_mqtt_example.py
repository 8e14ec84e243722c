"""The example of a box with a broker: it is good, and does what its comments promise."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stubs.brokers import Mosquitto
from tests.stubs.commands import Command, agent
from tests.stubs.fleet_ear import FleetEar
from tests.stubs.linked_agent import serve_blocks
from tests.stubs.running import REPOSITORY

from vedette.wire.topics import DeviceTopics

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

EXAMPLE = REPOSITORY / "agent" / "examples" / "mqtt.yaml"
TOPICS = DeviceTopics.of("desk", "demo-box")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that looks like the repository's root, with a short path; nothing is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="vd-"))
    (folder / "models").symlink_to(REPOSITORY / "models")
    (folder / "agent" / "examples").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def commented_commands(program: str) -> list[str]:
    """The commands of a program that the comments tell, without the remarks behind them."""
    text = EXAMPLE.read_text(encoding="utf-8")
    return [line.strip() for line in re.findall(rf"^#   ({program} .*?)(?: {{3,}}.*)?$", text, re.MULTILINE)]


def test_the_example_works_as_its_comments_say(place: Path, tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    setting_up = commented_commands("vedette-fleet")[:2]
    assert [command.split()[1] for command in setting_up] == ["init", "release"]
    for command in setting_up:
        subprocess.run(command.split(), cwd=place, env={**os.environ, "PATH": path}, check=True, timeout=60)
    with Mosquitto(tmp_path / "broker") as broker:
        config = place / "agent" / "examples" / "mqtt.yaml"
        text = EXAMPLE.read_text(encoding="utf-8")
        config.write_text(text.replace("host: 127.0.0.1 ", f"host: 127.0.0.1\n  port: {broker.port} "))
        checked = agent("check-config", config)
        assert checked.returncode == 0, checked.stderr
        assert b"blocks over MQTT" in checked.stdout
        with (
            serve_blocks(place / "repo", broker.port),
            FleetEar(broker.port, TOPICS) as ear,
            Command("run", "--config", config) as run,
        ):
            ear.until(ear.reports, "telemetry")
            ear.until(lambda: ear.said(TOPICS.result("street")), "answers that show something new")
            (asked,) = (line for line in commented_commands("mosquitto_pub") if "snapshot" in line)
            assert TOPICS.command("snapshot") in asked
            assert ear.ask("snapshot", {"camera": "street"}).ok
            ear.until(lambda: ear.said(TOPICS.reported)[-1].get("active"), "what serves")
            # It looked when the repository was announced, by blocks, and found what it has.
            ear.until(lambda: any(a.topic == TOPICS.block_data for a in ear.arrived), "blocks")
            shown = agent("status", "--config", config).stdout.decode()
            assert f"connected to 127.0.0.1:{broker.port}" in shown
            assert "person 1" in shown
            run.signal(signal.SIGTERM)
            assert run.end(within_s=10) == 0, run.said
