"""The installed daemon with a broker that is away, and with two ways of updates of which one is away."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.stubs.brokers import Mosquitto, free_port
from tests.stubs.commands import Command, agent, write_config
from tests.stubs.fleet import Operator, serve_files
from tests.stubs.fleet_ear import FleetEar
from tests.stubs.linked_agent import TOPICS, LinkedAgent, serve_blocks
from tests.stubs.running import stub_bundle
from tests.stubs.scene_models import NAME, scene_bundle
from tests.stubs.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vedette.wire.telemetry import TelemetryReport

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

LIVE = {"input": "synthetic:32x32@30", "live": True}
GENEROUS = ("--latency-ratio", "5")


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: a socket's may have 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="vd-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    operator = Operator(tmp_path)
    operator.release(scene_bundle(tmp_path / "v1", "1"))
    operator.release(scene_bundle(tmp_path / "v2", "2", tuned=0.02))
    operator.roll_out("second", f"{NAME}@2", *GENEROUS)
    return operator


def box_of(tmp_path: Path, short: Path, operator: Operator, port: int, *ways: str, url: str) -> LinkedAgent:
    home = tmp_path / "box"
    home.mkdir()
    factory = tmp_path / "v1"
    return LinkedAgent(home, short, factory=factory, root=operator.root, port=port, via=ways, metadata=url)


def updated(box: LinkedAgent) -> None:
    """Let it look, and wait for the end of what it finds."""
    box.start()
    try:
        box.until_answers(1)
        assert box.command("update", "check").returncode == 0
        assert box.until_result("2")["result"] == "success"
        box.stop()
    finally:
        if box.boot.process.poll() is None:
            box.kill()


def test_blocks_take_over_where_the_web_server_is_away(
    tmp_path: Path, short: Path, operator: Operator
) -> None:
    """Metadata and blobs alike, and the announcement comes by the same way."""
    dead = f"http://127.0.0.1:{free_port()}"
    with Mosquitto(tmp_path / "broker") as broker, serve_blocks(operator.repo, broker.port):
        updated(box_of(tmp_path, short, operator, broker.port, "http", "mqtt", url=dead))


def test_the_web_server_takes_over_where_the_broker_is_away(
    tmp_path: Path, short: Path, operator: Operator
) -> None:
    with serve_files(operator.repo) as url:
        updated(box_of(tmp_path, short, operator, free_port(), "mqtt", "http", url=url))


def config_of(tmp_path: Path, short: Path, port: int, **mqtt: object) -> Path:
    return write_config(
        tmp_path,
        stub_bundle(tmp_path / "b"),
        {"one": LIVE},
        options={},
        device={"id": TOPICS.device, "site": TOPICS.site},
        state_dir=str(tmp_path / "state"),
        control={"socket": str(short / "c.sock")},
        mqtt={"host": "127.0.0.1", "port": port, **mqtt},
        telemetry={"interval_s": 1},
    )


def test_a_broker_that_is_away_costs_nothing_but_news(tmp_path: Path, short: Path) -> None:
    """Frames are answered, the status says why nobody hears of it, figures wait, and the end is quick."""
    config = config_of(tmp_path, short, free_port())
    with Command("run", "--config", config) as run:
        run.until_lines(10)
        run.until_said("mqtt: no connection to 127.0.0.1")

        def screen() -> str:
            return agent("status", "--config", config).stdout.decode()

        until(lambda: "reports, " in screen(), "reports wait", every_s=0.2)
        shown = screen()
        assert "no connection to 127.0.0.1" in shown
        assert "! refused: " in shown
        began_s = time.monotonic()
        run.signal(signal.SIGTERM)
        assert run.end(within_s=10) == 0, run.said
        assert time.monotonic() - began_s < 10


def test_what_waited_arrives_when_the_broker_is_there_and_home_assistant_is_shown(
    tmp_path: Path, short: Path
) -> None:
    """Started before its broker, as after a power cut on the whole site."""
    with Mosquitto(tmp_path / "broker") as broker:
        broker.kill()
        config = config_of(tmp_path, short, broker.port, home_assistant=True)
        with Command("run", "--config", config) as run:
            run.until_said("mqtt: no connection")
            run.until_lines(60)
            broker.start()
            with FleetEar(broker.port, TOPICS) as ear:
                ear.until(lambda: len(ear.reports()) >= 3, "reports of the time before")
                ear.until(lambda: ear.said(f"{TOPICS.branch}/ha/state"), "a dashboard's figures")
                ear.until(lambda: any(map(_answered, ear.reports())), "a report of answered frames")
                first = min(report.seq for report in ear.reports())
                (described,) = ear.said(f"homeassistant/device/{TOPICS.device}/config")
                assert "camera_one" in described["components"]
                run.signal(signal.SIGTERM)
                assert run.end(within_s=10) == 0, run.said
                ear.until(lambda: ear.said(TOPICS.status)[-1].get("clean"), "its goodbye")
        assert first == 1


def _answered(report: TelemetryReport) -> bool:
    return any(row.ok[0] > 0 for row in report.cameras.rows())


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, short: Path) -> None:
    config = config_of(tmp_path, short, free_port())
    (tmp_path / "paho").mkdir()
    (tmp_path / "paho" / "__init__.py").write_text("raise ModuleNotFoundError('gone', name='paho')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.stubs.commands.REPOSITORY", f"{tmp_path}:{_repository()}")
        done = agent("run", "--config", config)
    assert done.returncode == 69
    assert b"the package paho is not installed" in done.stderr
    assert b"pip install 'vedette[mqtt]'" in done.stderr


def _repository() -> Path:
    return Path(__file__).resolve().parents[3]


def test_a_password_that_is_not_there_is_a_wrong_configuration(tmp_path: Path, short: Path) -> None:
    config = config_of(tmp_path, short, free_port(), username="box-1", password_file="nowhere")  # noqa: S106 - a path
    checked = agent("check-config", config)
    assert checked.returncode == 0
    assert b"note: mqtt.password_file:" in checked.stderr
    assert b"mqtt        127.0.0.1:" in checked.stdout
    assert b"telemetry   every 1" in checked.stdout
    done = agent("run", "--config", config)
    assert done.returncode == 78
    assert b"`mqtt.password_file`" in done.stderr
